"""The offsets of a topic's partitions for a timestamp, by ListOffsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from txbroker.client.client_errors import NotKafka
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

# Timestamps with a special meaning: the first offset, the end, and the offset of the largest timestamp (KIP-734).
EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
NO_REPLICA = -1  # the sender is a consumer
DEBUGGING_REPLICA = -2  # asks any replica for its log end offset, as Kafka's ReplicaVerificationTool does


class FoundOffset(NamedTuple):
    """A partition's answer: an error code, or the offset (-1 if no record is that young) and its record's timestamp (-1 if unknown)."""

    error_code: int
    offset: int
    timestamp: int


def list_offsets(
    call: Callable[[ListOffsetsRequest], Any],
    topic: str,
    partitions: Iterable[int],
    timestamp: int,
    isolation_level: int = 0,
    replica_id: int = NO_REPLICA,
) -> dict[int, FoundOffset]:
    """The offsets of partitions of one leader, by partition; with DEBUGGING_REPLICA of its replicas. `call` sends requests. ClientError."""
    found = list_topics_offsets(call, {topic: partitions}, timestamp, isolation_level, replica_id)
    return {index: offset for (_, index), offset in found.items()}


def list_topics_offsets(
    call: Callable[[ListOffsetsRequest], Any],
    topics: Mapping[str, Iterable[int]],
    timestamp: int,
    isolation_level: int = 0,
    replica_id: int = NO_REPLICA,
) -> dict[tuple[str, int], FoundOffset]:
    """As `list_offsets`, of several topics, by topic and partition. ClientError."""
    requested = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes])
        for name, indexes in topics.items()
    ]
    response: ListOffsetsResponse = call(ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=requested))
    found = {
        (each.name, partition.partition_index): FoundOffset(
            partition.error_code, max(partition.offset, *partition.old_style_offsets, -1), partition.timestamp
        )
        for each in response.topics
        for partition in each.partitions
    }
    if found.keys() != {(each.name, partition.partition_index) for each in requested for partition in each.partitions}:
        raise NotKafka("the broker's ListOffsets response does not have the requested partitions")
    return found
