"""Constructs and connects all components between the log directories and the sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.registry import Registry
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.api.transaction_requests import AddPartitionsToTxnHandler
from txbroker.api.write_txn_markers import WriteTxnMarkersHandler
from txbroker.broker import first_topics, internal_topics, settings
from txbroker.broker.connections import Connections
from txbroker.broker.event_wiring import EventWiring
from txbroker.broker.handlers import HandlerDependencies, build_registry, register_for_cluster
from txbroker.broker.identity import BrokerIdentity, is_clustered, uses_zookeeper
from txbroker.broker.listening import Listening
from txbroker.broker.marker_channels import MarkerChannels
from txbroker.broker.replication import FetcherLoops, leader_quota
from txbroker.broker.transaction_coordinators import TransactionCoordinators
from txbroker.broker.transaction_level import TransactionLevel
from txbroker.broker.world import World
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.config_store import ConfigAdmin, ConfigWatcher
from txbroker.cluster.controller.broker_channels import Channel
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.controller_context import LiveBroker
from txbroker.cluster.fetcher_loop import Fetchers
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.log_dir_reports import LogDirReports
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.producer_ids import ProducerIds, allocate_block
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.topics import TopicAdmin
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.session_tree import SessionCounts
from txbroker.config.environment import FirstTopic
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.maintenance.on_demand_maintenance import OnDemandMaintenance
from txbroker.maintenance.periodic import Periodic
from txbroker.maintenance.retention import Retention
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txbroker.peers.controller_channel import ControllerChannel
from txbroker.purgatory import Purgatory
from txbroker.retrying import call_each
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.marker_queues import MarkerQueues
from txbroker.transactions.verification import TransactionVerifier
from txbroker.transport.ports import SocketPorts

if TYPE_CHECKING:
    from txbroker.broker.connection_watch import ConnectionWatch
    from txbroker.metrics.sources import MetricSources

log = logging.getLogger("txbroker.broker")


class Components:
    """The components of one broker. Only `service.py` uses it, to start and stop them."""

    def __init__(
        self,
        world: World,
        actions: ActionQueue,
        config: BrokerConfig,
        identity: BrokerIdentity,
        tree: Tree,
        directories: LogDirectories,
        configs: ConfigWatcher,
        quotas: ClientQuotas,
        reached: list[str],
        inter_broker: str,
        fatal: Callable[[str], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._tree = tree
        self._now_ms = world.now_ms
        self.image = ClusterImage()
        names = ("produce", "fetch", "delete records", "topics")
        produce, fetch, deletes, topics = self._purgatories = [Purgatory(world.reactor, name) for name in names]
        self._actions = actions
        # The controller then sends all roles again: by the answers it knows which replicas are offline.
        reports = LogDirReports(tree, identity.broker_id, world.reactor, world.random.random)
        wiring = EventWiring(actions, produce, fetch, deletes, directory_lost=reports.report, fatal=fatal)
        self.replicas = Replicas(
            identity.broker_id,
            directories,
            self.image,
            wiring,
            world.monotonic_s,
            lambda: config.int("replica.lag.time.max.ms") / 1000,
        )
        self._coordinator = GroupCoordinator(
            world.reactor,
            world.now_ms,
            internal_topics.offsets_log(config, self.replicas, produce, world.in_worker),
            settings.group_config(config),
            lambda: internal_topics.partition_count(self.image, OFFSETS_TOPIC),
            world.unique_id,
        )
        self._connections = Connections(identity.broker_id, config, world, inter_broker)
        next_producer_id = ProducerIds(lambda: allocate_block(tree, identity.broker_id)).next_id
        markers = WriteTxnMarkersHandler(self.replicas, self._coordinator, produce, world.now_ms, config.int("request.timeout.ms"))
        chance = world.random.random
        self._transaction_level = TransactionLevel(
            tree, self.image, world.reactor, world.now_ms, chance, is_alone=not is_clustered(config)
        )
        self._marker_channels = MarkerChannels(
            identity.broker_id, self.image, self._connections, inter_broker, markers.write
        )
        self._marker_queues = MarkerQueues(world.reactor, self._marker_channels.leader, self._marker_channels.open)
        self._transactions = TransactionCoordinator(
            world.reactor,
            world.now_ms,
            internal_topics.transactions_log(config, self.replicas, produce, world.in_worker),
            settings.transaction_config(config),
            lambda: internal_topics.partition_count(self.image, TRANSACTIONS_TOPIC),
            next_producer_id,
            self._marker_queues,
        )
        adding = AddPartitionsToTxnHandler(self._transactions, self.image)
        self._transaction_coordinators = TransactionCoordinators(
            identity.broker_id, self.image, self._connections, inter_broker, adding.add
        )
        self._verifier = TransactionVerifier(
            self._transaction_coordinators, world.reactor, lambda: config.boolean("transaction.partition.verification.enable")
        )
        admin = self.topic_admin = self._topic_admin(world)
        self._waiting = TopicWaiting(self.image, topics, admin.is_deleting)
        admin.on_deleted(lambda name: self._waiting.changed([name]))
        self.isr_requests = IsrRequests(identity.broker_id, world.reactor)
        self._own = OwnBroker(
            self.replicas,
            self.image,
            configs,
            world.now_ms,
            self._image_changed,
            world.reactor,
            lambda: self.isr_requests.broker_epoch,
            reports.report,
            world.replicas_changed,
        )
        self._sessions = FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), lambda: world.random.getrandbits(31))
        self._retention = Retention(world.reactor, directories, self.replicas, world.now_ms)
        self.cleaner = LogCleaner(
            world.reactor,
            config,
            directories,
            self.replicas.high_watermark,
            world.now_ms,
            lambda: world.random.getrandbits(64),
            world.cleaners,
            lambda topic_partition: self._retention.expire(topic_partition, lambda _: None),
        )
        self._periodic = Periodic(world.reactor, config, directories, self.replicas, self._retention, world.now_ms)
        self.registry: Registry = build_registry(
            HandlerDependencies(
                broker_id=identity.broker_id,
                cluster_id=identity.cluster_id,
                config=config,
                image=self.image,
                replicas=self.replicas,
                directories=directories,
                coordinator=self._coordinator,
                transactions=self._transactions,
                markers=markers,
                adding=adding,
                verifier=self._verifier,
                transaction_version=lambda: self._transaction_level.finalized,
                topic_admin=admin,
                config_admin=ConfigAdmin(tree),
                waiting=self._waiting,
                creation=self._topic_creation(admin),
                endpoints=Endpoints(identity.broker_id, self.image, reached),
                sessions=self._sessions,
                maintenance=OnDemandMaintenance(self.cleaner, self._retention),
                reread_topic=configs.reread_topic,
                produce=produce,
                fetch=fetch,
                deletes=deletes,
                leader_quota=leader_quota(config, world.monotonic_s),
                quotas=quotas,
                next_producer_id=next_producer_id,
                monotonic_s=world.monotonic_s,
                now_ms=world.now_ms,
            ),
            None if world.instruments is None else world.monotonic_s,
        )
        self._controller: Controller | None = None
        self.to_controller = ControllerChannel(
            identity.broker_id, self.image, lambda: self.replicas.controller_epoch, inter_broker, self._connections.link
        )
        if is_clustered(config):
            register_for_cluster(
                self.registry,
                self._own,
                self._own_controller,
                lambda broker_id: allocate_block(tree, broker_id),
                self.image,
                self._waiting,
            )
        self._connection_watch = self._watch_of_connections(world, inter_broker)
        self._fetchers = Fetchers(
            FetcherLoops(identity.broker_id, config, self.image, world, self.isr_requests, self._connections, inter_broker)
        )
        wiring.wire(self.replicas, self._coordinator, self._transactions, self._sessions, self.isr_requests, self._fetchers)
        directories.wire(wiring)

    def start(self) -> None:
        """Start timers and periodic work."""
        self._coordinator.start()
        self._transactions.start()
        self._periodic.start()
        self.cleaner.start()

    def registered(self, broker_epoch: int, controller: Controller) -> None:
        """This broker is registered, and `controller` is about to run for election in the same session."""
        self._controller = controller
        self.to_controller.begin(controller)
        self.isr_requests.begin(broker_epoch, self.to_controller.alter_partition)
        if self._connection_watch is not None:
            self._connection_watch.begin(broker_epoch, controller)

    def suspected(self) -> Mapping[int, int]:
        """The broker epochs of the brokers that are probably gone, though their sessions have not ended."""
        return {} if self._connection_watch is None else self._connection_watch.suspected()

    def informed(self) -> Collection[int]:
        """The brokers that have got metadata from the controller, as far as this one knows."""
        return self.image.brokers.keys() if self.image.is_complete else ()

    def open_channel(self, broker_id: int, broker: LiveBroker) -> Channel:
        """A controller's way to a broker, which may be this one."""
        return self._connections.channel(broker_id, broker, self._own)

    def why_without_metadata(self) -> str | None:
        """Why clients get no metadata of the cluster from this broker; None if they do."""
        known = self.image.is_complete and self._identity.broker_id in self.image.brokers
        return None if known else "the controller has not sent the metadata of the cluster yet"

    def leave(self) -> None:
        """This broker is about to hand over its leadership, and to stop."""
        self._fetchers.leave()

    def stop(self) -> None:
        """Stop all components, and begin to write the last high watermarks."""
        self.cleaner.stop()
        self._own.stop()
        self.isr_requests.stop()
        self.to_controller.stop()
        if self._connection_watch is not None:
            self._connection_watch.stop()
        self._fetchers.stop()
        self._periodic.stop()
        self._periodic.checkpoint_high_watermarks()
        self._coordinator.stop()
        self._transactions.stop()
        self._verifier.stop()
        self._transaction_level.stop()
        self._actions.end_turn()
        for purgatory in self._purgatories:
            purgatory.close()

    def make_topics(self, topics: Sequence[FirstTopic]) -> None:
        """Create those of these topics that do not exist; failures are logged."""
        if topics:
            _logged(first_topics.make(self.topic_admin, topics), "cannot create the topics of KAFKA_CREATE_TOPICS")

    def metric_sources(
        self, listening: Listening, directories: LogDirectories, controller: Controller, zookeeper: SessionCounts | None
    ) -> MetricSources:
        """The components that metrics read."""
        from txbroker.metrics.sources import MetricSources

        assert isinstance(listening.ports, SocketPorts), "metrics are served of sockets only"
        return MetricSources(
            listeners=list(listening.bound),
            hub=listening.ports.hub,
            registry=self.registry,
            replicas=self.replicas,
            directories=directories,
            cleaner=self.cleaner,
            retention=self._retention,
            image=self.image,
            coordinator=self._coordinator,
            transactions=self._transactions,
            marker_queues=self._marker_queues,
            verifications=self._verifier.counts,
            transaction_max_ms=self._config.int("transaction.max.timeout.ms"),
            sessions=self._sessions,
            purgatories=dict(zip(("Produce", "Fetch", "DeleteRecords", "topic"), self._purgatories, strict=True)),
            is_controller=lambda: controller.active,
            now_ms=self._now_ms,
            zookeeper=zookeeper,
            failover=None if self._connection_watch is None else self._connection_watch.counts,
            takeovers=lambda: controller.takeovers,
        )

    def _watch_of_connections(self, world: World, inter_broker: str) -> ConnectionWatch | None:
        config = self._config
        if not uses_zookeeper(config) or not config.boolean("txbroker.failover.on.connection.loss"):
            return None
        # Imported only here: a broker alone starts without them.
        from txbroker.broker.connection_watch import ConnectionWatch
        from txbroker.cluster.stepping_down import StepDown

        step_down = StepDown(self.replicas, self._own, self.image, self._tree)
        return ConnectionWatch(self._identity.broker_id, self.image, inter_broker, world.reactor, self._tree, step_down)

    def _topic_admin(self, world: World) -> TopicAdmin:
        config = self._config
        return TopicAdmin(
            self._tree,
            brokers=lambda: {broker.id: broker.rack for broker in self.image.brokers.values()},
            validate_configs=lambda configs: validate_topic_configs(config, configs),
            partition_count=config.int("num.partitions"),
            replication_factor=config.int("default.replication.factor"),
            random=world.random,
            random_bytes=world.random_bytes,
            suspected=self.suspected,
        )

    def _topic_creation(self, admin: TopicAdmin) -> TopicCreation:
        return TopicCreation(
            admin,
            self._waiting,
            enabled=lambda: self._config.boolean("auto.create.topics.enable"),
            internal_topic=lambda name: internal_topics.new_internal_topic(self._config, name),
        )

    def _own_controller(self) -> Controller:
        if self._controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self._controller

    def _image_changed(self, changes: ImageChanges) -> None:
        calls: list[Callable[[], object]] = [
            lambda: self._waiting.changed(changes.changed | changes.deleted),
            lambda: self._marker_queues.leaders_changed(self._marker_channels.live()),
            lambda: self._verifier.brokers_changed(self._transaction_coordinators.live()),
        ]
        if changes.brokers:
            calls += [self._waiting.brokers_changed, self._transaction_level.brokers_changed]
            if self._connection_watch is not None:
                calls.append(self._connection_watch.brokers_changed)
        if changes.deleted:
            calls.append(lambda: _logged(self._coordinator.topics_deleted(changes.deleted), "cannot remove the offsets of deleted topics"))
        call_each(log, "an observer of the metadata", *calls)


def _logged(done: Deferred[object] | Deferred[None] | Deferred[str], what: str) -> None:
    done.addErrback(lambda failure: log.error("%s: %s", what, failure.getTraceback()))
