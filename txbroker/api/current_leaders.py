"""Which broker leads a partition, for the client of a request that was sent to another one (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from txbroker.api.endpoints import NO_NODE, Endpoints, Node
from txbroker.api.request_context import RequestContext
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.cluster.replicas import Replicas


class CurrentLeader(NamedTuple):
    """A partition's leader and leader epoch, -1 if they are not known."""

    leader_id: int
    leader_epoch: int


class CurrentLeaders:
    """The latest that this broker knows: from the controller's request for its own replica, else from the cluster image."""

    def __init__(self, replicas: Replicas, image: ClusterImage, endpoints: Endpoints) -> None:
        self._replicas = replicas
        self._image = image
        self._endpoints = endpoints

    def of(self, topic: str, partition: int) -> CurrentLeader:
        """The leader of a partition."""
        replica = self._replicas.find(topic, partition)
        known = self._image.partition(topic, partition) if replica is None else replica.state
        return CurrentLeader(NO_LEADER, -1) if known is None else CurrentLeader(known.leader, known.leader_epoch)

    def nodes(self, leader_ids: Iterable[int], context: RequestContext) -> list[Node]:
        """The addresses of these leaders, each once, as far as they are alive and have the client's listener."""
        nodes = [self._endpoints.node(leader_id, context) for leader_id in sorted(set(leader_ids))]
        return [node for node in nodes if node is not NO_NODE]
