"""What a snapshot keeps of each record: enough to compare it, to find the latest one of a key, and to judge a tombstone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from typing import Any

from txbroker.client.topic_reader import READ_COMMITTED, TopicReader
from txbroker.errors import ErrorCode
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.brokers import Brokers
from txbroker.spark.checksum import CONTENT_COLUMNS
from txbroker.spark.compaction.facts import BROKER, TopicRules
from txbroker.spark.order import literal, rank
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan

ON = ("replica", "topic", "partition", "offset")
NO_HORIZON = -1
FETCH_BYTES = 1024 * 1024
SEGMENT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "replica", "segment", "position", "magic",
                   "delete_horizon", "problem")  # fmt: skip
_RANK = "STRUCT<first: BIGINT, has_version: BOOLEAN, offset: BIGINT, partition: INT>"
_HORIZON = "topic STRING, partition INT, offset BIGINT, horizon BIGINT"


def digest(records: Any, rules: Mapping[str, TopicRules], *, segments: bool) -> Any:
    """A row for each record: `ON`, key, rank (see `order`), tombstone, its hash (`checksum.CONTENT`), horizon, problem, segment, position.

    horizon: the delete horizon (ms) of the record's batch, NO_HORIZON if it has none yet, null if that is not known. `segments`: the
    records come from segment files, and have SEGMENT_COLUMNS.
    """
    by_order: dict[CompactionOrder, list[str]] = defaultdict(list)
    for topic, one in rules.items():
        by_order[one.order].append(topic)
    horizon = f"CASE WHEN magic = 2 THEN coalesce(delete_horizon, {NO_HORIZON}L) END AS horizon"
    of_source = ["replica", horizon, "problem", "segment", "position"] if segments else [
        f"'{BROKER}' AS replica", "CAST(NULL AS BIGINT) AS horizon", "CAST(NULL AS STRING) AS problem", "CAST(NULL AS STRING) AS segment",
        "CAST(NULL AS BIGINT) AS position"]  # fmt: skip
    parts = []
    for order, topics in by_order.items():
        some = records if len(by_order) == 1 else records.where(f"topic IN ({', '.join(map(literal, topics))})")
        ranked = f"CAST({rank(order)} AS {_RANK}) AS rank"
        columns = ["topic", "partition", "offset", "key", "value IS NULL AS tombstone", ranked, *CONTENT_COLUMNS, *of_source]
        parts.append(some.selectExpr(*columns))
    return reduce(lambda one, other: one.unionByName(other), parts)


def with_horizons(spark: Any, rows: Any, brokers: Brokers, path: str) -> Any:
    """Tombstones that a broker delivered, with the delete horizon of their batches, which executors ask for; written to `path`."""
    tombstones = rows.where("tombstone").select("topic", "partition", "offset")
    ordered = tombstones.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    spark.createDataFrame(ordered.rdd.mapPartitions(_Horizons(brokers)), _HORIZON).write.mode("overwrite").parquet(path)


class _Horizons:
    """Looks the batches of records up at the brokers, in ascending order."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[str, int, int, int | None]]:
        for topic, of_topic in groupby(rows, lambda row: row[0]):
            reader = self._brokers.reader(topic, READ_COMMITTED)
            try:
                for partition, some in groupby(of_topic, lambda row: row[1]):
                    yield from _horizons(reader, topic, partition, (row[2] for row in some))
            finally:
                reader.close()


def _horizons(reader: TopicReader, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[tuple[str, int, int, int | None]]:
    headers: list[EntryHeader] = []
    at = 0
    for offset in offsets:
        while at < len(headers) and headers[at].last_offset < offset:
            at += 1
        if at == len(headers):
            headers, at = _fetch(reader, partition, offset), 0
        yield topic, partition, offset, _horizon(headers[at], offset) if headers else None


def _fetch(reader: TopicReader, partition: int, offset: int) -> list[EntryHeader]:
    """The headers of batches that end with `offset` or later; none if it was deleted meanwhile."""
    found = reader.fetch(partition, offset, FETCH_BYTES)
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or not found.records:
        return []
    assert isinstance(found.records, memoryview)
    return [header for _, header in Scan(bytes(found.records)) if header.last_offset >= offset]


def _horizon(header: EntryHeader, offset: int) -> int | None:
    if not isinstance(header, BatchHeader) or header.base_offset > offset:
        return None  # an old message has none, and a record that is gone has no batch
    return NO_HORIZON if header.delete_horizon is None else header.delete_horizon
