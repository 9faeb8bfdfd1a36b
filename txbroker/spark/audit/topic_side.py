"""Topics as the written side of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from txbroker.client.topic_reader import TopicReader
from txbroker.console.failures import CommandFailed
from txbroker.console.topic_order import topic_order
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import TopicRules
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.snapshot import ISOLATION_LEVELS, Snapshot
from txbroker.spark.topic_source import TopicSource


class TopicSide:
    """The topics of a source. ClientError from every method."""

    def __init__(self, spark: Any, source: TopicSource) -> None:
        self.source = source
        self._spark = spark
        self._topics = source.find()
        self.name = ", ".join(self._topics)

    def snapshot(self) -> Snapshot:
        """The offsets now."""
        return self.source.snapshot()

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """The records in these ranges."""
        return self.source.records(self._spark, ranges)

    def since(self, timestamp_ms: int) -> Mapping[Key, int]:
        """By ListOffsets."""
        found: dict[Key, int] = {}
        for name in self._topics:
            with self._reader(name) as reader:
                found |= {(name, partition): reader.offset_since(partition, timestamp_ms) for partition in reader.partitions}
        return found

    def rules(self) -> TopicRules:
        """By the topics' configurations."""
        compacted, orders = set(), {}
        for name in self._topics:
            with self._reader(name) as reader:
                orders[topic_order(reader)] = name
                if "compact" in (reader.configs(["cleanup.policy"]).get("cleanup.policy") or "").split(","):
                    compacted.add(name)
        if len(orders) > 1:
            first, second, *_ = orders.values()
            raise CommandFailed(f"topics {first} and {second} have different compaction strategies; audit them in separate runs")
        return TopicRules(frozenset(compacted), *orders)

    def command(self, topic: str, partition: int, offset: int) -> str:
        """The console consumer."""
        return (f"txbroker consume --bootstrap-server {self.source.servers} --topic {topic} --partition {partition} --offset {offset} "
                "--max-messages 1 --timeout-ms 10000")

    @contextmanager
    def _reader(self, topic: str) -> Iterator[TopicReader]:
        reader = self.source.brokers.reader(topic, ISOLATION_LEVELS[self.source.isolation_level])
        try:
            yield reader
        finally:
            reader.close()
