"""Audit topics: whether what was written was delivered, to a table, a mirrored topic, a consumer group or a replica.

1. Open the delivered side, then read the offsets of the topics: ends first, so that the delivered side never has more.
2. Compare counts and sums of blocks of 65,536 offsets, in one pass over both sides.
3. Compare the unequal blocks record by record; by content and order where the sides have different offsets.
4. Explain what one side lacks: by the topic's log, and by later records of the same key. What is not explained is wrong.
5. Look up why offsets of the topic have no record, as `load` does: what is lost on both sides is found here.

The result is exact for the snapshot. If retention deletes offsets meanwhile, the audit begins again behind them, with the same ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from txbroker.console.failures import BadUsage
from txbroker.names import amount
from txbroker.spark.audit import keys
from txbroker.spark.audit.blocks import Blocks, Kept, Key, PartitionSums
from txbroker.spark.audit.differences import Comparison, Differences
from txbroker.spark.audit.group_side import GroupSide
from txbroker.spark.audit.mirror_side import MirrorSide
from txbroker.spark.audit.replica_side import DeliveredReplica, Replicas, WrittenReplica
from txbroker.spark.audit.report import WRONG, AgeBucket, AuditReport, Finding, KeyCounts, PartitionResult
from txbroker.spark.audit.sides import Delivered, Span, Written, latest_of_keys, records_of, with_ranges
from txbroker.spark.audit.table_side import TableSide
from txbroker.spark.audit.topic_side import TopicSide
from txbroker.spark.audit.upsert_side import UpsertSide
from txbroker.spark.gaps import GapCounts
from txbroker.spark.load_check import check_rows
from txbroker.spark.progress import watched
from txbroker.spark.session import check_session, shuffles_for
from txbroker.spark.snapshot import Snapshot, TopicSnapshot
from txbroker.spark.spark_failures import is_expired, spark_failures
from txbroker.spark.tables.table_folder import folder, format_of, no_table
from txbroker.spark.tables.upsert_table import is_upsert_table
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.records import INT64_MAX

ATTEMPTS = 3  # to read ranges whose first offsets expire meanwhile
EXAMPLES = 5
_NOTHING = Differences({}, {}, {})


class Since(NamedTuple):
    """The first offsets to compare on both sides, by topic and partition; partitions without one are compared from their start."""

    written: Mapping[Key, int]
    delivered: Mapping[Key, int]


@dataclass(frozen=True)
class AuditOptions:
    """The topics, and exactly one thing to compare them with: a table's folder, other topics, a group, or a replica.

    `log_dirs` and `against_log_dirs`: two replicas, by log directories as in the option `path` of `segment_source`; no broker is asked.

    `since`: only from these offsets on, or only records since this time in ms. `keys`: compare keys too. `keys_table`: the folder of a new
    table of all keys. `examples`: of each kind in each partition.
    """

    source: TopicSource
    table: str | None = None
    against: TopicSource | None = None
    group: str | None = None
    log_dirs: str | None = None
    against_log_dirs: str | None = None
    since: Since | int | None = None
    keys: bool = False
    keys_table: str | None = None
    examples: int = EXAMPLES


def audit(spark: Any, options: AuditOptions, now_ms: int, stream: TextIO | None = None) -> AuditReport:
    """Audit; progress goes to `stream`. `now_ms`: the date, from which the age of keys is counted.

    CommandFailed and ClientError for a fault; WrongData, one of these, for a log that lost its end.
    """
    check_options(options)
    check_session(spark, delta=False)
    with spark_failures():
        return _Audit(spark, options, now_ms, stream).run()


def check_options(options: AuditOptions) -> None:
    """Refuse what cannot be used, before anything starts: BadUsage, CommandFailed, ClientError. The brokers are asked last."""
    if sum(one is not None for one in (options.table, options.against, options.group, options.against_log_dirs)) != 1:
        raise BadUsage("specify one of --table, --against-topic, --group and --against-log-dir")
    if (options.log_dirs is None) is not (options.against_log_dirs is None):
        raise BadUsage("--log-dir and --against-log-dir need each other")
    for source in (options.source, options.against):
        if source is not None:
            source.check()
    if options.keys_table is not None:
        keys.check_folder(options.keys_table)
    if options.table is not None and format_of(folder(options.table)) is None:
        raise no_table(folder(options.table))
    if options.log_dirs is None:
        options.source.find()
    if options.against is not None:
        options.against.find()


class _Audit:
    """One run."""

    def __init__(self, spark: Any, options: AuditOptions, now_ms: int, stream: TextIO | None) -> None:
        self._spark = spark
        self._options = options
        self._stream = stream
        self._keep = Kept()
        self._replicas: Replicas | None = None
        self._written, self._delivered = self._sides()
        self._snapshot = self._written.snapshot()
        self._now_ms = now_ms
        self._rules = self._written.rules()
        if self._delivered.latest_by is not None:
            self._rules = self._rules._replace(order=self._delivered.latest_by)
        self._since = self._since_offsets()

    def _sides(self) -> tuple[Written, Delivered]:
        options, source = self._options, self._options.source
        if options.log_dirs is not None and options.against_log_dirs is not None:
            self._replicas = Replicas(self._spark, options.log_dirs, options.against_log_dirs, source.topics, source.include)
            return WrittenReplica(self._spark, self._replicas), DeliveredReplica(self._replicas)
        topics = TopicSide(self._spark, source)
        if options.table is not None:
            if is_upsert_table(self._spark, folder(options.table)):
                return topics, UpsertSide(self._spark, options.table, source.isolation_level)
            return topics, TableSide(self._spark, options.table)
        if options.against is not None:
            return topics, MirrorSide(self._spark, options.against)
        assert options.group is not None
        return topics, GroupSide(topics, options.group)

    def _since_offsets(self) -> Since:
        chosen = self._options.since
        if chosen is not None and self._delivered.latest_by is not None:
            raise BadUsage("--since is not possible with a table of `txbroker spark upsert`, which has only the latest record of each key; "
                           "leave it out")
        if isinstance(chosen, int):
            written = self._written.since(chosen)
            return Since(written, self._delivered.since(written, chosen))
        return chosen or Since({}, {})

    def run(self) -> AuditReport:
        """All steps, again if offsets expire meanwhile."""
        snapshot = self._snapshot
        for attempt in range(1, ATTEMPTS + 1):
            offsets = sum(one.end - one.log_start for topic in snapshot.topics for one in topic.partitions.values())
            try:
                with shuffles_for(self._spark, offsets):
                    return self._audited(snapshot)
            except Exception as error:
                if not is_expired(error) or attempt == ATTEMPTS:
                    raise
                snapshot = _with_starts_of(self._snapshot, self._written.snapshot())
                self._say("retention deleted offsets meanwhile: beginning again behind them")
            finally:
                self._keep.close()
        raise AssertionError

    def _audited(self, snapshot: Snapshot) -> AuditReport:
        spans = {key: span.since(self._since.written.get(key, 0), self._since.delivered.get(key, 0))
                 for key, span in sorted(self._delivered.spans(snapshot).items())}  # fmt: skip
        written = self._records_written(spans)
        delivered = records_of(self._spark, self._delivered, (span.delivered for span in spans.values()), self._rules.order)
        blocks = Blocks(self._keep, written, delivered)
        with watched(self._spark, sum(span.whole.size for span in spans.values()), self._stream):
            sums = blocks.partitions()
        found = self._differences(blocks, sums, spans)
        if self._replicas is not None and found.counts:
            self._replicas.check_unchanged()
        gaps = self._gaps(spans, sums)
        spans = {**spans, **found.spans}
        key_counts, ages = self._keys(written, delivered)
        results = [_result(key, span, sums.get(key, PartitionSums()), found.counts.get(key, {}), gaps.get(key), key_counts.get(key))
                   for key, span in spans.items()]  # fmt: skip
        return AuditReport(
            kind=self._delivered.kind,
            topic=self._written.name,
            delivered=self._delivered.name,
            audited_ms=self._now_ms,
            isolation_level=self._options.source.isolation_level if self._replicas is None else "read_uncommitted",
            partitions=results,
            findings=self._findings(spans, found, gaps),
            times=blocks.times(),
            ages=ages,
            keys_table=self._options.keys_table,
            not_checked=_not_checked(snapshot, self._delivered, spans) if self._replicas is None else self._replicas.not_checked(),
        )

    def _records_written(self, spans: Mapping[Key, Span]) -> Any:
        """All of the snapshot; those that were not delivered yet are `waiting`."""
        records = records_of(self._spark, self._written, (span.whole for span in spans.values()), self._rules.order)
        marked = with_ranges(self._spark, records, (span.written for span in spans.values()))
        placed = marked.selectExpr("* EXCEPT (start, end)", "offset >= end AS waiting")
        return placed if self._delivered.latest_by is None else latest_of_keys(placed, self._delivered.latest_by)

    def _differences(self, blocks: Blocks, sums: Mapping[Key, PartitionSums], spans: Mapping[Key, Span]) -> Differences:
        unequal = sum(one.unequal for one in sums.values())
        if not unequal:
            return _NOTHING
        self._say(f"{unequal:,} of {amount(sum(one.blocks for one in sums.values()), 'block')} differ: comparing their records")
        comparison = Comparison(self._spark, self._keep, self._written, self._delivered, self._rules, spans, self._replicas)
        if self._delivered.same_offsets:
            return comparison.by_offset(blocks, sums, self._options.examples)
        return comparison.by_content(sums, self._options.examples)

    def _gaps(self, spans: Mapping[Key, Span], sums: Mapping[Key, PartitionSums]) -> Mapping[Key, GapCounts]:
        """Why offsets of the topic have no record. A partition that has one at every offset costs nothing."""
        source = self._written.source
        sparse = [span.written for key, span in spans.items() if span.written.size > sums.get(key, PartitionSums()).written]
        if source is None or not sparse:
            return {}
        self._say(f"looking up why offsets of {amount(len(sparse), 'partition')} have no record")
        rows = self._written.records(sparse).select("topic", "partition", "offset")
        checked = check_rows(self._spark, rows, sparse, source.brokers, source.isolation_level)
        return {(one.range.topic, one.range.partition): one.gaps for one in checked}

    def _keys(self, written: Any, delivered: Any) -> tuple[Mapping[Key, KeyCounts], Sequence[AgeBucket]]:
        location = self._options.keys_table
        if not self._options.keys and location is None:
            return {}, []
        self._say("comparing keys")
        found = keys.compare(written, delivered, self._rules.order, self._delivered.group)
        if location is not None:
            found.write.mode("error").parquet(location)
            found = self._spark.read.parquet(location)
        return keys.summary(found, self._now_ms)

    def _findings(self, spans: Mapping[Key, Span], found: Differences, gaps: Mapping[Key, GapCounts]) -> list[Finding]:
        findings = []
        for key, span in spans.items():
            counts = {kind: count for kind, count in found.counts.get(key, {}).items() if kind in WRONG}
            gap = gaps.get(key)
            if gap is not None and gap.first_unexplained is not None:
                counts["lost"] = (gap.unexplained, gap.first_unexplained)
            if span.unread:
                counts["unread"] = (span.unread, span.written.start - span.unread)
            for kind in WRONG:
                if kind in counts:
                    count, first = counts[kind]
                    findings.append(Finding(kind, *key, count, first, found.examples.get((key, kind), ()), self._command(kind, key, first)))
        return findings

    def _command(self, kind: str, key: Key, offset: int) -> str:
        if kind == "lost":
            return f"txbroker log verify DIR/{key[0]}-{key[1]}, where DIR is the broker's log directory"
        if kind == "unread":
            return f"txbroker groups --describe --group {self._options.group}"
        return (self._written if kind == "missing" else self._delivered).command(*key, offset)

    def _say(self, sentence: str) -> None:
        if self._stream is not None:
            self._stream.write(f"{sentence}\n")
            self._stream.flush()


def _result(
    key: Key, span: Span, sums: PartitionSums, counts: Mapping[str, tuple[int, int]], gaps: GapCounts | None, keys: KeyCounts | None
) -> PartitionResult:
    """The delivered side is what level 1 counted; what was written may have been compacted further since then."""
    events = {kind: count for kind, (count, _) in sorted(counts.items())}
    result = PartitionResult(
        *key, start=span.written.start, end=span.written.end, until=span.until, equal=0,
        delivered_end=span.written.end if span.delivered.end == INT64_MAX else span.delivered.end,
        waiting=sums.waiting + events.pop("waiting", 0), written_bytes=sums.written_bytes, delivered_bytes=sums.delivered_bytes,
        events=events, gaps=gaps, keys=keys,
    )  # fmt: skip
    return result.with_delivered(sums.delivered)


def _with_starts_of(snapshot: Snapshot, later: Snapshot) -> Snapshot:
    """The ends of a snapshot with the log starts of a later one."""
    starts = {topic.name: topic.partitions for topic in later.topics}
    return snapshot._replace(topics=[_moved(topic, starts.get(topic.name, {})) for topic in snapshot.topics])


def _moved(topic: TopicSnapshot, later: Mapping[int, Any]) -> TopicSnapshot:
    partitions = {index: one._replace(log_start=min(max(one.log_start, later[index].log_start), one.end)) if index in later else one
                  for index, one in topic.partitions.items()}  # fmt: skip
    return topic._replace(partitions=partitions)


def _not_checked(snapshot: Snapshot, delivered: Delivered, spans: Mapping[Key, Span]) -> list[str]:
    """What the audit says nothing about."""
    sentences = []
    deleted = [span for span in spans.values() if span.written.start > 0]
    if deleted:
        sentences.append(f"offsets below the start of {amount(len(deleted), 'partition')}: the topic does not have them any more, "
                         "or --since left them out")
    open_ones = [one for topic in snapshot.topics for one in topic.partitions.values() if one.end < one.high_watermark]
    if open_ones:
        sentences.append(f"{amount(sum(one.high_watermark - one.end for one in open_ones), 'offset')} after open transactions "
                         f"in {amount(len(open_ones), 'partition')}")
    if delivered.latest_by is not None:
        sentences.append("records without a key, which a table of `txbroker spark upsert` cannot have")
    if delivered.kind in ("table", "upsert"):
        sentences.append("timestamp types: only the timestamps are compared")
    return sentences
