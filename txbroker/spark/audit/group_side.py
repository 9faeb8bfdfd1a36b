"""A consumer group as the delivered side of an audit: the records before its committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.cli.failures import CommandFailed
from txbroker.cli.group_requests import committed_offsets
from txbroker.cli.partition_flags import Partition
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules
from txbroker.spark.audit.topic_side import TopicSide
from txbroker.spark.brokers import administering
from txbroker.spark.offset_ranges import OffsetRange, WrongData
from txbroker.spark.snapshot import Snapshot

TIMEOUT_MS = 30_000


class GroupSide:
    """The group's committed offsets now; CommandFailed if it has none."""

    kind = "group"
    same_offsets = True
    latest_by = None

    def __init__(self, written: TopicSide, group: str) -> None:
        with administering(written.source.servers, written.source.properties) as admin:
            found = committed_offsets(admin, [group], TIMEOUT_MS)[group]
        self._written = written
        self._committed = {(partition.topic, partition.number): one.offset for partition, one in found.items()}
        self.group = group
        self.name = f"group {group}"

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """Up to the committed offsets. CommandFailed without any; WrongData for one beyond the end of the topic."""
        spans = {}
        for topic in snapshot.topics:
            if not any((topic.name, index) in self._committed for index in topic.partitions):
                raise CommandFailed(f"group {self.group} has no committed offset for {topic.name}; "
                                    f"see `txbroker groups --describe --group {self.group}`")
            for index, offsets in topic.partitions.items():
                committed = self._committed.get((topic.name, index), offsets.log_start)
                if committed > offsets.high_watermark:
                    where = Partition(topic.name, index)
                    raise WrongData(f"group {self.group} has committed offset {committed} of {where}, which ends at "
                                    f"{offsets.high_watermark}: the log lost records, or the topic was created again; look at the "
                                    "brokers' logs, and set the offset with `txbroker groups --reset-offsets`")
                unread = max(offsets.log_start - committed, 0)
                written = OffsetRange(topic.name, index, offsets.log_start, min(max(committed, offsets.log_start), offsets.end))
                spans[topic.name, index] = Span(written, offsets.end, written, unread)
        return spans

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """The topic's records before the committed offsets."""
        return self._written.records(ranges)

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """The same offsets."""
        return written

    def rules(self, written: TopicRules) -> TopicRules:
        """The topic's own."""
        return written

    def command(self, topic: str, partition: int, offset: int) -> str:
        """The console consumer."""
        return self._written.command(topic, partition, offset)
