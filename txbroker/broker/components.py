"""Constructs and connects all components between the log directories and the sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.api.endpoints import Endpoints
from txbroker.api.registry import Registry
from txbroker.api.request_context import RequestContext
from txbroker.broker import first_topics
from txbroker.broker.access import Access
from txbroker.broker.connections import Connections
from txbroker.broker.coordinator_components import CoordinatorComponents
from txbroker.broker.environment import Environment
from txbroker.broker.event_wiring import EventWiring
from txbroker.broker.handler_dependencies import HandlerDependencies
from txbroker.broker.handlers import build_registry
from txbroker.broker.identity import BrokerIdentity, is_clustered
from txbroker.broker.listening import Listening
from txbroker.broker.log_components import LogComponents
from txbroker.broker.own_login import own_login
from txbroker.broker.replica_components import ReplicaComponents
from txbroker.broker.replication import leader_quota
from txbroker.broker.topic_components import TopicComponents
from txbroker.client_quotas.mutations import UNLIMITED, Mutations
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.clock import Clock
from txbroker.cluster.config_store import ConfigAdmin, ConfigWatcher
from txbroker.cluster.controller.broker_channels import Channel
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.controller_context import LiveBroker
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.log_dir_reports import LogDirReports
from txbroker.cluster.producer_ids import allocate_block
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.topics import TopicAdmin
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.session_tree import SessionCounts
from txbroker.config.environment import FirstTopic
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.peers.controller_channel import ControllerChannel
from txbroker.purgatory import Purgatory
from txbroker.retrying import call_each
from txbroker.transport.ports import SocketPorts

if TYPE_CHECKING:
    from txbroker.broker.audit_log import AuditLog
    from txbroker.broker.sasl_listeners import SaslListeners
    from txbroker.broker.topic_leaders import TopicLeaders
    from txbroker.metrics.sources import MetricSources

log = logging.getLogger("txbroker.broker")


class Purgatories(NamedTuple):
    """Where requests wait: produces, and the appends of coordinators; fetches; DeleteRecords; requests for topics."""

    produce: Purgatory
    fetch: Purgatory
    deletes: Purgatory
    topics: Purgatory

    @classmethod
    def of(cls, clock: Clock) -> Purgatories:
        return cls(*(Purgatory(clock, name) for name in ("produce", "fetch", "delete records", "topics")))


class Components:
    """The components of one broker. Only `service.py` uses it, to start and stop them."""

    def __init__(
        self,
        environment: Environment,
        actions: ActionQueue,
        config: BrokerConfig,
        identity: BrokerIdentity,
        tree: Tree,
        directories: LogDirectories,
        configs: ConfigWatcher,
        quotas: ClientQuotas,
        reached: list[str],
        inter_broker: str,
        peer_tls: Callable[[], SSLContext] | None,
        access: Access,
        fatal: Callable[[str], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._now_ms = environment.now_ms
        self._inter_broker = inter_broker
        self._actions = actions
        self._controller: Controller | None = None
        broker_id, image = identity.broker_id, ClusterImage()
        self.image = image
        waiting = self._purgatories = Purgatories.of(environment.reactor)
        connections = self._connections = Connections(broker_id, config, environment, inter_broker, own_login(config), peer_tls)
        # The controller then sends all roles again: by the answers it knows which replicas are offline.
        reports = self._reports = LogDirReports(tree, broker_id, environment.reactor, environment.random.random)
        wiring = EventWiring(actions, waiting.produce, waiting.fetch, waiting.deletes, directory_lost=reports.report, fatal=fatal)
        replicas = self._replicas = ReplicaComponents(
            environment, config, broker_id, tree, image, directories, configs, connections, inter_broker, wiring, self._image_changed,
            reports.report,
        )  # fmt: skip
        coordinators = self._coordinators = CoordinatorComponents(
            environment, config, broker_id, tree, image, replicas.replicas, connections, inter_broker, waiting.produce
        )
        topics = self._topics = TopicComponents(
            environment, config, tree, image, waiting.topics, self.suspected, partial(self._mutations, quotas)
        )
        logs = self._logs = LogComponents(environment, config, directories, replicas.replicas)
        wiring.wire(
            replicas.replicas, coordinators.groups, coordinators.transactions, replicas.sessions, replicas.isr_requests, replicas.fetchers
        )
        directories.wire(wiring)
        self.registry: Registry = build_registry(
            HandlerDependencies(
                broker_id=broker_id,
                cluster_id=identity.cluster_id,
                config=config,
                image=image,
                controller=self._own_controller,
                replicas=replicas.replicas,
                directories=directories,
                coordinator=coordinators.groups,
                transactions=coordinators.transactions,
                markers=coordinators.markers,
                adding=coordinators.adding,
                verifier=coordinators.verifier,
                transaction_version=lambda: coordinators.level.finalized,
                topic_admin=topics.admin,
                config_admin=ConfigAdmin(tree),
                waiting=topics.waiting,
                creation=topics.creation,
                endpoints=Endpoints(broker_id, image, reached),
                sessions=replicas.sessions,
                maintenance=logs.on_demand,
                reread_topic=configs.reread_topic,
                reread_client=configs.reread_client,
                produce=waiting.produce,
                fetch=waiting.fetch,
                deletes=waiting.deletes,
                leader_quota=leader_quota(config, environment.monotonic_s),
                quotas=quotas,
                acls=access.acls,
                authorizer=access.authorizer,
                audit=access.audit,
                next_producer_id=coordinators.next_producer_id,
                monotonic_s=environment.monotonic_s,
                random_bytes=environment.random_bytes,
                now_ms=environment.now_ms,
            ),
            None if environment.instruments is None else environment.monotonic_s,
        )
        if is_clustered(config):
            from txbroker.broker.cluster_handlers import register_for_cluster

            register_for_cluster(
                self.registry,
                replicas.own,
                self._own_controller,
                lambda broker_id: allocate_block(tree, broker_id),
            )

    @property
    def replicas(self) -> Replicas:
        """The partitions of this broker."""
        return self._replicas.replicas

    @property
    def isr_requests(self) -> IsrRequests:
        """What this broker asks the controller for as a leader; they know its epoch."""
        return self._replicas.isr_requests

    @property
    def to_controller(self) -> ControllerChannel:
        """The way to the controller."""
        return self._replicas.to_controller

    @property
    def cleaner(self) -> LogCleaner:
        """The log cleaner."""
        return self._logs.cleaner

    @property
    def controller(self) -> Controller:
        """The controller of this broker, which may not be the active one. NOT_CONTROLLER before the broker is registered."""
        return self._own_controller()

    @property
    def logs(self) -> LogComponents:
        """What maintains the logs."""
        return self._logs

    @property
    def coordinators(self) -> CoordinatorComponents:
        """The coordinators of groups and transactions."""
        return self._coordinators

    @property
    def topic_admin(self) -> TopicAdmin:
        """The administration of topics."""
        return self._topics.admin

    def start(self) -> None:
        """Start timers and periodic work."""
        self._coordinators.start()
        self._logs.start()

    def registered(self, broker_epoch: int, controller: Controller) -> None:
        """This broker is registered, and `controller` is about to run for election in the same session."""
        self._controller = controller
        self._replicas.registered(broker_epoch, controller)

    def suspected(self) -> Mapping[int, int]:
        """The broker epochs of the brokers that are probably gone, though their sessions have not ended."""
        return self._replicas.suspected()

    def informed(self) -> Collection[int]:
        """The brokers that have got metadata from the controller, as far as this one knows."""
        return self.image.brokers.keys() if self.image.is_complete else ()

    def open_channel(self, broker_id: int, broker: LiveBroker) -> Channel:
        """A controller's way to a broker, which may be this one."""
        return self._connections.channel(broker_id, broker, self._replicas.own)

    def why_without_metadata(self) -> str | None:
        """Why clients get no metadata of the cluster from this broker; None if they do."""
        known = self.image.is_complete and self._identity.broker_id in self.image.brokers
        return None if known else "the controller has not sent the metadata of the cluster yet"

    def leave(self) -> None:
        """This broker is about to hand over its leadership, and to stop."""
        self._replicas.fetchers.leave()

    def stop(self) -> None:
        """Stop all components, and begin to write the last high watermarks."""
        self._reports.stop()
        self._replicas.stop()
        self._logs.stop()
        self._coordinators.stop()
        self._actions.end_turn()
        for purgatory in self._purgatories:
            purgatory.close()

    def make_topics(self, topics: Sequence[FirstTopic]) -> None:
        """Create those of these topics that do not exist; failures are logged."""
        if topics:
            _logged(first_topics.make(self.topic_admin, topics), "cannot create the topics of KAFKA_CREATE_TOPICS")

    def audit_leaders(self, topic: str) -> TopicLeaders:
        """The way of the audit log to its topic."""
        from txbroker.broker.topic_leaders import TopicLeaders

        return TopicLeaders(
            topic, self._identity.broker_id, self.image, self._connections, self._inter_broker, self.replicas, self._purgatories.produce,
            self._now_ms, self._topics.creation.automatic,
        )  # fmt: skip

    def metric_sources(
        self,
        listening: Listening,
        directories: LogDirectories,
        controller: Controller,
        zookeeper: SessionCounts | None,
        sasl: SaslListeners,
        audit: AuditLog,
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
            retention=self._logs.retention,
            image=self.image,
            coordinator=self._coordinators.groups,
            transactions=self._coordinators.transactions,
            marker_queues=self._coordinators.marker_queues,
            verifications=self._coordinators.verifier.counts,
            transaction_max_ms=self._config.int("transaction.max.timeout.ms"),
            sessions=self._replicas.sessions,
            purgatories=dict(zip(("Produce", "Fetch", "DeleteRecords", "topic"), self._purgatories, strict=True)),
            is_controller=lambda: controller.active,
            now_ms=self._now_ms,
            zookeeper=zookeeper,
            failover=None if self._replicas.watch is None else self._replicas.watch.counts,
            takeovers=lambda: controller.takeovers,
            sasl=sasl,
            audit=audit,
            tls=listening.tls,
        )

    def _mutations(self, quotas: ClientQuotas, context: RequestContext) -> Mutations:
        """The quota under which a topic is created for a Metadata request: the controller's, as in Kafka."""
        is_controller = self.image.controller_id == self._identity.broker_id
        return quotas.mutations(context.principal, context.client_id, strict=False) if is_controller else UNLIMITED

    def _own_controller(self) -> Controller:
        if self._controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self._controller

    def _image_changed(self, changes: ImageChanges) -> None:
        parts = self._topics, self._coordinators, self._replicas
        call_each(log, "an observer of the metadata", *(call for part in parts for call in part.observers(changes)))


def _logged(done: Deferred[object] | Deferred[None] | Deferred[str], what: str) -> None:
    done.addErrback(lambda failure: log.error("%s: %s", what, failure.getTraceback()))
