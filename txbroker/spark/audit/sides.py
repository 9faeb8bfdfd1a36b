"""The two sides of an audit: where records were written, and where they were delivered. Both give DataFrames of the same columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.audit.blocks import Key
from txbroker.spark.checksum import BYTES_COLUMN, CONTENT_COLUMNS, PLACED_COLUMNS
from txbroker.spark.kafka_source import SCHEMA
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.order import rank, version
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.topic_source import TopicSource

SPAN_SCHEMA = "topic STRING, partition INT, start BIGINT, end BIGINT"


def prepared(records: Any, order: CompactionOrder) -> Any:
    """A DataFrame of `kafka_source.SCHEMA` as the audit compares it: values and headers are replaced by hashes."""
    columns = ("topic", "partition", "offset", "timestamp_ms", "key", "value IS NULL AS deleted", f"{version(order)} AS version")
    return records.selectExpr(*columns, BYTES_COLUMN, *CONTENT_COLUMNS).selectExpr("*", *PLACED_COLUMNS)


def inside(spark: Any, records: Any, ranges: Iterable[OffsetRange]) -> Any:
    """The records of these ranges, at most one a partition."""
    return with_ranges(spark, records, ranges).where("offset >= start AND offset < end").drop("start", "end")


def records_of(spark: Any, side: Written | Delivered, ranges: Iterable[OffsetRange], order: CompactionOrder) -> Any:
    """A side's records in these ranges, `prepared`."""
    some = [one for one in ranges if one.size > 0]
    return prepared(side.records(some) if some else spark.createDataFrame([], SCHEMA), order)


def with_ranges(spark: Any, records: Any, ranges: Iterable[OffsetRange]) -> Any:
    """The records of the partitions of these ranges, at most one a partition, with the range in the columns start and end."""
    from pyspark.sql import functions as f

    return records.join(f.broadcast(spark.createDataFrame([tuple(one) for one in ranges], SPAN_SCHEMA)), ["topic", "partition"])


def latest_of_keys(records: Any, order: CompactionOrder) -> Any:
    """Of a DataFrame of `prepared` records, with the column `waiting`: the latest of each key that are not waiting, and those that are."""
    from pyspark.sql import functions as f

    rest = [name for name in records.columns if name not in ("topic", "key")]
    latest = f.expr(f"max_by(struct({', '.join(rest)}), {rank(order, version_column='version')})").alias("latest")
    due = records.where("NOT waiting AND key IS NOT NULL").groupBy("topic", "key").agg(latest)
    return due.selectExpr("topic", "key", "latest.*").unionByName(records.where("waiting"))


class TopicRules(NamedTuple):
    """Of the audited topics: which are compacted, and which record of a key is the latest in them."""

    compacted: frozenset[str]
    order: CompactionOrder


class Written(Protocol):
    """Where records were written."""

    name: str

    @property
    def source(self) -> TopicSource | None:
        """The topics, if their logs can be asked why offsets have no record."""

    def snapshot(self) -> Snapshot:
        """The offsets now."""

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """A DataFrame of `kafka_source.SCHEMA` with the records in these ranges, of which none is empty."""

    def since(self, timestamp_ms: int) -> Mapping[Key, int]:
        """The offset of each partition's first record with this timestamp or a later one; its end if there is none."""

    def rules(self) -> TopicRules:
        """Which topics are compacted and how; CommandFailed if their strategies differ."""

    def command(self, topic: str, partition: int, offset: int) -> str:
        """What shows a record: a command."""


class Delivered(Protocol):
    """What the topics are compared with. It is opened before their offsets are read, so that it never has more than they have.

    `kind`: table, upsert (a table of `upsert`), mirror, group or replica. `same_offsets`: a record has the same offset on both sides.
    """

    kind: str
    name: str
    same_offsets: bool

    @property
    def latest_by(self) -> CompactionOrder | None:
        """The order by which only the latest record of each key is delivered; None if every record is."""

    @property
    def group(self) -> str | None:
        """The name of the consumer group, if it is one."""

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """What is compared of each partition of the topics. CommandFailed if it belongs to other topics; WrongData."""

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """A DataFrame of `kafka_source.SCHEMA` with its records in these ranges, of which none is empty."""

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """The offsets on this side from which on records have this timestamp. `written`: those of the topics. ClientError."""

    def rules(self, written: TopicRules) -> TopicRules:
        """Which of its topics are compacted themselves, by the names of the written side."""

    def command(self, topic: str, partition: int, offset: int) -> str:
        """What shows one of its records: a command, or SQL."""


class Span(NamedTuple):
    """What is compared of a partition: `written` and `delivered` offsets, each [start, end). Up to `until` it was written.

    `unread`: offsets before `written` that were deleted before they were delivered. `written_from_start` and `delivered_from_start`:
    whether these begin where the log does, and not later because of --since.
    """

    written: OffsetRange
    until: int
    delivered: OffsetRange
    unread: int = 0
    written_from_start: bool = True
    delivered_from_start: bool = True

    @property
    def whole(self) -> OffsetRange:
        """The written offsets with those that are not delivered yet."""
        return self.written._replace(end=self.until)

    def since(self, written: int, delivered: int) -> Span:
        """From these offsets on."""
        sides = _later(self.written, written), _later(self.delivered, delivered)
        from_start = (now.start == before.start for now, before in zip(sides, (self.written, self.delivered), strict=True))
        return Span(sides[0], self.until, sides[1], self.unread, *from_start)


def _later(one: OffsetRange, start: int) -> OffsetRange:
    return one._replace(start=min(max(one.start, start), one.end))
