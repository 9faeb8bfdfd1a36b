"""Load topics into a table, each record exactly once.

1. Read what the table has, and the offsets of the topics. Refuse what does not belong together.
2. Read the ranges that the table lacks, and append them. The commit has the ranges, the cluster id and the topic ids. A new table is
   created only if it can have the columns.
3. Check the rows of the commit against its ranges, and commit the result.
4. Commit the end offsets to a group, if one is given.

The table is the only state. A run that is killed before the commit leaves files that no reader sees; the next run reads the same ranges
again. A run that is killed after it leaves a commit that is not checked; the next run checks it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from txbroker.console.failures import CommandFailed
from txbroker.names import TopicPartition
from txbroker.spark.decoding.decoding import NOT_DECODED, Decoding
from txbroker.spark.group_offsets import GroupCommit, advance, check_group
from txbroker.spark.load_check import CheckedRange, check_rows
from txbroker.spark.offset_ranges import OffsetRange, Plan, TableOffsets, plan
from txbroker.spark.progress import watched
from txbroker.spark.rebase import check_same_records, rebased
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot, take
from txbroker.spark.spark_failures import failure, is_expired, spark_failures
from txbroker.spark.tables.columns import aligned, widened
from txbroker.spark.tables.load_commit import LoadCommit
from txbroker.spark.tables.opening import open_table
from txbroker.spark.tables.table import Loaded, Table
from txbroker.spark.tables.table_folder import DELTA, folder, format_of, locked
from txbroker.spark.topic_source import TopicSource

ATTEMPTS = 3  # to read ranges whose first offsets expire meanwhile
STEPS = ("locked", "planned", "created", "committed", "checked", "followed")


@dataclass(frozen=True)
class LoadOptions:
    """What to load, and the table's folder. `skip_expired`: go on without offsets that were deleted before they were loaded.

    `group`: a consumer group whose committed offsets follow the table. `format`: `delta` or `parquet`; by default that of the table, and
    for a new one Delta if the session has it. `compact`: rewrite small files after the load if there are so many.
    `decoding`: of values, into columns beside the raw ones. `rebase`: continue although the cluster or a topic has another id.
    """

    source: TopicSource
    table: str
    skip_expired: bool = False
    group: str | None = None
    format: str | None = None
    decoding: Decoding = NOT_DECODED
    compact: int | None = None
    rebase: bool = False


@dataclass(frozen=True)
class LoadReport:
    """`checked`: what this run loaded, and what an earlier one loaded and did not check. `unchecked`: what could not be checked any more.

    `expired`: offsets that were deleted before they were loaded. `waiting`: per partition, the offsets above the last stable offset, which
    open transactions keep from being read. `group`: what was committed to `LoadOptions.group`.
    `compacted`: how many small files were rewritten. `bad_max`: how many undecodable values are accepted.
    """

    run: str
    table: str
    format: str
    snapshot: Snapshot
    loaded: Sequence[OffsetRange]
    checked: Sequence[CheckedRange]
    unchecked: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]
    waiting: Sequence[OffsetRange]
    group: GroupCommit | None
    compacted: int = 0
    bad_max: int | None = None

    @property
    def rows(self) -> int:
        """Of the ranges in `checked`."""
        return sum(one.rows for one in self.checked)

    @property
    def undecodable(self) -> int:
        """Values in `checked` that could not be decoded."""
        return sum(one.undecodable for one in self.checked)

    @property
    def wrong(self) -> Sequence[CheckedRange]:
        """The ranges with lost or doubled records."""
        return [one for one in self.checked if not one.is_right]

    @property
    def too_many_bad(self) -> bool:
        """Whether more values could not be decoded than are accepted."""
        return self.bad_max is not None and self.undecodable > self.bad_max

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.run,
            "table": self.table,
            "format": self.format,
            "cluster_id": self.snapshot.cluster_id,
            "topic_ids": {topic.name: topic.topic_id for topic in self.snapshot.topics},
            "partitions": [one.as_json() for one in self.checked],
            "undecodable": self.undecodable,
            "compacted": self.compacted,
            "group": None if self.group is None else self.group._asdict(),
            **{name: [one._asdict() for one in getattr(self, name)] for name in ("loaded", "unchecked", "expired", "waiting")},
        }


def load(spark: Any, options: LoadOptions, stream: TextIO | None = None, on_step: Callable[[str], None] = lambda step: None) -> LoadReport:
    """Load what the table lacks. Progress goes to `stream`; `on_step` is called after each of `STEPS`.

    CommandFailed and ClientError: nothing is lost and nothing doubled, run it again when the reason is gone. WrongData, one of these: a log
    became shorter than what was loaded of it.
    """
    check_options(options)
    return load_once(spark, options, stream, on_step)


def check_options(options: LoadOptions) -> None:
    """Refuse what cannot be used, before anything starts: BadUsage, CommandFailed, ClientError. The brokers are asked last."""
    format_of(folder(options.table))
    options.source.check()
    options.decoding.check()
    if options.group is not None:
        check_group(options.source, options.group)
    options.source.find()


def load_once(spark: Any, options: LoadOptions, stream: TextIO | None, on_step: Callable[[str], None] = lambda step: None) -> LoadReport:
    """As `load`, with options that were checked."""
    table = open_table(spark, options.table, options.format)
    check_session(spark, delta=table.format == DELTA)
    job = _Load(spark, table, options, stream, on_step)
    with locked(spark, table.path), spark_failures():
        job.table = open_table(spark, options.table, table.format)  # another job may have created one since
        on_step("locked")
        return job.run()


class _Load:
    """One run."""

    def __init__(
        self, spark: Any, table: Table, options: LoadOptions, stream: TextIO | None, on_step: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self.table = table
        self._options = options
        self._stream = stream
        self._on_step = on_step
        self._id = str(uuid.uuid4())
        self._source = options.source
        self._topics = self._source.find()
        self._rebased_from: Mapping[str, Any] | None = None
        self._decode = options.decoding.prepare(spark)

    def run(self) -> LoadReport:
        """The steps, with the table locked."""
        before = self.table.loaded()
        snapshot = self._snapshot()
        if before is not None and self._options.rebase:
            before = self._rebase(before, snapshot)
        planned = self._plan(snapshot, None if before is None else before.offsets)
        self._on_step("planned")
        checked: list[CheckedRange] = []
        unchecked: list[OffsetRange] = []
        if before is not None and before.unchecked is not None:
            self._check(before.unchecked, checked, unchecked)
        commit: LoadCommit | None = None
        if planned.ranges:
            ids = {topic.name: topic.topic_id for topic in snapshot.topics if any(one.topic == topic.name for one in planned.ranges)}
            start = TableOffsets(snapshot.cluster_id, {}, {}) if before is None else before.offsets
            if before is None or not self._has_no_records(before, planned, ids):
                commit, planned = self._append(start, ids, planned)
        if commit is not None:
            self._on_step("committed")
            self._check(commit, checked, unchecked)
            self._on_step("checked")
        group = self._follow(snapshot, commit.table if commit is not None else None if before is None else before.offsets)
        waiting = [OffsetRange(topic.name, index, found.end, found.high_watermark) for topic in snapshot.topics
                   for index, found in sorted(topic.partitions.items()) if found.end < found.high_watermark]
        loaded = () if commit is None else commit.ranges
        compacted = self.table.compact(self._options.compact) if loaded and self._options.compact else 0
        return LoadReport(self._id, str(self.table.path), self.table.format, snapshot, loaded, checked, unchecked, planned.expired,
                          waiting, group, compacted, self._options.decoding.bad_max)

    def _follow(self, snapshot: Snapshot, table: TableOffsets | None) -> GroupCommit | None:
        """Commit the table's offsets of this run's topics to the group, also if this run has loaded nothing."""
        if self._options.group is None or table is None:
            return None
        ends = {TopicPartition(topic.name, index): end
                for topic in snapshot.topics for index, end in table.offsets.get(topic.name, {}).items()}  # fmt: skip
        followed = advance(self._source, self._options.group, ends)
        self._on_step("followed")
        return followed

    def _rebase(self, before: Loaded, snapshot: Snapshot) -> Loaded:
        after = rebased(before.offsets, snapshot)
        if after == before.offsets:
            return before
        check_same_records(self._spark, self.table, self._source, before.offsets, snapshot)
        self._rebased_from = before.offsets.ids()
        return before._replace(offsets=after, transaction=None)

    def _snapshot(self) -> Snapshot:
        return take(self._source.brokers, self._topics, self._source.isolation_level)

    def _plan(self, snapshot: Snapshot, loaded: TableOffsets | None) -> Plan:
        return plan(snapshot, loaded, skip_expired=self._options.skip_expired, can_rebase=True)

    def _has_no_records(self, before: Loaded, planned: Plan, ids: Mapping[str, str]) -> bool:
        """Whether the table has had these ranges: the offsets came from its rows, and there are only gaps after them.

        CommandFailed if there are records: the table has lost them since.
        """
        if before.transaction is None or self._commit(before.offsets.after(planned.ranges, ids), planned).version > before.transaction:
            return False
        found = self._source.records(self._spark, planned.ranges).select("topic", "partition", "offset").take(1)
        if found:
            where = TopicPartition(found[0].topic, found[0].partition)
            lost = f"{where} was loaded beyond offset {found[0].offset}, which is not in the table now"
            raise CommandFailed(f"{lost}: the table was restored or rows were deleted, and its log does not say which any more; to load "
                                f"what is missing after the last rows, run this in Spark first: {before.load_again}")
        return True

    def _commit(self, table: TableOffsets, planned: Plan) -> LoadCommit:
        return LoadCommit(self._id, self._source.isolation_level, table, planned.ranges, planned.expired, rebased_from=self._rebased_from)

    def _append(self, loaded: TableOffsets, ids: Mapping[str, str], planned: Plan) -> tuple[LoadCommit | None, Plan]:
        """Read and commit, and plan again if offsets expire meanwhile and may be skipped. None: all of it has expired."""
        for attempt in range(1, ATTEMPTS + 1):
            commit = self._commit(loaded.after(planned.ranges, ids), planned)
            try:
                with watched(self._spark, sum(one.size for one in planned.ranges), self._stream):
                    data = self._decode(self._source.records(self._spark, planned.ranges))
                    if attempt == 1:
                        self.table.create(loaded.cluster_id, ids, data.schema)
                        self._on_step("created")
                    self.table.append(aligned(data, widened(self.table.schema(), data.schema)), commit)
                return commit, planned
            except CommandFailed:
                raise
            except Exception as error:
                if self.table.has(commit):
                    return commit, planned
                if not is_expired(error) or not self._options.skip_expired or attempt == ATTEMPTS:
                    raise failure(error) from error
            # As if the table had everything before the ranges, so that what expires of them is counted.
            again = self._plan(self._snapshot(), loaded.after([one._replace(end=one.start) for one in planned.ranges], ids))
            planned = Plan(again.ranges, [*planned.expired, *again.expired])
            if not planned.ranges:
                return None, planned
        raise AssertionError

    def _check(self, commit: LoadCommit, checked: list[CheckedRange], unchecked: list[OffsetRange]) -> None:
        """Check a commit's rows and commit the result, which is added to one of the lists."""
        rows = self.table.rows(commit)
        if rows is None:
            unchecked.extend(commit.ranges)
            return
        found = check_rows(self._spark, rows, commit.ranges, self._source.brokers, commit.isolation_level)
        self.table.append_check(commit._replace(checked=[one.as_json() for one in found]))
        checked.extend(found)
