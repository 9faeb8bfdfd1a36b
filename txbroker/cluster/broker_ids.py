"""A broker's own place in the metadata tree: the nodes that must exist, the cluster's id, the broker's registration."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import BrokerRegistration, MalformedNode, decode_cluster_id, encode_cluster_id, encode_log_dir_event
from txbroker.cluster.tree.interface import Create, NodeExists, NoNode, Set, Stat, Tree
from txbroker.cluster.tree.operations import together
from txbroker.errors import StartError


def create_structure(tree: Tree) -> Deferred[None]:
    """Create the nodes under which everything else is, those of them that do not exist."""
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
            continue  # another broker has just created some of them


def cluster_id(tree: Tree, new_id: Callable[[], str]) -> Deferred[str]:
    """The cluster's id; the first broker gives the cluster the one that `new_id` makes. StartError when the node is damaged."""
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
            continue  # another broker was first: its id counts


def register(tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int) -> Deferred[int]:
    """Tell the cluster that this broker is alive and where; its broker epoch. StartError when the id is taken."""
    return Deferred.fromCoroutine(_register(tree, broker_id, registration, now_ms))


async def _register(tree: Tree, broker_id: int, registration: BrokerRegistration, now_ms: int) -> int:
    path = node_paths.broker(broker_id)
    try:
        results = await tree.multi([Create(path, ephemeral=True), Set(path, registration.encode(now_ms), 0)])
    except NodeExists as error:
        raise StartError(
            f"Broker id {broker_id} is in use by another broker of this cluster: give this one another broker.id, "
            "or wait until the session of the other one is over."
        ) from error
    stat = results[1]
    assert isinstance(stat, Stat)
    return stat.czxid


def report_log_dir_failure(tree: Tree, broker_id: int) -> Deferred[str]:
    """Tell the controller that a log directory of this broker has failed: it asks which replicas are still there and elects leaders."""
    return tree.create(node_paths.LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id), sequential=True)
