"""The leaders of a topic's partitions, from a Metadata response, and which errors require to ask for them again."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.errors import ErrorCode
from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# Kafka's RetriableException, of the APIs that are used here: the error passes, or another broker leads the partition now.
RETRIABLE = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CONCURRENT_TRANSACTIONS,
})  # fmt: skip


class Broker(NamedTuple):
    """A broker's id and its advertised address."""

    node_id: int
    host: str
    port: int


class TopicLeaders(NamedTuple):
    """A topic, and the leader of each of its partitions, by number; None for a partition without a leader."""

    name: str
    topic_id: bytes
    by_partition: dict[int, Broker | None]

    @property
    def complete(self) -> bool:
        """Whether every partition has a leader."""
        return bool(self.by_partition) and None not in self.by_partition.values()


def metadata_request(topic: str, *, create: bool) -> MetadataRequest:
    """The request for one topic's leaders; with `create` the broker may create the topic (auto.create.topics.enable)."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)


def leaders_in(response: MetadataResponse, topic: str) -> TopicLeaders | int:
    """The leaders in a response to `metadata_request`, or the topic's error code.

    A topic without partitions is being created: LEADER_NOT_AVAILABLE.
    """
    return all_leaders(response).get(topic, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def all_leaders(response: MetadataResponse) -> dict[str, TopicLeaders | int]:
    """The leaders of each topic in a response, or its error code, by its name."""
    brokers = {broker.node_id: Broker(broker.node_id, broker.host, broker.port) for broker in response.brokers}
    found: dict[str, TopicLeaders | int] = {}
    for topic in response.topics:
        if topic.name is None:
            continue
        by_partition = {partition.partition_index: brokers.get(partition.leader_id) for partition in topic.partitions}
        error = topic.error_code or (0 if by_partition else int(ErrorCode.LEADER_NOT_AVAILABLE))
        leaders = TopicLeaders(topic.name, topic.topic_id or NULL_TOPIC_ID, dict(sorted(by_partition.items())))
        found[topic.name] = error or leaders
    return found
