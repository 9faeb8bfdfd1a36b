"""A broker's start-up work in the metadata tree: the root nodes, the cluster id and the broker's registration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import (
    BrokerRegistration,
    MalformedNode,
    decode_broker,
    decode_cluster_id,
    encode_cluster_id,
    encode_log_dir_event,
)
from txbroker.cluster.tree.interface import Create, NodeExists, NoNode, SessionExpired, Set, Tree
from txbroker.cluster.tree.operations import repeated, together
from txbroker.errors import StartError

log = logging.getLogger("txbroker.cluster")

WAITS_FOR_ITSELF = 3  # periods of waiting: ZooKeeper's servers may elect a leader twice meanwhile


def create_structure(tree: Tree) -> Deferred[None]:
    """Create the root nodes that do not exist yet."""
    return Deferred.fromCoroutine(repeated(lambda: _create_structure(tree)))


async def _create_structure(tree: Tree) -> None:
    while True:
        stats = await together([tree.exists(path) for path in node_paths.STRUCTURE])
        missing = [path for path, stat in zip(node_paths.STRUCTURE, stats, strict=True) if stat is None]
        if not missing:
            return
        try:
            await tree.multi([Create(path) for path in missing])
        except NodeExists:
            continue  # another broker has created some of them in the meantime


def cluster_id(tree: Tree, new_id: Callable[[], str]) -> Deferred[str]:
    """Return the cluster id; the first broker of a cluster writes the result of `new_id`. StartError when the node is damaged."""
    return Deferred.fromCoroutine(repeated(lambda: _cluster_id(tree, new_id)))


async def _cluster_id(tree: Tree, new_id: Callable[[], str]) -> str:
    while True:
        stored = await stored_cluster_id(tree)
        if stored is not None:
            return stored
        try:
            await tree.create(node_paths.CLUSTER_ID, encode_cluster_id(new_id()))
        except NodeExists:
            continue  # another broker wrote its id first


async def stored_cluster_id(tree: Tree) -> str | None:
    """The cluster id in the tree, None if it has no cluster. StartError when the node is damaged."""
    try:
        data, _ = await tree.get(node_paths.CLUSTER_ID)
        return decode_cluster_id(data)
    except NoNode:
        return None
    except MalformedNode as error:
        raise StartError(f"The cluster id in the metadata tree ({node_paths.CLUSTER_ID}) is damaged: {error}.") from error


def register(
    tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int, *, clock: Clock | None = None, wait_s: float = 0.0
) -> Deferred[int]:
    """Register this broker and its endpoints; returns the broker epoch. StartError when the id is in use.

    With a `clock` it waits up to `wait_s` for the end of a registration by another session, such as that of a broker that was killed. If
    that has the same endpoints, it is probably an earlier run of this broker: then it waits up to `WAITS_FOR_ITSELF` times as long, as all
    sessions begin their timeout again each time ZooKeeper's servers elect a leader.
    """
    return Deferred.fromCoroutine(_register(tree, broker_id, registration, now_ms, clock, wait_s))


async def _register(tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int, clock: Clock | None, wait_s: float) -> int:
    path, data = node_paths.broker(broker_id), registration.encode(now_ms)
    deadline_s, waits = 0.0, 0
    while True:
        with suppress(NodeExists):
            await repeated(lambda: tree.multi([Create(path, ephemeral=True), Set(path, data, 0)]))
        changed: Deferred[None] = Deferred()
        stat = await tree.exists(path, watch=lambda _, changed=changed: changed.callback(None))  # type: ignore[misc]
        if stat is None:
            continue
        if stat.ephemeral_owner == tree.session_id:
            return stat.czxid
        if clock is None or not waits or clock.seconds() >= deadline_s:
            try:
                owner, is_same = await _owner(tree, path, registration)
            except NoNode:
                continue  # it ended in the meantime
            if clock is None or waits >= (WAITS_FOR_ITSELF if is_same else 1):
                raise StartError(
                    f"Broker id {broker_id} is in use by another broker of this cluster, {owner}: set another broker.id, "
                    "or wait until the session of the other broker has expired."
                )
            deadline_s, waits = clock.seconds() + wait_s, waits + 1
            log.warning("broker id %d is in use by %s; waiting up to %.0f s for its end", broker_id, owner, wait_s)
        await changed.addTimeout(deadline_s - clock.seconds(), clock, lambda *_: None)  # type: ignore[arg-type]


async def _owner(tree: Tree, path: str, own: BrokerRegistration) -> tuple[str, bool]:
    """The broker of a registration, for a person, and whether it has the endpoints of this one; NoNode."""
    data, stat = await tree.get(path)
    try:
        found = decode_broker(data).endpoints
    except MalformedNode:
        return "an unknown broker", False
    return f"{', '.join(map(str, found))} (session {stat.ephemeral_owner:#x})", found == own.endpoints


def report_log_dir_failure(tree: Tree, broker_id: int) -> Deferred[None]:
    """Notify the controller that a log directory of this broker has failed, so that it finds the offline replicas and elects leaders.

    Two notifications are as good as one. Without a session there is none: a broker gets all roles when it registers again.
    """
    data = encode_log_dir_event(broker_id)

    async def report() -> None:
        with suppress(SessionExpired):
            await repeated(lambda: tree.create(node_paths.LOG_DIR_EVENT_PREFIX, data, sequential=True))

    return Deferred.fromCoroutine(report())
