"""A broker's start-up work in the metadata tree: the root nodes, the cluster id and the broker's registration."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import BrokerRegistration, MalformedNode, decode_cluster_id, encode_cluster_id, encode_log_dir_event
from txbroker.cluster.tree.interface import Create, NodeExists, NoNode, Set, Stat, Tree
from txbroker.cluster.tree.operations import together
from txbroker.errors import StartError


def create_structure(tree: Tree) -> Deferred[None]:
    """Create the root nodes that do not exist yet."""
    return Deferred.fromCoroutine(_create_structure(tree))


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
    return Deferred.fromCoroutine(_cluster_id(tree, new_id))


async def _cluster_id(tree: Tree, new_id: Callable[[], str]) -> str:
    while True:
        try:
            data, _ = await tree.get(node_paths.CLUSTER_ID)
            return decode_cluster_id(data)
        except NoNode:
            pass
        except MalformedNode as error:
            raise StartError(f"The cluster id in the metadata tree ({node_paths.CLUSTER_ID}) is damaged: {error}.") from error
        try:
            await tree.create(node_paths.CLUSTER_ID, encode_cluster_id(new_id()))
        except NodeExists:
            continue  # another broker wrote its id first


def register(tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int) -> Deferred[int]:
    """Register this broker and its endpoints; returns the broker epoch. StartError when the id is in use."""
    return Deferred.fromCoroutine(_register(tree, broker_id, registration, now_ms))


async def _register(tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int) -> int:
    path = node_paths.broker(broker_id)
    try:
        results = await tree.multi([Create(path, ephemeral=True), Set(path, registration.encode(now_ms), 0)])
    except NodeExists as error:
        raise StartError(
            f"Broker id {broker_id} is in use by another broker of this cluster: set another broker.id, "
            "or wait until the session of the other broker has expired."
        ) from error
    stat = results[1]
    assert isinstance(stat, Stat)
    return stat.czxid


def report_log_dir_failure(tree: Tree, broker_id: int) -> Deferred[str]:
    """Notify the controller that a log directory of this broker has failed, so that it finds the offline replicas and elects leaders."""
    return tree.create(node_paths.LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id), sequential=True)
