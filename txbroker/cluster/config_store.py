"""Configurations in the metadata tree: reads, changes and change notifications.

A configuration is one node, `/config/<type>/<name>`. A change also creates a sequential node under `/config/changes`, in the same
transaction. Every broker watches these change nodes, reads the configuration that a new one names, and deletes old change nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import MalformedNode, decode_config, decode_config_change, encode_config, encode_config_change
from txbroker.cluster.node_paths import ALL_BROKERS, BROKER_TYPE, TOPIC_TYPE, Entity, broker_entity, topic_entity
from txbroker.cluster.tree.interface import (
    DATA_SIZE_MAX,
    BadVersion,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    NoSpaceInStore,
    Set,
    Stat,
    Tree,
    TreeError,
    WatchEvent,
)
from txbroker.cluster.tree.operations import for_admin, together
from txbroker.errors import BrokerError, ErrorCode

log = logging.getLogger("txbroker.cluster")

CHANGE_KEPT_S = 15 * 60.0  # Kafka's ZkNodeChangeNotificationListener

RETRY_S = 1.0  # after changes could not be read

ConfigObserver = Callable[[Entity, Mapping[str, str]], None]


def encoded_config(properties: Mapping[str, str]) -> bytes:
    """The data of a configuration's node; INVALID_CONFIG when it exceeds the maximum size of a node."""
    data = encode_config(properties)
    if len(data) > DATA_SIZE_MAX:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"The configuration has {len(data)} bytes; the maximum is {DATA_SIZE_MAX}.")
    return data


async def read_config(tree: Tree, entity: Entity) -> tuple[dict[str, str], Stat | None]:
    """A configuration and the stat of its node; empty and None without a node. A malformed one is empty, so that it can be replaced."""
    try:
        data, stat = await tree.get(entity.path)
    except NoNode:
        return {}, None
    try:
        return decode_config(data), stat
    except MalformedNode as error:
        log.error("treating %s as empty: %s", entity.path, error)
        return {}, stat


class ConfigAdmin:
    """Reads and changes configurations for admin requests. The caller validates them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, entity: Entity) -> Deferred[dict[str, str]]:
        """The current configuration of this entity; empty when nothing is configured."""
        return for_admin(self._read(entity))

    def change(self, entity: Entity, compute: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Deferred[dict[str, str]]:
        """Replace the configuration durably by the result of `compute`, and notify all brokers. Returns the new configuration.

        `compute` may raise a BrokerError. It is called again after a concurrent change.
        """
        return for_admin(self._change(entity, compute))

    async def _read(self, entity: Entity) -> dict[str, str]:
        return (await read_config(self._tree, entity))[0]

    async def _change(self, entity: Entity, compute: Callable[[Mapping[str, str]], Mapping[str, str]]) -> dict[str, str]:
        change = Create(node_paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity), sequential=True)
        while True:
            before, stat = await read_config(self._tree, entity)
            after = dict(compute(before))
            data = encoded_config(after)
            write = Create(entity.path, data) if stat is None else Set(entity.path, data, stat.version)
            try:
                await self._tree.multi([write, change])
            except (BadVersion, NodeExists, NoNode):
                continue
            return after


class ConfigWatcher:
    """The configurations that this broker uses: its own, the cluster-wide broker default, and those of its topics."""

    def __init__(
        self,
        tree: Tree,
        broker_id: int,
        observer: ConfigObserver,
        clock: Clock,
    ) -> None:
        self._tree = tree
        self._own = (broker_entity(broker_id), ALL_BROKERS)
        self._observer = observer
        self._clock = clock
        self._topics: dict[str, dict[str, str]] = {}
        self._seen_s: dict[str, float] = {}  # when this broker first saw each change node: the age at which it deletes them
        self._reading = False
        self._read_again = False
        self._read_all = False  # every configuration, whether a change node names it or not
        self._changes_read: Callable[[], None] = lambda: None

    def start(self) -> Deferred[None]:
        """Begin to watch. The observer receives this broker's configuration and the default before the Deferred fires."""
        return Deferred.fromCoroutine(self._start())

    def renew(self) -> None:
        """Watch in the next session of the tree. The observer receives every configuration again: changes may have been missed."""
        self._read_all = True
        self._begin_reading()

    def on_changes(self, callback: Callable[[], None]) -> None:
        """Call back after configurations have changed, also those that this broker does not use."""
        self._changes_read = callback

    def topic(self, name: str) -> Mapping[str, str]:
        """The configuration of a topic that has been loaded; empty for any other."""
        return self._topics.get(name, {})

    def load_topics(self, names: Iterable[str]) -> Deferred[None]:
        """Read the configurations of topics before their logs are opened. From then on the observer is notified of their changes."""
        return Deferred.fromCoroutine(self._load_topics(list(names)))

    def reread_topic(self, name: str) -> Deferred[None]:
        """Pass a loaded topic's current configuration to the observer, so that a change made here takes effect before its watch fires."""
        return for_admin(self._notify(topic_entity(name)))

    def forget_topic(self, name: str) -> None:
        """Stop watching the topic: it has no log here any longer."""
        self._topics.pop(name, None)

    async def _start(self) -> None:
        await self._list_changes()  # changes that exist already are part of the configurations read next
        for entity in self._own:
            await self._notify(entity)

    async def _load_topics(self, names: list[str]) -> None:
        if not names:
            return
        await self._tree.sync()  # another broker has written the configurations of new topics
        configs = await together([Deferred.fromCoroutine(self._config(topic_entity(name))) for name in names])
        self._topics.update(zip(names, configs, strict=True))

    async def _list_changes(self) -> list[str]:
        """The new change nodes in order; sets the watch again."""
        names = await self._tree.children(node_paths.CONFIG_CHANGES, watch=self._changed)
        new = [name for name in names if name not in self._seen_s]
        now_s = self._clock.seconds()
        self._seen_s = {name: self._seen_s.get(name, now_s) for name in names}
        return new

    def _changed(self, _: WatchEvent) -> None:
        self._begin_reading()

    def _begin_reading(self) -> None:
        if self._reading:
            self._read_again = True
            return
        self._reading = True
        Deferred.fromCoroutine(self._read_changes()).addErrback(lambda failure: log.error("config changes: %s", failure.getTraceback()))

    async def _read_changes(self) -> None:
        unread: list[str] = []
        try:
            self._read_again = True
            while self._read_again:
                self._read_again = False
                unread = await self._list_changes()
                entities = {await self._changed_entity(name) for name in unread}
                if self._read_all:
                    entities.update(self._own, map(topic_entity, self._topics))
                for entity in sorted(entity for entity in entities if entity is not None):
                    await self._notify(entity)
                if entities:
                    self._changes_read()
                unread = []
                self._read_all = False
                await self._purge()  # fires the watch: the changes are listed again
        except ConnectionLost as error:
            if not isinstance(error, NoSpaceInStore):  # which the tree has logged
                log.warning("failed to read configuration changes, retrying: %s", error)
            for name in unread:
                del self._seen_s[name]
            self._clock.callLater(RETRY_S, self._begin_reading)
        except TreeError as error:
            log.warning("stopped reading configuration changes: %s %s", type(error).__name__, error)
        finally:
            self._reading = False

    async def _changed_entity(self, name: str) -> Entity | None:
        path = f"{node_paths.CONFIG_CHANGES}/{name}"
        try:
            data, _ = await self._tree.get(path)
            return decode_config_change(data)
        except NoNode:
            return None
        except MalformedNode as error:
            log.error("skipping %s: %s", path, error)
            return None

    async def _notify(self, entity: Entity) -> None:
        if entity.type == TOPIC_TYPE and entity.name in self._topics:
            self._topics[entity.name] = await self._config(entity)
            self._observer(entity, self._topics[entity.name])
        elif entity.type == BROKER_TYPE and entity in self._own:
            self._observer(entity, await self._config(entity))

    async def _config(self, entity: Entity) -> dict[str, str]:
        return (await read_config(self._tree, entity))[0]

    async def _purge(self) -> None:
        before_s = self._clock.seconds() - CHANGE_KEPT_S
        for name in [name for name, seen_s in self._seen_s.items() if seen_s <= before_s]:
            try:
                await self._tree.delete(f"{node_paths.CONFIG_CHANGES}/{name}")
            except NoNode:
                continue  # deleted by another broker
