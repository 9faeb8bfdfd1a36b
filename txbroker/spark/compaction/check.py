"""Whether compaction kept what it must keep: a snapshot of a topic's records before, and a comparison after.

Both steps read each partition once. The snapshot, in a folder, has a row for each record, without values. The rules of the comparison are
those of `verdicts`. With log directories the records are read from segment files, of all replicas; then the files are also compared with
their indexes, and with what the brokers deliver.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark import partition_directories, segment_source
from txbroker.spark.compaction import facts, segment_checks
from txbroker.spark.compaction.digest import SEGMENT_COLUMNS, digest, with_horizons
from txbroker.spark.compaction.facts import Part, TopicRules
from txbroker.spark.compaction.segment_checks import Difference, FileFault
from txbroker.spark.compaction.state import AFTER, HORIZONS, ROWS, Before, State
from txbroker.spark.compaction.verdicts import Kind, Verdict, Violation, bounds_of, judge
from txbroker.spark.offset_ranges import OffsetRange, WrongData
from txbroker.spark.partition_directories import Place
from txbroker.spark.progress import watched
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.topic_source import TopicSource

EXAMPLES = 5
Key = tuple[str, str, int]


@dataclass(frozen=True)
class CheckOptions:
    """`state`: the snapshot's folder. `log_dirs`: as the option `path` of `segment_source`; with it `source.servers` may be "".

    `topic_configs`: instead of those of the log directories, if there is no broker. `now_ms`: the date.
    """

    source: TopicSource
    state: str
    now_ms: Callable[[], int]
    log_dirs: str | None = None
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    examples: int = EXAMPLES


@dataclass(frozen=True)
class CheckReport:
    """`verdict`: None of a check that only took a snapshot. `damages`: ranges of segment files that are no valid batches.

    `not_compared`: partitions whose files changed while they were compared with what the broker delivers.
    """

    state: str
    before: Before
    parts: Sequence[Part]
    clean_ends: Mapping[Key, int]
    checked_ms: int
    verdict: Verdict | None = None
    faults: Sequence[FileFault] = ()
    differences: Sequence[Difference] = ()
    damages: Sequence[FileFault] = ()
    not_compared: Sequence[tuple[str, int]] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        wrong = () if self.verdict is None else self.verdict.violations
        return not (wrong or self.faults or self.differences or self.damages)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        verdict = self.verdict
        partitions = []
        for part in self.parts:
            row: dict[str, Any] = {**part._asdict(), "clean_end": self._clean_end(part), "rows_before": self.before.rows.get(part)}
            if verdict is not None:
                counts = verdict.counts.get(part[:3], {})
                row |= {"rows_before": verdict.before.get(part[:3], 0), **{kind.name.lower(): count for kind, count in counts.items()}}
            partitions.append(row)
        return {
            "ok": self.ok,
            "step": "before" if verdict is None else "after",
            "state": self.state,
            "taken_ms": self.before.taken_ms,
            "checked_ms": self.checked_ms,
            "partitions": partitions,
            "violations": [] if verdict is None else [_violation(one) for one in verdict.violations],
            "files": [one._asdict() for one in (*self.damages, *self.faults)],
            "differences": [one._asdict() for one in self.differences],
            "not_compared": [f"{topic}-{partition}" for topic, partition in self.not_compared],
        }

    def _clean_end(self, part: Part) -> int | None:
        return self.clean_ends.get(part[:3])


def _violation(one: Violation) -> dict[str, Any]:
    return {**one._asdict(), "kind": one.kind.name.lower(), "examples": [example._asdict() for example in one.examples]}


def check_before(options: CheckOptions) -> None:
    """Refuse what cannot be used, before anything starts: BadUsage, CommandFailed, ClientError. The brokers are asked last."""
    _check(options)
    State(options.state).check_free()
    _find(options)


def check_after(options: CheckOptions) -> None:
    """As `check_before`, for `after`."""
    _check(options)
    if (known := State(options.state).read()).files is not (options.log_dirs is not None):
        raise BadUsage(f"the snapshot in {options.state} was taken {'with' if known.files else 'without'} --log-dir; do the same now")
    _find(options)


def _check(options: CheckOptions) -> None:
    source = options.source
    if not source.servers and options.log_dirs is None:
        raise BadUsage("specify --bootstrap-server, --log-dir, or both")
    if source.isolation_level != "read_committed":
        raise BadUsage("the isolation level must be read_committed: the cleaner removes records of aborted transactions")
    source.check()


def _find(options: CheckOptions) -> None:
    if options.source.servers:
        options.source.find()


def before(spark: Any, options: CheckOptions, stream: TextIO | None = None) -> CheckReport:
    """Take a snapshot. BadUsage, CommandFailed, ClientError: no snapshot is there. WrongData, one of these: a segment is damaged."""
    check_before(options)
    job = _Job(spark, options, stream)
    state = State(options.state)
    state.begin()
    with spark_failures():
        return job.before(state)


def after(spark: Any, options: CheckOptions, stream: TextIO | None = None) -> CheckReport:
    """Compare with the snapshot. CommandFailed, ClientError: nothing is known, run it again."""
    check_after(options)
    job = _Job(spark, options, stream)
    state = State(options.state)
    known = state.read()
    with spark_failures():
        try:
            return job.after(state, known)
        finally:
            shutil.rmtree(state.folder / AFTER, ignore_errors=True)


@dataclass(frozen=True)
class _Now:
    """The topics and their partitions at one moment. `snapshot`: of the brokers, `places`: of the log directories, if they are used."""

    cluster_id: str
    rules: Mapping[str, TopicRules]
    parts: Sequence[Part]
    snapshot: Snapshot | None
    places: Sequence[Place]


class _Job:
    """One run."""

    def __init__(self, spark: Any, options: CheckOptions, stream: TextIO | None) -> None:
        check_session(spark, delta=False)
        self._spark = spark
        self._options = options
        self._source = options.source
        self._stream = stream

    def before(self, state: State) -> CheckReport:
        """Write the rows, the horizons and the manifest."""
        taken_ms = self._options.now_ms()
        now = self._now()
        facts.check_compacted(now.rules)
        self._write(now, state.path(ROWS))
        rows = self._spark.read.parquet(state.path(ROWS))
        damages = self._damages(rows)
        if damages:
            one = damages[0]
            raise WrongData(f"{one.path} is damaged {one.problem}; see `txbroker log verify`, and run this again after a repair")
        if not now.places:
            with_horizons(self._spark, rows, self._source.brokers, state.path(HORIZONS))
        counted = rows.groupBy("replica", "topic", "partition").count().collect()
        counts = {(row[0], row[1], row[2]): row[3] for row in counted}
        of_parts = {one: counts.get(one[:3], 0) for one in now.parts}
        found = Before(taken_ms, now.cluster_id, bool(now.places), now.rules, now.parts, of_parts, self._clean_ends(now))
        state.write(found, self._spark.version)
        return CheckReport(str(state.folder), found, now.parts, found.clean_ends, taken_ms)

    def after(self, state: State, known: Before) -> CheckReport:
        """Read everything again, then how far the cleaner has come, and compare."""
        now = self._now()
        if known.cluster_id and now.cluster_id and known.cluster_id != now.cluster_id:
            raise CommandFailed(f"the snapshot is of the cluster {known.cluster_id}, and this is {now.cluster_id}; "
                                "correct --bootstrap-server, --log-dir or --state")
        for topic in known.rules.keys() & now.rules.keys():
            facts.check_same(topic, known.rules[topic], now.rules[topic])
        listed = partition_directories.segment_sizes(now.places)
        self._write(now, state.path(AFTER))
        # Retention may have deleted what was to be read. What is below the new start is expired, whether it was read or not.
        starts = {part[:3]: part.log_start for part in self._now().parts}
        now = replace(now, parts=[part._replace(log_start=max(part.log_start, starts.get(part[:3], 0))) for part in now.parts])
        clean_ends = self._clean_ends(now)
        checked_ms = self._options.now_ms()
        rows = self._spark.read.parquet(state.path(AFTER))
        bounds = self._bounds(known, now, clean_ends)
        old = self._spark.read.parquet(state.path(ROWS))
        if not known.files:
            horizons = self._spark.read.parquet(state.path(HORIZONS))
            old = old.drop("horizon").join(horizons, ["topic", "partition", "offset"], "left")
        verdict = judge(self._spark, old, rows.where("problem IS NULL"), bounds, checked_ms, self._options.examples)
        for part, count in known.rows.items():
            there = verdict.before[part[:3]]
            if there != count:
                raise CommandFailed(f"{state.folder} has {there} rows of {part.topic}-{part.partition}, and its manifest says {count}: "
                                    "the snapshot is damaged; take a new one with --before")
        faults, differences, changed = self._compare_files(now, rows, listed) if now.places else ([], [], [])
        return CheckReport(str(state.folder), known, now.parts, clean_ends, checked_ms, verdict, faults, differences,
                           self._damages(rows), changed)

    # What there is

    def _now(self) -> _Now:
        source, options = self._source, self._options
        snapshot = source.snapshot() if source.servers else None
        places: Sequence[Place] = ()
        if options.log_dirs is not None:
            topics = source.topics if snapshot is None else [topic.name for topic in snapshot.topics]
            places = partition_directories.find_places(options.log_dirs, topics, source.include if snapshot is None else None)
        if snapshot is None:
            rules = facts.rules_of_places(places, options.topic_configs)
            cluster_id = next((place.identity["cluster.id"] for place in places if "cluster.id" in place.identity), "")
            return _Now(cluster_id, rules, facts.parts_of_places(self._spark, places), None, places)
        rules = facts.rules_of_brokers(source.brokers, {topic.name: topic.topic_id for topic in snapshot.topics})
        leaders = {(topic.name, index): one for topic in snapshot.topics for index, one in topic.partitions.items()}
        if not places:
            parts = [Part(facts.BROKER, *key, one.log_start, one.end) for key, one in sorted(leaders.items())]
            return _Now(snapshot.cluster_id, rules, parts, snapshot, places)
        parts = []
        for part in facts.parts_of_places(self._spark, places):
            leader = leaders.get((part.topic, part.partition))
            if leader is not None:  # the checkpoint of the log start offset is up to a minute old, and the log may have grown
                part = part._replace(log_start=max(part.log_start, leader.log_start), end=min(part.end, leader.end))
            parts.append(part)
        return _Now(snapshot.cluster_id, rules, parts, snapshot, places)

    def _clean_ends(self, now: _Now) -> dict[Key, int]:
        """Up to where the cleaner may have come, where that is known."""
        of_brokers: dict[tuple[str, int], int] = {}
        if now.snapshot is not None:
            numbers = {topic.name: list(topic.partitions) for topic in now.snapshot.topics}
            of_brokers = facts.clean_ends_of_brokers(self._source.brokers, numbers)
        if not now.places:
            return {(facts.BROKER, *key): end for key, end in of_brokers.items()}
        return {key: max(end, of_brokers.get(key[1:], 0)) for key, end in partition_directories.clean_ends_of_places(now.places).items()}

    def _bounds(self, known: Before, now: _Now, clean_ends: Mapping[Key, int]) -> list[Any]:
        parts = {part[:3]: part for part in now.parts}
        found = []
        for part in known.parts:
            current = parts.get(part[:3])
            if current is None or part.topic not in now.rules:
                where = f" in {part.replica}" if part.replica else ""
                raise WrongData(f"{part.topic}-{part.partition} is in the snapshot, and is not there now{where}; look at the brokers' logs")
            old, new = known.rules[part.topic], now.rules[part.topic]
            horizon = known.taken_ms + min(old.delete_retention_ms, new.delete_retention_ms)
            expires = "delete" in (*old.policies, *new.policies)
            end = clean_ends.get(part[:3], facts.NOT_KNOWN)
            found.append(bounds_of(part, current, clean_end=end, expires=expires, horizon=horizon))
        return found

    # Reading

    def _write(self, now: _Now, path: str) -> None:
        """The digest of all partitions."""
        total = sum(part.end - part.log_start for part in now.parts)
        records = self._segments(now) if now.places else self._delivered(now.parts)
        with watched(self._spark, total, self._stream):
            digest(records, now.rules, segments=bool(now.places)).write.mode("overwrite").parquet(path)

    def _delivered(self, parts: Sequence[Part]) -> Any:
        ranges = [OffsetRange(*part[1:]) for part in parts if part.log_start < part.end]
        if ranges:
            return self._source.records(self._spark, ranges)
        from txbroker.spark.kafka_source import SCHEMA

        return self._spark.createDataFrame([], SCHEMA)

    def _segments(self, now: _Now) -> Any:
        """The records of all segments, below the ends."""
        ranges: dict[str, dict[str, list[int]]] = {}
        for part in now.parts:
            start, end = ranges.setdefault(part.topic, {}).setdefault(str(part.partition), [part.log_start, part.end])
            ranges[part.topic][str(part.partition)] = [min(start, part.log_start), max(end, part.end)]
        frame = segment_source.read(self._spark, self._options.log_dirs or "", ranges, columns=SEGMENT_COLUMNS, damage="report")
        schema = "replica STRING, topic STRING, partition INT, low BIGINT, high BIGINT"
        bounds = self._spark.createDataFrame([tuple(part) for part in now.parts], schema).hint("broadcast")
        return frame.join(bounds, ["replica", "topic", "partition"]).where("problem IS NOT NULL OR (offset >= low AND offset < high)")

    def _damages(self, rows: Any) -> list[FileFault]:
        """Ranges of the segment files that could not be read."""
        found = rows.where("problem IS NOT NULL").orderBy("replica", "topic", "partition", "segment", "position").limit(1000)
        return [FileFault(row.replica, row.topic, row.partition, row.segment, f"at position {row.position}: {row.problem}")
                for row in found.select("replica", "topic", "partition", "segment", "position", "problem").collect()]

    # Files

    def _compare_files(
        self, now: _Now, rows: Any, listed: Mapping[str, Mapping[str, int]]
    ) -> tuple[list[FileFault], list[Difference], list[tuple[str, int]]]:
        """The faults of the files, what the broker delivers otherwise, and partitions that changed since `listed`."""
        faults = segment_checks.check_files(self._spark, now.places, self._options.examples)
        if now.snapshot is None:
            return faults, [], []
        replica_of = self._leading(now)
        parts = [part for part in now.parts if replica_of.get((part.topic, part.partition)) == part.replica]
        delivered = digest(self._delivered(parts), now.rules, segments=False)
        found = segment_checks.compare(rows.where("problem IS NULL"), delivered, replica_of)
        sizes = partition_directories.segment_sizes(now.places)
        changed = {(place.topic, place.partition) for place in now.places
                   if not partition_directories.has_only_grown(listed[place.path], sizes[place.path])}
        return faults, [one for one in found if one[1:3] not in changed], sorted(changed)

    def _leading(self, now: _Now) -> dict[tuple[str, int], str]:
        """The replica of the broker that delivers a partition: the only one there is, or the one with the leader's id."""
        of: dict[tuple[str, int], list[Place]] = {}
        for place in now.places:
            of.setdefault((place.topic, place.partition), []).append(place)
        several = {topic for (topic, _), places in of.items() if len(places) > 1}
        leaders = facts.leaders_of(self._source.brokers, several)
        found = {}
        for key, places in of.items():
            ids = (str(leaders.get(key)),)
            chosen = places if len(places) == 1 else [
                place for place in places if {place.identity.get("broker.id"), place.identity.get("node.id")}.intersection(ids)]
            if chosen:
                found[key] = chosen[0].replica
        return found


def unchecked(report: CheckReport) -> int:
    """How many removed tombstones have an unknown delete horizon."""
    if report.verdict is None:
        return 0
    return sum(counts.get(Kind.NOT_CHECKED, 0) for counts in report.verdict.counts.values())
