"""Configurations in the metadata tree: reads, changes and change notifications.

A configuration is one node, `/config/<type>/<name>`; that of one user's client id is below the user's. A change also creates a
sequential node under `/config/changes`, in the same transaction. Every broker watches these change nodes, reads the configuration that a
new one names, and deletes old change nodes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.clock import Clock
from txbroker.cluster import node_paths
from txbroker.cluster.change_nodes import ChangeNodes
from txbroker.cluster.node_data import MalformedNode, decode_config, decode_config_change, encode_config, encode_config_change
from txbroker.cluster.node_paths import (
    ALL_BROKERS,
    BROKER_TYPE,
    CLIENT_TYPE,
    IP_TYPE,
    QUOTA_TYPES,
    TOPIC_TYPE,
    USER_TYPE,
    Entity,
    broker_entity,
    topic_entity,
)
from txbroker.cluster.tree.interface import (
    DATA_SIZE_MAX,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Refused,
    SessionExpired,
    Set,
    Stat,
    Tree,
    TreeError,
    WatchEvent,
    parent_of,
)
from txbroker.cluster.tree.operations import children_of, for_admin, in_parts, written
from txbroker.errors import BrokerError, ErrorCode
from txbroker.retrying import Say, retrying, warning

log = logging.getLogger("txbroker.cluster")

RETRY_S, RETRY_S_MAX = 1.0, 10.0  # after changes could not be read, or an observer failed

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
    if not data:  # a user without a configuration, who has client ids with one
        return {}, stat
    try:
        return decode_config(data), stat
    except MalformedNode as error:
        log.error("treating %s as empty: %s", entity.path, error)
        return {}, stat


async def client_entities(tree: Tree) -> list[Entity]:
    """All client ids, users, client ids of users, and addresses that have a node."""
    clients, users, ips = await children_of(tree, [f"/config/{kind}" for kind in QUOTA_TYPES])
    of_users = await children_of(tree, [f"{Entity(USER_TYPE, user).path}/{CLIENT_TYPE}" for user in users or ()])
    entities = [Entity(CLIENT_TYPE, name) for name in clients or ()]
    for user, names in zip(users or (), of_users, strict=True):
        entities.append(Entity(USER_TYPE, user))
        entities.extend(Entity(USER_TYPE, f"{user}/{CLIENT_TYPE}/{name}") for name in names or ())
    return entities + [Entity(IP_TYPE, name) for name in ips or ()]


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

    def clients(self) -> Deferred[dict[Entity, dict[str, str]]]:
        """The configurations of all client ids, users, client ids of users, and addresses."""
        return for_admin(self._clients())

    async def _read(self, entity: Entity) -> dict[str, str]:
        return (await read_config(self._tree, entity))[0]

    async def _clients(self) -> dict[Entity, dict[str, str]]:
        entities = await client_entities(self._tree)
        configs = await in_parts(entities, self._read)
        return dict(zip(entities, configs, strict=True))

    async def _change(self, entity: Entity, compute: Callable[[Mapping[str, str]], Mapping[str, str]]) -> dict[str, str]:
        change = Create(node_paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity), sequential=True)
        while True:
            before, stat = await read_config(self._tree, entity)
            after = dict(compute(before))
            if stat is None and not after and entity.type in QUOTA_TYPES:
                return after  # nothing was there to be removed
            data = encoded_config(after)
            ops: list[Op] = [Set(entity.path, data, stat.version)] if stat is not None else await self._creation(entity, data)
            if stat is not None and not (after or stat.children_count) and entity.type in QUOTA_TYPES:
                ops = [Delete(entity.path, stat.version)]  # there may be many of them
            try:
                await written(self._tree.multi([*ops, change]), self._tree, partial(self._has, entity, after))
            except (BadVersion, NodeExists, NoNode, NotEmpty):
                continue
            return after

    async def _has(self, entity: Entity, config: Mapping[str, str]) -> bool:
        return await self._read(entity) == config

    async def _creation(self, entity: Entity, data: bytes) -> list[Op]:
        """Create the node of an entity, and its parents that do not exist, as those of a user's client id."""
        ops: list[Op] = [Create(entity.path, data)]
        parent = parent_of(entity.path)
        while await self._tree.exists(parent) is None:
            ops.insert(0, Create(parent))
            parent = parent_of(parent)
        return ops


class ConfigWatcher:
    """The configurations that this broker uses: its own, the cluster-wide broker default, those of its topics, and of all clients."""

    def __init__(
        self,
        tree: Tree,
        broker_id: int,
        observer: ConfigObserver,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        """`observer` is called again, with the newest configuration, until it has not failed. `chance` returns numbers from 0 to 1."""
        self._tree = tree
        self._own = (broker_entity(broker_id), ALL_BROKERS)
        self._observer = observer
        self._clock = clock
        self._chance = chance
        self._topics: dict[str, dict[str, str]] = {}
        self._loading: Counter[str] = Counter()  # topics whose first read is under way: their changes count from its beginning
        self._clients: set[Entity] = set()  # clients and users with a configuration
        self._changes = ChangeNodes(tree, node_paths.CONFIG_CHANGES, clock)
        self._repeated: set[Entity] = set()  # the observer has failed for them, or they could not be read
        self._reading = False
        self._read_again = False
        self._read_all = False  # every configuration, whether a change node names it or not
        self._report_due = False  # `on_changes` is to be called
        self._changes_read: Callable[[], None] = lambda: None

    def start(self) -> Deferred[None]:
        """Begin to watch. The observer receives this broker's configuration, the default and those of clients before the Deferred fires."""
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

    def load_topics(self, names: Iterable[str]) -> Deferred[dict[str, Refused]]:
        """Read the configurations of topics before their logs are opened. From then on the observer is notified of their changes.

        Returns the topics without a configuration, because the store does not let this broker read it.
        """
        return Deferred.fromCoroutine(self._load_topics(list(names)))

    def reread_topic(self, name: str) -> Deferred[None]:
        """Pass a loaded topic's current configuration to the observer, so that a change made here takes effect before its watch fires."""
        return for_admin(self._notify(topic_entity(name)))

    def reread_client(self, entity: Entity) -> Deferred[None]:
        """The same for a user, client or address."""
        return for_admin(self._notify(entity))

    def forget_topic(self, name: str) -> None:
        """Stop watching the topic: it has no log here any longer."""
        self._topics.pop(name, None)

    async def _start(self) -> None:
        await self._changes.list(self._changed)
        self._changes.unread.clear()  # these changes are part of the configurations read next
        entities = *self._own, *await client_entities(self._tree)
        await in_parts(entities, self._notify)

    async def _load_topics(self, names: list[str]) -> dict[str, Refused]:
        if not names:
            return {}
        self._loading.update(names)
        try:
            await self._tree.sync()  # another broker has written the configurations of new topics
            refusals = await in_parts(names, self._load_topic)
        finally:
            self._loading -= Counter(names)
        return {name: error for name, error in zip(names, refusals, strict=True) if error is not None and name not in self._topics}

    async def _load_topic(self, name: str) -> Refused | None:
        try:
            # Kept at once: what is read after a change that is noticed in the meantime replaces it.
            self._topics[name] = await self._config(topic_entity(name))
        except Refused as error:
            return error
        return None

    def _changed(self, _: WatchEvent) -> None:
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._read_again = True
        if not self._reading:
            self._reading = True
            say = warning(log, "failed to read configuration changes, retrying: %s", TreeError)
            self._repeat(self._read_changes, say, self._backoff()).addBoth(self._have_read)

    def _have_read(self, _: object) -> None:
        self._reading = False

    def _backoff(self) -> Backoff:
        return Backoff(self._chance, RETRY_S, RETRY_S_MAX)

    def _repeat(self, work: Callable[[], Awaitable[None]], say: Say, backoff: Backoff) -> Deferred[None]:
        """Do this until it succeeds, or the session ends: `renew` follows, which reads everything again."""
        return Deferred.fromCoroutine(retrying(work, self._clock, backoff, say, final=(SessionExpired,))).addErrback(_expired)

    async def _read_changes(self) -> None:
        self._read_again = True
        while self._read_again:
            self._read_again = False
            await self._changes.list(self._changed)
            entities = {await self._changed_entity(name) for name in list(self._changes.unread)} - {None}
            if self._read_all:
                clients = await client_entities(self._tree)
                entities.update(self._own, map(topic_entity, self._topics.keys() | self._loading.keys()), self._clients, clients)
            self._changes.unread.clear()
            self._read_all = False
            self._report_due |= bool(entities)
            known = sorted(entity for entity in entities if entity is not None)
            await in_parts(known, self._notify_or_repeat)
            if self._report_due:
                self._changes_read()
                self._report_due = False
            await self._changes.purge()  # fires the watch: the changes are listed again

    async def _notify_or_repeat(self, entity: Entity) -> None:
        """Notify the observer of one entity. If that fails it is repeated, and does not delay other changes."""
        try:
            await self._notify(entity)
            self._repeated.discard(entity)
        except SessionExpired:
            self._read_all = True
            raise
        except Exception as error:
            if entity not in self._repeated:
                self._repeated.add(entity)
                say = warning(log, f"the configuration at {entity.path} cannot be applied, retrying: %s", TreeError)
                say(error)
                backoff = self._backoff()
                backoff.failed(self._clock.seconds())
                repeated = self._repeat(partial(self._notify_again, entity), say, backoff)
                repeated.addBoth(lambda _: self._repeated.discard(entity))

    async def _notify_again(self, entity: Entity) -> None:
        if entity in self._repeated:
            await self._notify(entity)

    async def _changed_entity(self, name: str) -> Entity | None:
        try:
            return decode_config_change(await self._changes.read(name))
        except NoNode:
            return None
        except MalformedNode as error:
            log.error("skipping %s: %s", self._changes.path(name), error)
            return None

    async def _notify(self, entity: Entity) -> None:
        if entity.type == TOPIC_TYPE and (entity.name in self._topics or entity.name in self._loading):
            self._topics[entity.name] = await self._config(entity)
            self._observer(entity, self._topics[entity.name])
        elif entity.type == BROKER_TYPE and entity in self._own:
            self._observer(entity, await self._config(entity))
        elif entity.type in QUOTA_TYPES:
            config = await self._config(entity)
            (self._clients.add if config else self._clients.discard)(entity)
            self._observer(entity, config)

    async def _config(self, entity: Entity) -> dict[str, str]:
        return (await read_config(self._tree, entity))[0]


def _expired(failure: Failure) -> None:
    failure.trap(SessionExpired)
