"""The broker's life: everything constructed, wired, started in order, and stopped in the reverse order.

Start: directories are locked, the metadata tree opened, configurations read; logs are loaded (in workers); sockets are bound; the
broker registers itself, a controller is elected and tells it what it leads; then connections are accepted.
Stop: no more connections, the last answers are sent, the controller resigns, logs are synced and closed with Kafka's mark of a clean
shutdown, and the tree is closed.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.broker import settings
from txbroker.broker.handlers import Parts, build_registry
from txbroker.broker.joints import Joints
from txbroker.broker.offsets_store import PartitionOffsetsStore
from txbroker.broker.periodic import Periodic
from txbroker.cluster import broker_ids, paths
from txbroker.cluster.configs import ConfigAdmin, ConfigWatcher
from txbroker.cluster.controller import Controller
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.node_data import BrokerRegistration, RegisteredEndpoint
from txbroker.cluster.paths import Entity
from txbroker.cluster.producer_ids import ProducerIds, allocate_block
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.cluster.tree import Tree
from txbroker.config.listeners import Listeners, parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import topic_settings, validate_topic_configs
from txbroker.connection import Connection
from txbroker.errors import StartError
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.log.config import LogConfig
from txbroker.log.directories import LogDirectories, RunAll
from txbroker.log.disk import Disk
from txbroker.log.meta_properties import Identity
from txbroker.log.values import Later
from txbroker.names import OFFSETS_TOPIC, id_to_text
from txbroker.peer import OwnBroker, Peers
from txbroker.purgatory import Purgatory
from txbroker.transport.hub import Hub
from txbroker.transport.listener import Listener

log = logging.getLogger("txbroker.broker")

TREE_FILE = "txbroker-metadata.sqlite"


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """All that a broker takes from outside: the reactor, threads, the disk, the clock and chance. Made in `tap.py`."""

    reactor: Any
    disk: Disk
    in_worker: Callable[[Callable[[], Any]], Deferred[Any]]
    later: Later
    run_all: RunAll
    open_tree: Callable[[str], Tree]
    now_ms: Callable[[], int]
    random: Random
    random_bytes: Callable[[int], bytes]
    host_name: Callable[[], str]


class Broker:
    """One broker. `start` and `stop` return Deferreds; `bound` are the addresses of its listeners once it has started."""

    def __init__(self, config: BrokerConfig, world: World, fatal: Callable[[str], None]) -> None:
        """`fatal` is told, once, why the broker cannot go on; it is to stop the process."""
        self._config = config
        self._world = world
        self._fatal = fatal
        self._listeners: Listeners = parse_listeners(config)
        self._ports: dict[str, Listener] = {}
        self._undo: list[tuple[str, Callable[[], Any]]] = []  # what stop does, in reverse
        self._dynamic_broker: Mapping[str, str] = {}
        self._dynamic_default: Mapping[str, str] = {}
        # Until there are logs, a changed configuration changes nothing more.
        self._reconfigure: Callable[[str], None] = lambda topic: None
        self._topics_here: Callable[[], set[str]] = set
        self._topic_overrides: Callable[[str], Mapping[str, str]] = lambda topic: {}
        self.directories = [os.path.abspath(path) for path in config.list("log.dirs")]
        self.bound: dict[str, tuple[str, int]] = {}
        self.cluster_id = ""
        self.broker_id = -1

    def start(self) -> Deferred[None]:
        """Fires when clients are served. Fails with StartError; what had been opened is closed then."""
        return Deferred.fromCoroutine(self._start_or_undo())

    def stop(self) -> Deferred[None]:
        """Fires when all is closed."""
        return Deferred.fromCoroutine(self._stop())

    async def _start_or_undo(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        while self._undo:
            what, undo = self._undo.pop()
            log.debug("stop: %s", what)
            try:
                result = undo()
                if isinstance(result, Deferred):
                    await result
            except Exception:
                log.exception("stopping %s failed", what)

    def _on_stop(self, what: str, undo: Callable[[], Any]) -> None:
        self._undo.append((what, undo))

    async def _start(self) -> None:
        config, world = self._config, self._world
        for warning in config.static.warnings:
            log.warning("%s", warning)
        directories, stored = self._open_directories()
        tree = self._open_tree(directories)
        await self._identify(directories, stored, tree)
        configs = ConfigWatcher(tree, self.broker_id, self._config_changed, world.now_ms)
        await configs.start()
        await self._load_logs(directories, configs, tree)

        image = ClusterImage()
        produce, fetch, topics = (Purgatory(world.reactor, name) for name in ("produce", "fetch", "topics"))
        joints = Joints(produce, fetch, directory_lost=lambda: self._directory_lost(tree), fatal=self._fatal)
        replicas = Replicas(self.broker_id, directories, image, joints)
        directories.wire(joints)
        store = PartitionOffsetsStore(
            replicas,
            produce,
            codec=settings.OFFSETS_CODECS[config.int("offsets.topic.compression.codec")],
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            load_bytes=lambda: config.int("offsets.load.buffer.size"),
            in_worker=world.in_worker,
        )
        coordinator = GroupCoordinator(
            world.reactor, store, settings.group_config(config), lambda: self._offsets_partitions(image), self._unique_id
        )
        joints.replicas, joints.coordinator = replicas, coordinator
        self._reconfigure = directories.reconfigure
        self._topics_here = lambda: {partition.topic_partition.topic for partition in replicas}

        waiting = TopicWaiting(image, topics)
        admin = TopicAdmin(
            tree,
            brokers=lambda: {broker.id: broker.rack for broker in image.brokers.values()},
            validate_configs=lambda configs: validate_topic_configs(config, configs),
            partition_count=config.int("num.partitions"),
            replication_factor=config.int("default.replication.factor"),
            random=world.random,
            random_bytes=world.random_bytes,
        )
        creation = TopicCreation(
            admin,
            waiting,
            enabled=lambda: config.boolean("auto.create.topics.enable"),
            offsets_topic=lambda: self._offsets_topic(len(image.brokers)),
        )

        def image_changed(changes: ImageChanges) -> None:
            waiting.changed(changes.changed | changes.deleted)
            if changes.deleted:
                forgotten = coordinator.topics_deleted(changes.deleted)
                forgotten.addErrback(lambda failure: log.error("offsets of deleted topics: %s", failure.getTraceback()))

        own = OwnBroker(replicas, image, configs, world.now_ms, image_changed)
        producer_ids = ProducerIds(lambda: allocate_block(tree, self.broker_id))
        registry = build_registry(
            Parts(
                broker_id=self.broker_id,
                cluster_id=self.cluster_id,
                config=config,
                image=image,
                replicas=replicas,
                directories=directories,
                coordinator=coordinator,
                topic_admin=admin,
                config_admin=ConfigAdmin(tree),
                waiting=waiting,
                creation=creation,
                endpoints=Endpoints(self.broker_id, image, self._reached()),
                sessions=FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), lambda: world.random.getrandbits(31)),
                produce=produce,
                fetch=fetch,
                next_producer_id=producer_ids.next_id,
                now_ms=world.now_ms,
            )
        )
        hub = self._bind(lambda: Connection(registry))
        for purgatory in (produce, fetch, topics):
            self._on_stop("purgatory", purgatory.close)
        coordinator.start()
        self._on_stop("group coordinator", coordinator.stop)
        periodic = Periodic(world.reactor, config, directories, replicas, world.now_ms)
        periodic.start()
        self._on_stop("high watermarks", periodic.checkpoint_high_watermarks)
        self._on_stop("periodic work", periodic.stop)
        directories.start()
        self._on_stop("moves between directories", directories.stop)
        await self._register_and_elect(tree, Peers(self.broker_id, own))
        self._accept(hub)

    # --- the stages of a start ---

    def _open_directories(self) -> tuple[LogDirectories, Identity]:
        config, world = self._config, self._world
        directories = LogDirectories(
            world.disk,
            world.later,
            self._unique_id,
            self.directories,
            config_for=self._log_config,
            random_below=world.random.randrange,
            producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        )
        # Whatever happens next, what was opened is closed whole, and unlocked.
        self._on_stop("log directories", lambda: world.in_worker(lambda: directories.close(world.now_ms(), world.run_all)))
        return directories, directories.open()

    def _open_tree(self, directories: LogDirectories) -> Tree:
        """The tree's file is in the first directory, or in whichever has it already."""
        paths_ = [os.path.join(directory, TREE_FILE) for directory in directories.online()]
        found = [path for path in paths_ if self._world.disk.size(path) is not None]
        offline = directories.offline()
        if not found and offline:
            raise StartError(
                f"No usable log directory holds the metadata file {TREE_FILE}, and {', '.join(offline)} cannot be read: "
                "make it readable, or take it out of log.dirs to start with new metadata."
            )
        tree = self._world.open_tree((found or paths_)[0])
        self._on_stop("metadata tree", tree.close)
        return tree

    async def _identify(self, directories: LogDirectories, stored: Identity, tree: Tree) -> None:
        """Cluster id and broker id: what is configured, stored or generated, all in agreement."""
        await broker_ids.create_structure(tree)
        self.cluster_id = await broker_ids.cluster_id(tree, lambda: stored.cluster_id or id_to_text(self._world.random_bytes(16)))
        wanted = self._config.int("broker.id")
        if wanted < 0:
            wanted = stored.broker_id if stored.broker_id is not None else await self._generated_id(tree)
        self.broker_id = wanted
        directories.claim(Identity(wanted, self.cluster_id))

    async def _generated_id(self, tree: Tree) -> int:
        """Kafka's way: the version of a node that each new broker writes, above reserved.broker.max.id."""
        if not self._config.boolean("broker.id.generation.enable"):
            raise StartError("broker.id is not set, and broker.id.generation.enable is false: set one of them.")
        stat = await tree.set(paths.BROKER_SEQUENCE, None)
        return self._config.int("reserved.broker.max.id") + stat.version

    async def _load_logs(self, directories: LogDirectories, configs: ConfigWatcher, tree: Tree) -> None:
        self._topic_overrides = configs.topic
        await configs.load_topics(await tree.children(paths.TOPICS))
        world = self._world
        await world.in_worker(lambda: directories.load(world.now_ms(), world.run_all, _progress))

    def _bind(self, build: Callable[[], Connection]) -> Hub:
        world = self._world
        hub = Hub(world.reactor, settings.limits(self._config), world.in_worker)
        backlog = self._config.int("socket.listen.backlog.size")
        self._on_stop("listeners", lambda: Deferred.fromCoroutine(self._close_ports()))
        for wanted in self._listeners.bound:
            host = "" if wanted.wildcard else wanted.host
            listener = Listener(hub, wanted.name, host, wanted.port, build, backlog=backlog)
            try:
                listener.startListening()
            except CannotListenError as error:
                raise StartError(
                    f"Listener {wanted.name} cannot listen on {wanted.host or '*'}:{wanted.port}: {error.socketError}. "
                    "Stop what uses the port, or choose another in listeners."
                ) from error
            # Connections wait in the backlog until the broker can answer them.
            listener.stopReading()  # type: ignore[no-untyped-call]
            self._ports[wanted.name] = listener
            self.bound[wanted.name] = (wanted.host or "0.0.0.0", listener.getHost().port)  # type: ignore[no-untyped-call]
        return hub

    async def _close_ports(self) -> None:
        for listener in self._ports.values():
            done = listener.stopListening()  # type: ignore[no-untyped-call]
            if isinstance(done, Deferred):
                await done

    async def _register_and_elect(self, tree: Tree, peers: Peers) -> None:
        registration = BrokerRegistration(endpoints=tuple(self._advertised()), rack=self._config.optional_text("broker.rack"))
        epoch = await broker_ids.register(tree, self.broker_id, registration, self._world.now_ms())
        log.info("registered as broker %d, epoch %d", self.broker_id, epoch)
        controller = Controller(
            tree,
            self.broker_id,
            listener=self._listeners.inter_broker,
            send=peers.send,
            unclean_default=lambda: self._config.boolean("unclean.leader.election.enable"),
            clock_ms=self._world.now_ms,
            call_later=self._world.reactor.callLater,
        )
        self._on_stop("controller", controller.stop)
        await controller.start()

    def _accept(self, hub: Hub) -> None:
        hub.start()
        self._on_stop("connections", hub.stop)
        self._on_stop("listeners", lambda: Deferred.fromCoroutine(self._close_ports()))
        for listener in self._ports.values():
            listener.startReading()  # type: ignore[no-untyped-call]

    # --- what parts ask for ---

    def _advertised(self) -> list[RegisteredEndpoint]:
        endpoints = []
        for wanted in self._listeners.bound:
            advertised = self._listeners.advertised.get(wanted.name)
            port = self.bound[wanted.name][1]
            host = wanted.host
            if advertised is not None:
                host, port = advertised.host, advertised.port or port
            elif wanted.wildcard:
                host = self._world.host_name()
            endpoints.append(RegisteredEndpoint(wanted.name, host, port, wanted.protocol))
        return endpoints

    def _reached(self) -> list[str]:
        """Listeners whose clients are told the address that they reached."""
        return [wanted.name for wanted in self._listeners.bound if wanted.wildcard and wanted.name not in self._listeners.advertised]

    def _log_config(self, topic: str) -> LogConfig:
        return settings.log_config(topic_settings(self._config, self._topic_overrides(topic)))

    def _offsets_topic(self, brokers: int) -> NewTopic:
        config = self._config
        return NewTopic(
            name=OFFSETS_TOPIC,
            partition_count=config.int("offsets.topic.num.partitions"),
            replication_factor=min(config.int("offsets.topic.replication.factor"), max(brokers, 1)),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
            },
        )

    def _offsets_partitions(self, image: ClusterImage) -> int:
        topic = image.topic(OFFSETS_TOPIC)
        return self._config.int("offsets.topic.num.partitions") if topic is None else len(topic.partitions)

    def _unique_id(self) -> str:
        return self._world.random_bytes(16).hex()

    def _config_changed(self, entity: Entity, properties: Mapping[str, str]) -> None:
        """A configuration in the tree is another one now."""
        if entity.type == paths.TOPIC_TYPE:
            self._reconfigure(entity.name)
            return
        if entity == paths.ALL_BROKERS:
            self._dynamic_default = properties
        else:
            self._dynamic_broker = properties
        self._config.set_dynamic(self._dynamic_broker, self._dynamic_default)
        for topic in self._topics_here():
            self._reconfigure(topic)

    def _directory_lost(self, tree: Tree) -> None:
        """Let the controller know, so that replicas here count as offline."""
        done = broker_ids.report_log_dir_failure(tree, self.broker_id)
        done.addErrback(lambda failure: log.error("the controller was not told of the lost directory: %s", failure.getErrorMessage()))


def _progress(directory: str, done: int, total: int) -> None:
    log.info("%s: %d of %d logs loaded", directory, done, total)
