"""The lag of groups by two samples: whether a group catches up, when, or falls behind. Also Kafka's OffsetFetch in each of its forms."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from txbroker.cli.doctor.asking import Partition
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.console.texts import duration
from txbroker.names import amount
from txbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

# OffsetFetch names topics by id above OFFSET_FETCH_MAX; requests are for several groups from OFFSET_FETCH_BATCHED on.
OFFSET_FETCH_MAX, OFFSET_FETCH_BATCHED = 9, 8
ALL_TOPICS_FROM = 2  # the first version of OffsetFetch that can request all topics
# A group that is not further behind than what arrives in this time only has to commit; its lag goes up and down between commits.
COMMIT_S = 10.0
# A group that catches up within this time is not worth a warning.
SOON_S = 60.0
NO_MEMBERS = ("Empty", "Dead")

Offsets = Mapping[Partition, int]


class Sample(NamedTuple):
    """The committed offsets of a group and the ends of these partitions' logs, at a time of the monotonic clock."""

    at_s: float
    committed: Offsets
    ends: Offsets

    @property
    def known(self) -> frozenset[Partition]:
        """The partitions whose ends are known."""
        return frozenset(self.committed.keys() & self.ends.keys())

    def lag(self, partitions: frozenset[Partition] | None = None) -> int:
        """The records between the committed offsets and the ends."""
        return sum(max(self.ends[each] - self.committed[each], 0) for each in (self.known if partitions is None else partitions))


class Verdict(NamedTuple):
    """`sentence`: how the lag develops, "" without a lag. `sick`: the group does not catch up. `slow`: it will, but not soon."""

    sentence: str
    sick: bool = False
    slow: bool = False
    advice: str = ""


def judge(state: str, first: Sample, second: Sample | None) -> Verdict:
    """How the lag of a group in this state develops. `second`: None for a group without members, which needs no second sample."""
    if not first.lag():
        return Verdict("")
    if state in NO_MEMBERS:
        advice = "start its consumers, or delete the group if it is not used any more: `txbroker groups --delete`"
        return Verdict("no member reads", sick=True, advice=advice)
    if second is None:
        return Verdict("")
    both = first.known & second.known
    took_s = max(second.at_s - first.at_s, 0.001)
    before, after = first.lag(both), second.lag(both)
    read = sum(max(second.committed[each] - first.committed[each], 0) for each in both)
    arrived = sum(max(second.ends[each] - first.ends[each], 0) for each in both)
    within = f"in {duration(round(took_s * 1000))}"
    if not after or (read and after <= arrived / took_s * COMMIT_S):
        return Verdict("it keeps up")
    if not read:
        advice = (
            "see the logs of its consumers: they do not read, or they commit more rarely; if so, specify a longer time between the samples "
            "(--interval)"
        )
        return Verdict(f"it committed nothing {within}", sick=True, advice=advice)
    caught_up = before - after
    if caught_up <= 0:
        advice = "add consumers (up to one for each partition), or make them faster; records that expire meanwhile are not read"
        return Verdict(f"it falls behind: {within} {amount(arrived, 'record')} arrived and it read {read:,}", sick=True, advice=advice)
    left_s = after * took_s / caught_up
    text = f"at this rate it catches up in {duration(round(left_s * 1000))}"
    advice = "" if left_s <= SOON_S else "add consumers (up to one for each partition) if that is too slow"
    return Verdict(text, slow=left_s > SOON_S, advice=advice)


def sleep_until(moment_s: float) -> None:
    """Wait for a moment of the monotonic clock."""
    time.sleep(max(0.0, moment_s - time.monotonic()))


def committed_offsets(connection: BlockingConnection, groups: Sequence[str]) -> dict[str, dict[Partition, int]]:
    """The committed offsets of groups, by group, from their coordinator; without groups that it refuses. ConnectionFailed."""
    version = min(connection.version_of(OffsetFetchRequest) or 0, OFFSET_FETCH_MAX)
    if version < ALL_TOPICS_FROM:
        return {}
    if version < OFFSET_FETCH_BATCHED:
        answers: dict[str, OffsetFetchResponse] = {
            group: connection.call(OffsetFetchRequest(group_id=group, topics=None), version_max=version) for group in groups
        }
        return {group: _offsets(answer.topics) for group, answer in answers.items() if not answer.error_code}
    requested = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    answer: OffsetFetchResponse = connection.call(OffsetFetchRequest(groups=requested), version_max=version)
    return {found.group_id: _offsets(found.topics) for found in answer.groups if not found.error_code}


def _offsets(topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> dict[Partition, int]:
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }
