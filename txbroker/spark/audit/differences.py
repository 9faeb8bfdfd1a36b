"""The second level of an audit: the differences in unequal blocks, each explained or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.spark.audit import by_content, by_offset
from txbroker.spark.audit.blocks import Blocks, Kept, Key, PartitionSums, in_blocks, ranges_with_unequal_blocks
from txbroker.spark.audit.by_content import Bounds
from txbroker.spark.audit.explanations import COMPACTED, cleaned_away, proved, with_reasons, without_latest
from txbroker.spark.audit.replica_side import Replicas
from txbroker.spark.audit.report import WRONG, Example
from txbroker.spark.audit.sides import Delivered, Span, TopicRules, Written, latest_of_keys, records_of
from txbroker.spark.offset_ranges import OffsetRange

NEVER = 2**62  # added to written offsets that are later than all delivered ones


class Differences(NamedTuple):
    """Events by partition and kind, with the first offset of each kind, and some examples of the wrong ones.

    `spans`: those of partitions that were compared by content, with the end of what was delivered.
    """

    counts: Mapping[Key, Mapping[str, tuple[int, int]]]
    examples: Mapping[tuple[Key, str], Sequence[Example]]
    spans: Mapping[Key, Span]


class Comparison:
    """Compares the topics of a source with what was delivered of them, over `spans`."""

    def __init__(
        self, spark: Any, keep: Kept, written: Written, delivered: Delivered, rules: TopicRules, spans: Mapping[Key, Span],
        replicas: Replicas | None,
    ) -> None:  # fmt: skip
        self._spark = spark
        self._keep = keep
        self._written = written
        self._delivered = delivered
        self._rules = rules
        self._spans = spans
        self._replicas = replicas

    def by_offset(self, blocks: Blocks, sums: Mapping[Key, PartitionSums], examples: int) -> Differences:
        """Where both sides have the same offsets: the records of unequal blocks."""
        unequal = self._keep.rows(blocks.unequal())
        written, delivered = [span.written for span in self._spans.values()], [span.delivered for span in self._spans.values()]
        latest_by = self._delivered.latest_by
        if latest_by is None:
            a = self._records(self._written, ranges_with_unequal_blocks(written, sums))
        else:  # which record is the latest is known only of all of them
            a = latest_of_keys(self._records(self._written, written).selectExpr("*", "false AS waiting"), latest_by)
        b = self._records(self._delivered, ranges_with_unequal_blocks(delivered, sums))
        events = self._keep.rows(by_offset.compare(self._keep, in_blocks(a, unequal), in_blocks(b, unequal)))
        if latest_by is not None:
            everything = self._records(self._written, written), self._records(self._delivered, delivered)
            events = self._keep.rows(without_latest(events, *everything))
        if self._replicas is not None:
            events = self._cleaned_away(events, self._replicas)
        source = self._written.source
        if source is not None and _has(events, "extra"):
            events = self._keep.rows(with_reasons(self._spark, self._keep, events, source, written))
            if _has(events, COMPACTED):
                # The later record of a key may be where both sides are equal, or not delivered yet.
                records = self._records(self._written, [span.whole for span in self._spans.values()])
                records = records.unionByName(self._records(self._delivered, delivered))
                events = proved(events, COMPACTED, records, self._rules.order, superseded="superseded", tombstone="tombstone",
                                otherwise="lost_latest")  # fmt: skip
        return self._differences(events, examples, {})

    def _cleaned_away(self, events: Any, replicas: Replicas) -> Any:
        """The events, where what a cleaner has removed from one of two replicas gets another kind."""
        for kind, files, superseded, tombstone, otherwise in (
            ("missing", replicas.delivered, "removed", "removed", "missing"),
            ("extra", replicas.written, "superseded", "tombstone", "lost_latest"),
        ):
            rows = events.where(f"kind = '{kind}'").select("topic", "partition").distinct().collect()
            spans = {key: self._spans[key] for key in map(tuple, rows) if files.offsets[key].clean_end > self._spans[key].written.start}
            if spans:
                ends = {key: files.offsets[key].clean_end for key in spans}
                # The later record of a key may be above the other side's high watermark.
                proof = [span.written._replace(end=max(span.written.end, ends[key])) for key, span in spans.items()]
                both = [span.written for span in spans.values()]
                ranges = (both, proof) if kind == "missing" else (proof, both)
                records = self._records(self._written, ranges[0]).unionByName(self._records(self._delivered, ranges[1]))
                events = self._keep.rows(cleaned_away(self._spark, events, kind, records, self._rules.order, ends, superseded=superseded,
                                                 tombstone=tombstone, otherwise=otherwise))  # fmt: skip
        return events

    def by_content(self, sums: Mapping[Key, PartitionSums], examples: int) -> Differences:
        """Where offsets differ: all records of the partitions that have unequal blocks."""
        spans = {key: span for key, span in self._spans.items() if sums.get(key, PartitionSums()).unequal}
        a = self._records(self._written, [span.written for span in spans.values()])
        b = self._records(self._delivered, [span.delivered for span in spans.values()])
        rules, delivered_rules = self._rules, self._delivered.rules(self._rules)
        events, bounds = by_content.compare(self._spark, self._keep, a, b, rules.compacted | delivered_rules.compacted)
        limits = {(one.topic, one.partition): one for one in bounds}
        events = self._keep.rows(self._without_heads(events, spans, limits, sums))
        if rules.compacted and _has(events, "extra"):
            later = events.where("kind = 'waiting'").selectExpr(
                "topic", "partition", f"offset + {NEVER}L AS offset", "timestamp_ms", "key", "deleted", "CAST(NULL AS BIGINT) AS version")
            columns = ("topic", "partition", "offset", "timestamp_ms", "key", "deleted", "version")
            events = self._proved(events, "extra", rules, b.select(*columns).unionByName(later), "superseded", "tombstone")
        if delivered_rules.compacted and _has(events, "missing"):
            seen = a.join(_waiting(events), ["topic", "partition", "offset"], "left_anti")
            events = self._proved(events, "missing", delivered_rules, seen, "removed", "removed")
        ended = {}
        for key, span in spans.items():
            found = limits.get(key)
            end = span.written.start if found is None else found.written_last + 1
            ended[key] = span._replace(written=span.written._replace(end=end))
        return self._differences(events, examples, ended)

    def _proved(self, events: Any, kind: str, rules: TopicRules, records: Any, superseded: str, tombstone: str) -> Any:
        """`explanations.proved` for the topics that are compacted."""
        from pyspark.sql import functions as f

        mine = f.col("topic").isin(sorted(rules.compacted))
        some = proved(events.where(mine), kind, records, rules.order, superseded=superseded, tombstone=tombstone, otherwise=kind)
        return self._keep.rows(some.unionByName(events.where(~mine)))

    def _without_heads(
        self, events: Any, spans: Mapping[Key, Span], limits: Mapping[Key, Bounds], sums: Mapping[Key, PartitionSums]
    ) -> Any:
        """Records before the first match are not wrong if retention deleted the other side's.

        Without a match the delivered side may have come no further than where the topic begins now: then it has at most as many records as
        the topic has deleted offsets.
        """
        from pyspark.sql import functions as f

        rows = []
        for key, span in spans.items():
            found = limits.get(key)
            deleted = span.written.start if span.written_from_start else 0
            removed = span.delivered.start if span.delivered_from_start else 0
            if found is not None:
                rows.append((*key, found.written_first if removed else -1, found.delivered_first if deleted else -1))
            elif sums[key].delivered <= deleted:
                rows.append((*key, -1, NEVER))
        if not rows:
            return events
        heads = f.broadcast(self._spark.createDataFrame(rows, "topic STRING, partition INT, written_first BIGINT, delivered_first BIGINT"))
        kind = ("CASE WHEN kind = 'missing' AND offset < written_first THEN 'removed' "
                "WHEN kind = 'extra' AND offset < delivered_first THEN 'expired' ELSE kind END")  # fmt: skip
        return events.join(heads, ["topic", "partition"], "left").withColumn("kind", f.expr(kind)).drop("written_first", "delivered_first")

    def _differences(self, events: Any, examples: int, spans: Mapping[Key, Span]) -> Differences:
        """Bring the counts and a few examples to the driver."""
        from pyspark.sql import functions as f

        counts: dict[Key, dict[str, tuple[int, int]]] = {}
        rows = events.groupBy("topic", "partition", "kind").agg(f.count("*"), f.min("offset")).collect()
        for topic, partition, kind, count, first in rows:
            counts.setdefault((topic, partition), {})[kind] = (count, first)
        found: dict[tuple[Key, str], list[Example]] = {}
        if examples and any(row[2] in WRONG for row in rows):
            number = "row_number() OVER (PARTITION BY topic, partition, kind ORDER BY offset) AS number"
            wrong = events.where(f.col("kind").isin(list(WRONG))).selectExpr(
                "topic", "partition", "kind", "offset", "other", "timestamp_ms", "key", number)  # fmt: skip
            for row in wrong.where(f"number <= {examples}").orderBy("topic", "partition", "kind", "offset").collect():
                key = None if row.key is None else bytes(row.key)
                other = None if row.other == row.offset else row.other
                found.setdefault(((row.topic, row.partition), row.kind), []).append(Example(row.offset, other, row.timestamp_ms, key))
        return Differences(counts, found, spans)

    def _records(self, side: Written | Delivered, ranges: Iterable[OffsetRange]) -> Any:
        return records_of(self._spark, side, ranges, self._rules.order)


def _has(events: Any, kind: str) -> bool:
    return not events.where(f"kind = '{kind}'").isEmpty()


def _waiting(events: Any) -> Any:
    return events.where("kind = 'waiting'").select("topic", "partition", "offset")
