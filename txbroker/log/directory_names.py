"""The names of partition directories: `orders-3`, and those with a fate, `orders-3.<32 hexadecimal digits>-delete`.

Source: Kafka's class LocalLog. Names end at 255 bytes, what file systems take: a longer one loses the end of the topic.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from txbroker.names import TopicPartition, parse_partition_directory, partition_directory

NAME_LENGTH_MAX = 255

_WITH_FATE = re.compile(r"(.+-[0-9]{1,10})\.[0-9a-f]{32}-(delete|future|stray)")


class Fate(Enum):
    """What becomes of a partition's directory."""

    KEEP = ""  # the log in use
    DELETE = "delete"  # of a deleted partition, to be removed
    FUTURE = "future"  # an unfinished copy, to be the log in use
    STRAY = "stray"  # set aside because the cluster does not know it; never touched again


class PartitionDirectory(NamedTuple):
    """What a directory's name says."""

    topic_partition: TopicPartition
    fate: Fate


def parse(name: str) -> PartitionDirectory | None:
    """What a name says; None when no broker makes a partition directory of this name."""
    fate = Fate.KEEP
    with_fate = _WITH_FATE.fullmatch(name)
    plain = name
    if with_fate is not None:
        plain, fate = with_fate.group(1), Fate(with_fate.group(2))
    topic_partition = parse_partition_directory(plain)
    # "orders-03" would be a second directory of orders-3.
    if topic_partition is None or partition_directory(topic_partition) != plain or topic_partition.partition >= 2**31:
        return None
    return PartitionDirectory(topic_partition, fate)


def with_fate(topic_partition: TopicPartition, fate: Fate, unique_id: str) -> str:
    """The name of a partition's directory that has another fate than KEEP."""
    ending = f"-{topic_partition.partition}.{unique_id}-{fate.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(ending)] + ending
