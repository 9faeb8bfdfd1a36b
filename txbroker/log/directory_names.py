"""The names of partition directories: `orders-3`, and in other states `orders-3.<32 hexadecimal digits>-delete`.

Source: Kafka's class LocalLog. Names have at most 255 bytes, the limit of file systems: longer ones lose the end of the topic.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from txbroker.names import TopicPartition, parse_partition_directory, partition_directory

NAME_LENGTH_MAX = 255

_WITH_STATE = re.compile(r"(.+-[0-9]{1,10})\.[0-9a-f]{32}-(delete|future|stray)")


class DirectoryState(Enum):
    """The state of a partition's directory."""

    IN_USE = ""  # the log in use
    DELETE = "delete"  # marked for removal: the partition was deleted
    FUTURE = "future"  # an unfinished copy of a log that is being moved
    STRAY = "stray"  # Kafka found it unknown to the cluster; never touched again


class PartitionDirectory(NamedTuple):
    """The content of a directory's name."""

    topic_partition: TopicPartition
    state: DirectoryState


def parse(name: str) -> PartitionDirectory | None:
    """The partition and state in a name; None when no broker creates a partition directory of this name."""
    state = DirectoryState.IN_USE
    marked = _WITH_STATE.fullmatch(name)
    plain = name
    if marked is not None:
        plain, state = marked.group(1), DirectoryState(marked.group(2))
    topic_partition = parse_partition_directory(plain)
    # "orders-03" would be a second directory of orders-3.
    if topic_partition is None or partition_directory(topic_partition) != plain or topic_partition.partition >= 2**31:
        return None
    return PartitionDirectory(topic_partition, state)


def name_in_state(topic_partition: TopicPartition, state: DirectoryState, unique_id: str) -> str:
    """The name of a partition's directory in another state than IN_USE."""
    ending = f"-{topic_partition.partition}.{unique_id}-{state.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(ending)] + ending
