"""The cluster image: brokers, topics and partitions, as received in the controller's UpdateMetadata requests.

The counterpart of Kafka's `ZkMetadataCache`. Only `apply` changes it. The values that it returns (`TopicImage`, `BrokerImage`) are
replaced, never modified, so that a reader may keep them for as long as `version` stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from txbroker.names import NULL_TOPIC_ID

if TYPE_CHECKING:
    from txbroker.wire.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )

NO_CONTROLLER = -1
LEADER_DURING_DELETE = -2  # Kafka's LeaderAndIsr.LeaderDuringDelete: brokers forget the partition
# The types of requests (KIP-866). A request without one is of a controller of Apache Kafka, or follows a FULL one.
INCREMENTAL = 1  # more requests follow until all topics are known
FULL = 2  # all topics are named: brokers forget the others


class Endpoint(NamedTuple):
    """An advertised listener of a broker."""

    host: str
    port: int
    security_protocol: int  # Kafka's SecurityProtocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class BrokerImage(NamedTuple):
    """A live broker."""

    id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]  # by listener name


class PartitionImage(NamedTuple):
    """The state of one partition, as last received from the controller."""

    leader: int  # -1 when there is none
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int  # the version of the partition's state node


class TopicImage(NamedTuple):
    """A topic with all of its partitions."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]  # by partition index, in ascending order


class ImageChanges(NamedTuple):
    """The changes of one UpdateMetadata request; topics by name."""

    changed: frozenset[str]
    deleted: frozenset[str]
    brokers: bool  # whether the set of live brokers, or an endpoint, changed, or the image is complete now


class ClusterImage:
    """All topics, partitions and live brokers. Look-ups by name or id take constant time."""

    def __init__(self) -> None:
        self.version = 0  # incremented by each `apply`: caches of responses compare it
        self.is_complete = False  # whether a topic that is not in it does not exist
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self._brokers: dict[int, BrokerImage] = {}
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[bytes, str] = {}

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """The live brokers by id, in ascending order."""
        return self._brokers

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """All topics by name."""
        return self._topics

    def topic(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic of this id."""
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition, None when topic or partition is not known."""
        image = self._topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """The endpoint of a live broker for this listener name; None when it is not alive or has no such listener."""
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def apply(self, request: UpdateMetadataRequest) -> ImageChanges:
        """Apply a request of the controller, whose epoch the caller has checked."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        brokers = {broker.id: broker for broker in sorted(map(_broker_image, request.live_brokers), key=lambda broker: broker.id)}
        brokers_changed = brokers != self._brokers
        self._brokers = brokers
        if not self.is_complete and request.type != INCREMENTAL:
            self.is_complete = brokers_changed = True
        changed: set[str] = set()
        deleted: set[str] = set()
        for topic in request.topic_states:
            (changed if self._apply_topic(topic) else deleted).add(topic.topic_name)
        if request.type == FULL:
            forgotten = self._forget_others({topic.topic_name for topic in request.topic_states if _live(topic)})
            deleted |= forgotten
            changed -= forgotten
        self.version += 1
        return ImageChanges(frozenset(changed), frozenset(deleted), brokers_changed)

    def _forget_others(self, named: set[str]) -> set[str]:
        """Topics that were deleted while this broker got no requests, by a controller that has been replaced since."""
        gone = self._topics.keys() - named
        for name in gone:
            self._names.pop(self._topics.pop(name).topic_id, None)
        return gone

    def _apply_topic(self, state: UpdateMetadataTopicState) -> bool:
        """Returns whether the topic still has partitions."""
        name = state.topic_name
        before = self._topics.get(name)
        live = _live(state)
        partitions: dict[int, PartitionImage] = {}
        # A topic with another id is another topic: it was deleted and created again, and this broker missed the requests in between.
        if before is not None and before.topic_id != state.topic_id:
            if not live:
                return True  # the deletion of the previous topic of this name
            self._names.pop(before.topic_id, None)
        elif before is not None:
            partitions.update(before.partitions)
        for partition in state.partition_states:
            partitions.pop(partition.partition_index, None)
        partitions.update((partition.partition_index, _partition_image(partition)) for partition in live)
        if not partitions:
            self._topics.pop(name, None)
            self._names.pop(state.topic_id, None)
            return False
        self._topics[name] = TopicImage(name, state.topic_id, _in_order(partitions))
        if state.topic_id != NULL_TOPIC_ID:
            self._names[state.topic_id] = name
        return True


def _live(state: UpdateMetadataTopicState) -> list[UpdateMetadataPartitionState]:
    """The partitions that are not in deletion."""
    return [partition for partition in state.partition_states if partition.leader != LEADER_DURING_DELETE]


def _in_order(partitions: dict[int, PartitionImage]) -> dict[int, PartitionImage]:
    return dict(sorted(partitions.items()))


def _broker_image(broker: UpdateMetadataBroker) -> BrokerImage:
    endpoints = {e.listener: Endpoint(e.host, e.port, e.security_protocol) for e in broker.endpoints}
    return BrokerImage(broker.id, broker.rack, endpoints)


def _partition_image(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=state.zk_version,
    )
