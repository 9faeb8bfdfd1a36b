"""Replay a topic, or a table of `load`, into a topic: key, value, headers, timestamps, and the order in each partition.

1. Read the offsets of the source, and what the target is. Refuse a target that would change or drop the records.
2. Read how far this replay has come in each partition of the target (`replay_progress`), or begin it.
3. Read what is missing, sort it, and write it with txbroker's own client, a task for each partition of the target. Spark's sink has no
   timestamps.

The target has the only state: a task or a run that is killed at any point is continued where it was, and no record is lost or doubled.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from txbroker.client.topic_reader import READ_COMMITTED
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.names import amount
from txbroker.spark.brokers import Brokers
from txbroker.spark.key_partitioners import PARTITIONERS, explained
from txbroker.spark.loaded_table import LoadedTable
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.partition_writer import Target
from txbroker.spark.progress import watched
from txbroker.spark.replay_progress import Positions, ReplayProgress
from txbroker.spark.replay_target import BYTES, TargetTopic, begin, check_takes, describe_target
from txbroker.spark.replay_tasks import RECORD, Assign, Gap, Pace, WriteRecords, finish_without_records
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot, TopicSnapshot
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.compression import Codec

SOURCE, AUTO = "source", "auto"
SAMPLED_KEYS = 1000
SAMPLED_OFFSETS = 100
BATCH_BYTES, BATCH_RECORDS = 512 * 1024, 10_000
STEPS = ("planned", "begun", "written")


class Span(NamedTuple):
    """Offsets of a source partition; `end` None: up to its end at the start of the run."""

    start: int
    end: int | None


@dataclass(frozen=True)
class ReplayOptions:
    """The source of one topic, and the target.

    `id`: names the replay; a run with the same id continues it. `spans`: only these offsets, by partition. `since_ms`, `until_ms`: from the
    first record with a timestamp of `since_ms` or later, to the first one of `until_ms` or later. `speed`: None as fast as possible, 1 as
    it was. `max_gap_ms`: of times without records, leave out what is longer.
    """

    source: TopicSource | LoadedTable
    brokers: Brokers
    topic: str
    id: str | None = None
    spans: Mapping[int, Span] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    speed: float | None = None
    max_gap_ms: int | None = None
    partitioner: str = SOURCE
    codec: Codec = Codec.NONE
    ignore_retention: bool = False
    batch_bytes: int = BATCH_BYTES
    batch_records: int = BATCH_RECORDS


@dataclass(frozen=True)
class ReplayReport:
    """`ranges`: what was read. `written`: by target partition, the records that this run wrote; others were written before.

    `explained`: of the sampled keys, how many each function explains, with --partitioner auto.
    """

    id: str
    group: str
    source: str
    target: str
    partitioner: str
    explained: Mapping[str, int]
    sampled: int
    ranges: Sequence[OffsetRange]
    written: Mapping[int, int]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "id": self.id, "group": self.group, "source": self.source, "target": self.target, "partitioner": self.partitioner,
            "explained": dict(self.explained), "sampled": self.sampled, "ranges": [one._asdict() for one in self.ranges],
            "written": [{"partition": index, "records": count} for index, count in sorted(self.written.items())],
        }  # fmt: skip


def replay(
    spark: Any, options: ReplayOptions, stream: TextIO | None = None, on_step: Callable[[str], None] = lambda step: None
) -> ReplayReport:
    """Write what the target does not have yet. Progress goes to `stream`; `on_step` is called after each of `STEPS`.

    CommandFailed and ClientError: run it again with the same id when the reason is gone.
    """
    check_options(options)
    check_session(spark, delta=isinstance(options.source, LoadedTable))
    with spark_failures():
        return _Replay(spark, options, stream, on_step).run()


def check_options(options: ReplayOptions) -> None:
    """Refuse what cannot be used, before anything starts: BadUsage, CommandFailed, ClientError. The brokers are asked last."""
    if isinstance(options.source, TopicSource):
        options.source.check()
    if options.max_gap_ms is not None and options.speed is None:
        raise BadUsage("--max-gap needs --speed")
    options.source.find()
    describe_target(options.brokers, options.topic)


class _Replay:
    """One run."""

    def __init__(self, spark: Any, options: ReplayOptions, stream: TextIO | None, on_step: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._stream = stream
        self._on_step = on_step
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.adaptive.enabled", "false")  # a task for each partition of the target, and not fewer

    def run(self) -> ReplayReport:
        """The steps."""
        options = self._options
        snapshot = self._snapshot()
        (topic,) = snapshot.topics
        target = describe_target(options.brokers, options.topic)
        if target.topic_id == topic.topic_id:
            raise CommandFailed(f"{target.name} is the source itself; specify another target")
        ranges = self._ranges(topic)
        function, counts, sampled = self._partitioner(topic, ranges, target)
        name = options.id or f"{topic.name}-{target.name}"
        group = f"txbroker-replay-{name}"
        starts = _starts(ranges, target, function)
        self._check(ranges, target)
        tasks = len(starts)
        if options.speed is not None and tasks > self._spark.sparkContext.defaultParallelism:
            raise CommandFailed(f"--speed needs {tasks} tasks at the same time, one for each partition of the target, and the master has "
                                f"{self._spark.sparkContext.defaultParallelism}; use a larger --master, or --speed max")
        self._on_step("planned")
        begun = begin(options.brokers, target, group, self._identities(snapshot, target, function), starts)
        self._on_step("begun")
        left = _left(ranges, begun, topic, function)
        written: dict[int, int] = {}
        if left:
            with watched(self._spark, sum(one.size for one in left), self._stream):
                written = self._write(left, target, group, function)
            self._on_step("written")
        return ReplayReport(name, group, topic.name, target.name, function, counts, sampled, left, written)

    def _identities(self, snapshot: Snapshot, target: TargetTopic, function: str) -> dict[int, str]:
        """By target partition, what may not change while a replay continues: the source, the partitions, the start. Its end may move."""
        (topic,) = snapshot.topics
        whole = f"{snapshot.cluster_id}/{topic.topic_id}/{function}" + ("" if function == SOURCE else f"/{len(target.partitions)}")
        if self._options.since_ms is not None:
            whole += f"/since {self._options.since_ms}"
        if self._options.spans is None:
            return dict.fromkeys(target.partitions, whole)
        starts = {index: span.start for index, span in self._options.spans.items()}
        if function == SOURCE:
            return {index: f"{whole}/from {start}" for index, start in starts.items()}
        digest = hashlib.sha256(repr(sorted(starts.items())).encode()).hexdigest()[:16]  # there may be a thousand partitions
        return dict.fromkeys(target.partitions, f"{whole}/from {digest}")

    # --- what is replayed ---

    def _snapshot(self) -> Snapshot:
        source = self._options.source
        snapshot = source.snapshot(self._spark) if isinstance(source, LoadedTable) else source.snapshot()
        if len(snapshot.topics) != 1:
            names = ", ".join(one.name for one in snapshot.topics)
            raise BadUsage(f"one topic is replayed into another, and these are {names}; specify one")
        return snapshot

    def _ranges(self, topic: TopicSnapshot) -> list[OffsetRange]:
        """What is to be replayed in all, by the options; CommandFailed, BadUsage."""
        options = self._options
        unknown = sorted((options.spans or {}).keys() - topic.partitions.keys())
        if unknown:
            raise BadUsage(f"{topic.name} has no partition {unknown[0]}; correct --range")
        found = []
        for index, there in sorted(topic.partitions.items()):
            span = Span(there.log_start, None) if options.spans is None else options.spans.get(index)
            if span is None:
                continue
            if span.start < there.log_start:
                raise CommandFailed(f"{topic.name}-{index} begins at offset {there.log_start}: offsets from {span.start} on were deleted; "
                                    "correct --range")
            end = there.end if span.end is None else min(span.end, there.end)
            found.append(OffsetRange(topic.name, index, span.start, max(span.start, end)))
        if options.since_ms is not None:
            first = self._first_since(found, options.since_ms)
            found = [one._replace(start=first.get(one.partition, one.end)) for one in found]
        if options.until_ms is not None:
            first = self._first_since(found, options.until_ms)
            found = [one._replace(end=first.get(one.partition, one.end)) for one in found]
        return found

    def _first_since(self, ranges: Sequence[OffsetRange], timestamp: int) -> dict[int, int]:
        """By partition, the offset of the first record in its range with this timestamp or a later one."""
        some = [one for one in ranges if one.size]
        if not some:
            return {}
        source = self._options.source
        if isinstance(source, TopicSource):
            reader = source.brokers.reader(some[0].topic, READ_COMMITTED)
            try:
                return {one.partition: min(max(reader.offset_since(one.partition, timestamp), one.start), one.end) for one in some}
            finally:
                reader.close()
        rows = source.records(self._session, some).where(f"timestamp_ms >= {timestamp}")
        return dict(map(tuple, rows.groupBy("partition").agg({"offset": "min"}).collect()))

    # --- where it goes ---

    def _partitioner(
        self, topic: TopicSnapshot, ranges: Sequence[OffsetRange], target: TargetTopic
    ) -> tuple[str, Mapping[str, int], int]:
        """The function that gives a record its partition; of the sampled keys, how many each explains, and their number."""
        wanted = self._options.partitioner
        if wanted == SOURCE:
            missing = sorted({one.partition for one in ranges} - set(target.partitions))
            if missing:
                raise CommandFailed(f"{target.name} has no partition {missing[0]}, which {topic.name} has; add partitions, or specify "
                                    "--partitioner auto, which gives each record the partition of its key")
            return SOURCE, {}, 0
        if wanted != AUTO:
            return wanted, {}, 0
        some = [one for one in ranges if one.size]
        keys = self._sample(some) if some else []
        counts = explained(keys, len(topic.partitions))
        best = max(PARTITIONERS, key=lambda name: counts[name])
        if not keys or counts[best] < len(keys):
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise CommandFailed(f"no known function explains the partitions of {amount(len(keys), 'sampled key')} of {topic.name} in "
                                f"{amount(len(topic.partitions), 'partition')} ({shown}); give {target.name} as many partitions, and "
                                "specify --partitioner source, or choose a function")
        return best, counts, len(keys)

    def _sample(self, ranges: Sequence[OffsetRange]) -> list[tuple[bytes, int]]:
        """Some keys with their partitions."""
        rows = self._options.source.records(self._session, ranges).where("key IS NOT NULL").select("key", "partition")
        rows = rows.limit(10 * SAMPLED_KEYS).dropDuplicates(["key"]).limit(SAMPLED_KEYS)
        return [(bytes(row[0]), int(row[1])) for row in rows.collect()]

    def _check(self, ranges: Sequence[OffsetRange], target: TargetTopic) -> None:
        """Whether the target takes the records, by the first ones of each partition."""
        from pyspark.sql import functions as f

        some = [one._replace(end=min(one.end, one.start + SAMPLED_OFFSETS)) for one in ranges if one.size]
        if not some:
            return
        times = self._options.source.records(self._session, some).agg(f.min("timestamp_ms"), f.max("timestamp_ms")).collect()[0]
        if times[0] is not None:
            now_ms = self._spark._jvm.java.lang.System.currentTimeMillis()
            check_takes(target, times[0], times[1], now_ms, ignore_retention=self._options.ignore_retention)

    # --- writing ---

    def _write(self, ranges: Sequence[OffsetRange], target: TargetTopic, group: str, function: str) -> dict[int, int]:
        """Read, sort and write; the records that were written, by target partition."""
        from pyspark.sql import functions as f

        options = self._options
        pace = self._pace(ranges)
        rows = options.source.records(self._session, ranges)
        targets: Sequence[int] = sorted({one.partition for one in ranges}) if function == SOURCE else target.partitions
        order = ["target", "partition", "offset"]
        if function == SOURCE:
            rows = rows.selectExpr(*RECORD, "partition AS target")
        else:
            # Several partitions are merged by time; the largest timestamp so far keeps the order of each.
            rows = rows.selectExpr(*RECORD, "max(timestamp_ms) OVER (PARTITION BY partition ORDER BY offset) AS time")
            rows = rows.withColumn("target", f.udf(Assign(function, len(targets)), "int")("key", "partition"))
            order.insert(1, "time")
        slots = self._slots(len(targets))
        slot = f"map_from_arrays(array({', '.join(map(str, targets))}), array({', '.join(map(str, slots))}))[target]"
        rows = rows.selectExpr("*", f"{slot} AS slot").repartition(len(targets), "slot").sortWithinPartitions(*order)
        most = target.number(BYTES)
        bytes_max = options.batch_bytes if most is None else min(options.batch_bytes, most - most // 10)
        place = Target(options.brokers, target.name, group, bytes_max, options.batch_records, options.codec)
        every = {one.partition: one.end for one in ranges}
        ends = {index: {index: every[index]} if function == SOURCE else every for index in targets}
        try:
            tasks = rows.rdd if pace is None else rows.rdd.barrier()
            found: dict[int, int] = dict(tasks.mapPartitions(WriteRecords(place, ends, pace)).collect())
        except Exception as error:
            stopped = re.search(r"ReplayStopped: (.+)", str(error))
            if stopped is None:
                raise
            raise CommandFailed(stopped[1]) from error
        for index in sorted(set(targets) - found.keys()):
            finish_without_records(place, index, ends[index])
        return found

    def _pace(self, ranges: Sequence[OffsetRange]) -> Pace | None:
        options = self._options
        if options.speed is None:
            return None
        return Pace(options.speed, () if options.max_gap_ms is None else self._gaps(ranges, options.max_gap_ms))

    def _gaps(self, ranges: Sequence[OffsetRange], gap_max_ms: int) -> list[Gap]:
        """The times without records that are longer. Records less than the limit apart are first reduced to one row."""
        from pyspark.sql import functions as f

        rows = self._options.source.records(self._session, ranges).selectExpr("timestamp_ms", f"timestamp_ms DIV {gap_max_ms} AS part")
        parts = rows.groupBy("part").agg(f.min("timestamp_ms").alias("first"), f.max("timestamp_ms").alias("last"))
        found = parts.selectExpr("first", "lag(last) OVER (ORDER BY part) AS before").where(f"first - before > {gap_max_ms}")
        return [Gap(row.first, row.first - row.before - gap_max_ms) for row in found.orderBy("first").collect()]

    def _slots(self, count: int) -> list[int]:
        """Numbers that `repartition` gives to task 0, 1 and so on: it goes by a hash, and each task is to have one target partition."""
        ids = self._session.range(64 * count + 64).selectExpr("CAST(id AS INT) AS id")
        rows = ids.selectExpr("id", f"pmod(hash(id), {count}) AS task").groupBy("task").agg({"id": "min"}).collect()
        found = dict(map(tuple, rows))
        return [found[task] for task in range(count)]


def _starts(ranges: Sequence[OffsetRange], target: TargetTopic, function: str) -> dict[int, Positions]:
    """By target partition, where the source begins."""
    if function == SOURCE:
        return {one.partition: {one.partition: one.start} for one in ranges}
    every = {one.partition: one.start for one in ranges}
    return dict.fromkeys(target.partitions, every)


def _left(
    ranges: Sequence[OffsetRange], begun: Mapping[int, ReplayProgress], topic: TopicSnapshot, function: str
) -> list[OffsetRange]:
    """What is not in the target yet; perhaps more, at the start of each. CommandFailed for offsets that are gone."""
    left = []
    for one in ranges:
        fed = [begun[one.partition]] if function == SOURCE else list(begun.values())
        start = min(progress.before.get(one.partition, one.start) for progress in fed)
        log_start = topic.partitions[one.partition].log_start
        if start < log_start:
            raise CommandFailed(
                f"{topic.name}-{one.partition} begins at {log_start}, and was replayed up to offset {start}: what is between was "
                "deleted before; replay from a table of `txbroker spark load`, or begin again with another --id and another target"
            )
        start = max(start, one.start)  # the first record of --since may have been written after this replay began
        if start < one.end:
            left.append(one._replace(start=start))
    return left
