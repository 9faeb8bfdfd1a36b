"""A consumer group as the delivered side of an audit: the records before its committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.names import TopicPartition
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules
from txbroker.spark.audit.topic_side import TopicSide
from txbroker.spark.offset_ranges import OffsetRange, WrongData
from txbroker.spark.snapshot import Snapshot


class GroupSide:
    """The group's committed offsets now; ClientError."""

    kind = "group"
    same_offsets = True
    latest_by = None

    def __init__(self, written: TopicSide, group: str) -> None:
        with written.source.brokers.commits(group) as commits:
            self._committed = {partition: one.offset for partition, one in commits.fetch_all().items()}
        self._written = written
        self.group = group
        self.name = f"group {group}"

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """Up to the committed offsets. CommandFailed without any; WrongData for one beyond the end of the topic."""
        spans = {}
        for topic in snapshot.topics:
            if not any(TopicPartition(topic.name, index) in self._committed for index in topic.partitions):
                raise CommandFailed(f"group {self.group} has no committed offset for {topic.name}; "
                                    f"see `txbroker groups --describe --group {self.group}`")
            for index, offsets in topic.partitions.items():
                committed = self._committed.get(TopicPartition(topic.name, index), offsets.log_start)
                if committed > offsets.high_watermark:
                    where = TopicPartition(topic.name, index)
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
