"""Why one side has a record that the other one does not have: what is lawful needs proof, everything else is wrong.

Of records that only the delivered side has:

- expired: the offset is below the log start of the topic now.
- aborted: it is in a batch of an aborted transaction.
- superseded: the topic is compacted, the cleaner has come that far, and there is a later record of this key.
- tombstone: the same, and it is the latest record of its key, but its value is null: the cleaner removes tombstones after a time.
- lost_latest: the same, but it has a value. Compaction must keep the latest record of a key. Wrong.
- lost: the topic has no record at the offset, and none of these reasons. Wrong.

Of records that only the written side has, where the delivered side is compacted itself: `removed`, with the same proof.

Of replicas neither side's log is asked: a cleaner has come as far as its checkpoint says, and only records below that are proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.audit.blocks import Kept, Key
from txbroker.spark.audit.sides import inside
from txbroker.spark.brokers import Brokers
from txbroker.spark.gaps import Reason, reasons
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.order import rank
from txbroker.spark.topic_source import TopicSource

COMPACTED = "compacted"  # by the look of the log; not proved yet
TASKS_MAX = 64
_KINDS = {Reason.EXPIRED: "expired", Reason.ABORTED: "aborted", Reason.COMPACTED: COMPACTED, Reason.UNEXPLAINED: "lost",
          Reason.CONTROL: "extra"}  # fmt: skip
_SCHEMA = "topic STRING, partition INT, offset BIGINT, reason STRING"


def with_reasons(spark: Any, keep: Kept, events: Any, source: TopicSource, ranges: Sequence[OffsetRange]) -> Any:
    """The events, with another kind for `extra` ones where the topic's log says why it has no record at the offset.

    `ranges`: the offsets that were compared. What is beyond them remains extra.
    """
    extra = inside(spark, events.where("kind = 'extra' AND NOT shared").select("topic", "partition", "offset"), ranges).distinct()
    ordered = extra.repartition(min(len(ranges), TASKS_MAX), "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    found = ordered.rdd.mapPartitions(_Reasons(source.brokers, source.isolation_level))
    known = events.join(keep.rows(spark.createDataFrame(found, _SCHEMA)), ["topic", "partition", "offset"], "left")
    return _replaced(known, "kind = 'extra' AND NOT shared AND reason IS NOT NULL", "reason").drop("reason")


class _Reasons:
    """Asks the topic's leaders, on an executor."""

    def __init__(self, brokers: Brokers, isolation_level: str) -> None:
        self._brokers = brokers
        self._isolation_level = isolation_level

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[str, int, int, str]]:
        for reason, part in reasons(self._brokers, self._isolation_level, _runs(rows)):
            for offset in range(part.start, part.end):
                yield part.topic, part.partition, offset, _KINDS[reason]


def _runs(rows: Iterable[Any]) -> Iterator[OffsetRange]:
    """Topic, partition and offset of rows in order, as ranges: a batch is decoded once for each."""
    run: OffsetRange | None = None
    for topic, partition, offset in rows:
        if run is not None and (topic, partition, offset) == (run.topic, run.partition, run.end):
            run = run._replace(end=offset + 1)
            continue
        if run is not None:
            yield run
        run = OffsetRange(topic, partition, offset, offset + 1)
    if run is not None:
        yield run


def proved(events: Any, kind: str, records: Any, order: CompactionOrder, *, superseded: str, tombstone: str, otherwise: str) -> Any:
    """The events, where those of a kind get another one: by whether `records` have a later record of the key, or they are tombstones.

    `records` include the events' own. A record without a key is never kept by compaction: it counts as superseded.
    """
    from pyspark.sql import functions as f

    latest = records.where("key IS NOT NULL").groupBy("topic", "partition", "key").agg(
        f.expr(f"max_by(offset, {rank(order, version_column='version')})").alias("latest"))  # fmt: skip
    known = events.join(latest, ["topic", "partition", "key"], "left")
    proof = (f"CASE WHEN key IS NULL OR latest != offset THEN '{superseded}' WHEN deleted AND latest IS NOT NULL THEN '{tombstone}' "
             f"ELSE '{otherwise}' END")  # fmt: skip
    return _replaced(known, f"kind = '{kind}'", proof).drop("latest")


def cleaned_away(
    spark: Any, events: Any, kind: str, records: Any, order: CompactionOrder, ends: Mapping[Key, int], *, superseded: str, tombstone: str,
    otherwise: str,
) -> Any:  # fmt: skip
    """`proved` for what a cleaner can have removed that has come to `ends`: by records below these offsets, for events below them."""
    from pyspark.sql import functions as f

    limits = [OffsetRange(*key, 0, end) for key, end in ends.items()]
    frame = spark.createDataFrame([(one.topic, one.partition, one.end) for one in limits], "topic STRING, partition INT, clean_end BIGINT")
    limited = events.join(f.broadcast(frame), ["topic", "partition"], "left")
    below = f"kind = '{kind}' AND NOT shared AND offset < coalesce(clean_end, 0)"
    mine, others = (limited.where(condition).drop("clean_end") for condition in (below, f"NOT ({below})"))
    known = inside(spark, records, limits)
    return others.unionByName(proved(mine, kind, known, order, superseded=superseded, tombstone=tombstone, otherwise=otherwise))


def without_latest(events: Any, written: Any, delivered: Any) -> Any:
    """The events of a table with the latest record of each key, before `with_reasons`.

    stale: the topic has this record, and a later one of the key; if it has another record there, the row is `extra`. removed: the table
    has no row of a key that was deleted, as after a purge.
    """
    place = ["topic", "partition", "offset"]
    there = written.selectExpr(*place, "content_0 AS a_0", "content_1 AS a_1").join(delivered, place)
    same = there.groupBy(*place).agg(_expr("bool_or(a_0 = content_0 AND a_1 = content_1) AS same"))
    rows = delivered.select("topic", "key").distinct().selectExpr("topic", "key", "true AS has_row")
    known = events.join(same, place, "left").join(rows, ["topic", "key"], "left")
    kind = ("CASE WHEN kind = 'extra' AND NOT shared AND same THEN 'stale' "
            "WHEN kind = 'missing' AND deleted AND has_row IS NULL THEN 'removed' ELSE kind END")  # fmt: skip
    return known.withColumns({"kind": _expr(kind), "shared": _expr("shared OR same IS NOT NULL")}).drop("same", "has_row")


def _expr(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)


def _replaced(events: Any, condition: str, kind: str) -> Any:
    return events.withColumn("kind", _expr(f"CASE WHEN {condition} THEN {kind} ELSE kind END"))
