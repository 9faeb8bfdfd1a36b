"""A mirrored topic as the delivered side of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules
from txbroker.spark.audit.topic_side import TopicSide
from txbroker.spark.offset_ranges import OffsetRange, WrongData
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.topic_source import TopicSource


class MirrorSide:
    """The topics that another cluster, or the same one, mirrors. Partitions have the same numbers; offsets may differ."""

    kind = "mirror"
    same_offsets = False
    latest_by = None
    group = None

    def __init__(self, spark: Any, source: TopicSource) -> None:
        self._topics = TopicSide(spark, source)
        self._snapshot = self._topics.snapshot()
        self._names: dict[str, str] = {}  # of the topics on this side, by those on the written side
        self.name = f"topic {', '.join(topic.name for topic in self._snapshot.topics)} at {source.servers}"

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """All that both have. CommandFailed for topics that do not correspond, WrongData for missing partitions."""
        mine = {topic.name: topic for topic in self._snapshot.topics}
        names = [topic.name for topic in snapshot.topics]
        if len(mine) == len(names) == 1:
            self._names = {names[0]: self._snapshot.topics[0].name}
        elif mine.keys() == set(names):
            self._names = {name: name for name in names}
        else:
            raise CommandFailed(f"the topics {', '.join(names)} and {', '.join(mine)} do not correspond; specify one of each, "
                                "or topics of the same names")
        spans = {}
        for topic in snapshot.topics:
            mirrored = mine[self._names[topic.name]]
            missing = sorted(topic.partitions.keys() - mirrored.partitions.keys())
            if missing:
                raise WrongData(f"topic {mirrored.name} has no partition {missing[0]}, which topic {topic.name} has; "
                                "add it with `txbroker topics --alter --partitions`")
            for index, offsets in topic.partitions.items():
                there = mirrored.partitions[index]
                written = OffsetRange(topic.name, index, offsets.log_start, offsets.end)
                spans[topic.name, index] = Span(written, offsets.end, OffsetRange(topic.name, index, there.log_start, there.end))
        return spans

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """Its records, with the names of the written side."""
        from pyspark.sql import functions as f

        found = self._topics.records([one._replace(topic=self._names[one.topic]) for one in ranges])
        renamed = [name for name, mine in self._names.items() if name != mine]  # one at most
        return found.withColumn("topic", f.lit(renamed[0])) if renamed else found

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """By its own offsets."""
        found = self._topics.since(timestamp_ms)
        return {(name, index): found[self._names[name], index] for name, index in written}

    def rules(self, written: TopicRules) -> TopicRules:
        """By the configurations of its topics."""
        found = self._topics.rules()
        return found._replace(compacted=frozenset(name for name, mine in self._names.items() if mine in found.compacted))

    def command(self, topic: str, partition: int, offset: int) -> str:
        """The console consumer."""
        return self._topics.command(self._names[topic], partition, offset)
