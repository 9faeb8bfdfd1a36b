"""Which topics and partitions a flag means, by the patterns of Kafka's tools, and where their leaders are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli.failures import BadUsage, warn
from txbroker.client.offset_requests import EARLIEST as EARLIEST
from txbroker.client.offset_requests import LATEST as LATEST
from txbroker.client.offset_requests import MAX_TIMESTAMP as MAX_TIMESTAMP

_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*))?)?")

UNKNOWN_OFFSET = -1  # in a response of ListOffsets


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Rule(NamedTuple):
    """Topics whose whole name matches, and of these the partitions from `low` to before `high` (None: to the end)."""

    topic: re.Pattern[str]
    low: int
    high: int | None

    def matches(self, partition: Partition) -> bool:
        """Whether the partition is meant."""
        inside = self.low <= partition.number and (self.high is None or partition.number < self.high)
        return inside and self.topic.fullmatch(partition.topic) is not None


def topic_pattern(text: str, flag: str) -> re.Pattern[str]:
    """A regular expression for whole names of topics, in which a comma means "or", as Kafka has it; BadUsage."""
    try:
        return re.compile(text.strip().replace(",", "|"))
    except re.error as error:
        raise BadUsage(f"{flag} {text!r} is neither a topic nor a regular expression ({error})") from None


def rules(text: str) -> list[Rule]:
    """The value of --topic-partitions: `topic:1,topic:0-3,topic:5-,topic:-3,topic,:0`; the topic is an expression. BadUsage."""
    return [_rule(part.strip(), text) for part in text.split(",")]


def _rule(part: str, text: str) -> Rule:
    found = _RULE.fullmatch(part)
    if not part or found is None:
        raise BadUsage(f"--topic-partitions is {text!r}; it must be like topic:1,topic:0-3,topic:5-,topic:-3,topic")
    topic = topic_pattern(found["topic"] or ".*", "--topic-partitions")
    if found["one"] is not None:
        return Rule(topic, int(found["one"]), int(found["one"]) + 1)
    return Rule(topic, int(found["low"] or 0), int(found["high"]) if found["high"] else None)


def partitions_of(topics: Iterable[Mapping[str, Any]]) -> dict[Partition, int]:
    """All partitions of described topics, in order, with their leaders (below 0: none)."""
    found = {Partition(topic["name"], partition["partition_index"]): partition["leader_id"]
             for topic in topics for partition in topic["partitions"]}  # fmt: skip
    return dict(sorted(found.items()))


def with_leaders(leaders: Mapping[Partition, int]) -> list[Partition]:
    """Those that can be asked about; the person is told of the others."""
    for partition, leader in leaders.items():
        if leader < 0:
            warn(f"partition {partition} has no leader and is left out; see `txbroker topics --describe --unavailable-partitions`")
    return [partition for partition, leader in leaders.items() if leader >= 0]


def list_offsets(admin: Any, partitions: Sequence[Partition], timestamp: int) -> dict[Partition, Any]:
    """Offset, timestamp and leader epoch of each partition, by a timestamp in milliseconds or one of ListOffsets' negative ones."""
    from kafka import TopicPartition

    wanted = {TopicPartition(*partition): timestamp for partition in partitions}
    found = admin.list_partition_offsets(wanted) if wanted else {}
    return {Partition(*partition): offset for partition, offset in found.items()}
