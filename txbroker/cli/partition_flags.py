"""Selection of topics and partitions by flags, with the patterns of Kafka's tools, and their leaders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.client.offset_requests import EARLIEST as EARLIEST
from txbroker.client.offset_requests import LATEST as LATEST
from txbroker.client.offset_requests import MAX_TIMESTAMP as MAX_TIMESTAMP
from txbroker.console.failures import BadUsage, broker_error, warn
from txbroker.names import TopicPartition, amount

_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*))?)?")

UNKNOWN_OFFSET = -1  # in a response of ListOffsets
NAMED_MAX = 3  # partitions in one message
NO_ADVICE: Mapping[int, str] = {}


class Rule(NamedTuple):
    """The partitions from `low` up to, excluding, `high` (None: all further ones) of the topics whose whole name matches."""

    topic: re.Pattern[str]
    low: int
    high: int | None

    def matches(self, partition: TopicPartition) -> bool:
        """Whether the partition is selected."""
        inside = self.low <= partition.partition and (self.high is None or partition.partition < self.high)
        return inside and self.topic.fullmatch(partition.topic) is not None


def topic_pattern(text: str, flag: str) -> re.Pattern[str]:
    """A regular expression for whole names of topics, in which a comma means "or", as in Kafka; BadUsage."""
    try:
        return re.compile(text.strip().replace(",", "|"))
    except re.error as error:
        raise BadUsage(f"{flag} {text!r} is neither a topic nor a regular expression ({error})") from None


def rules(text: str) -> list[Rule]:
    """The value of --topic-partitions: `topic:1,topic:0-3,topic:5-,topic:-3,topic,:0`, with regular expressions as topics. BadUsage."""
    return [_rule(part.strip(), text) for part in text.split(",")]


def _rule(part: str, text: str) -> Rule:
    found = _RULE.fullmatch(part)
    if not part or found is None:
        raise BadUsage(f"--topic-partitions is {text!r}; it must be like topic:1,topic:0-3,topic:5-,topic:-3,topic")
    topic = topic_pattern(found["topic"] or ".*", "--topic-partitions")
    if found["one"] is not None:
        return Rule(topic, int(found["one"]), int(found["one"]) + 1)
    return Rule(topic, int(found["low"] or 0), int(found["high"]) if found["high"] else None)


def partitions_of(topics: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """All partitions of described topics, sorted, with their leaders (below 0: none)."""
    found = {TopicPartition(topic["name"], partition["partition_index"]): partition["leader_id"]
             for topic in topics for partition in topic["partitions"]}  # fmt: skip
    return dict(sorted(found.items()))


def some(partitions: Sequence[TopicPartition]) -> str:
    """Partitions for a message: `partition a-0`, or `7 partitions (a-0, a-1, a-2, ...)`."""
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    named = ", ".join(map(str, partitions[:NAMED_MAX])) + (", ..." if len(partitions) > NAMED_MAX else "")
    return f"{amount(len(partitions), 'partition')} ({named})"


def warn_of_refused(what: str, refused: Mapping[TopicPartition, int], advice: Mapping[int, str] = NO_ADVICE) -> None:
    """One warning for each error code; `what` has `{}` in the place of the partitions. `advice`: what to do about some codes."""
    for code in sorted(set(refused.values())):
        partitions = sorted(partition for partition, each in refused.items() if each == code)
        sentence = str(broker_error(what.format(some(partitions)), code, None))
        warn(f"{sentence}; {advice[code]}" if code in advice else sentence)


def with_leaders(leaders: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that have a leader, with one warning about all others."""
    others = [partition for partition, leader in leaders.items() if leader < 0]
    if others:
        what = f"{some(others)} {'has' if len(others) == 1 else 'have'} no leader and {'is' if len(others) == 1 else 'are'} omitted"
        warn(f"{what}; see `txbroker topics --describe --unavailable-partitions`")
    return [partition for partition, leader in leaders.items() if leader >= 0]


def list_offsets(admin: Any, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, Any]:
    """Offset, timestamp and leader epoch of each partition, by a timestamp in milliseconds or a negative one of ListOffsets."""
    from kafka import TopicPartition as KafkaPartition

    wanted = {KafkaPartition(*partition): timestamp for partition in partitions}
    found = admin.list_partition_offsets(wanted) if wanted else {}
    return {TopicPartition(*partition): offset for partition, offset in found.items()}
