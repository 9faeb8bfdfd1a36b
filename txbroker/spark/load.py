"""Load topics into a table, each record exactly once.

1. Read what the table has, and the offsets of the topics. Refuse what does not belong together.
2. Read the ranges that the table lacks, and append them. The commit has the ranges, the cluster id and the topic ids.
3. Check the rows of the commit against its ranges, and commit the result.

The table is the only state. A run that is killed before the commit leaves files that no reader sees; the next run reads the same ranges
again. A run that is killed after it leaves a commit that is not checked; the next run checks it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from txbroker.cli.clients import addresses, is_plaintext
from txbroker.cli.failures import BadUsage, CommandFailed
from txbroker.spark import kafka_source
from txbroker.spark.load_check import CheckedRange, check_rows
from txbroker.spark.offset_ranges import OffsetRange, Plan, TableOffsets, plan
from txbroker.spark.progress import watched
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Addresses, Snapshot, check_topics_exist, find_topics, take
from txbroker.spark.tables.delta import DeltaTable
from txbroker.spark.tables.load_commit import LoadCommit

ATTEMPTS = 3  # to read ranges whose first offsets expire meanwhile
STEPS = ("locked", "planned", "created", "committed", "checked")


@dataclass(frozen=True)
class LoadOptions:
    """What to load: the topics by name, or those that match `include`. `split`: offsets of one task at most.

    `properties`: of a Kafka client, for Spark's source.
    """

    servers: str
    table: str
    topics: Sequence[str] = ()
    include: str | None = None
    isolation_level: str = "read_committed"
    skip_expired: bool = False
    split: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadReport:
    """`checked`: what this run loaded, and what an earlier one loaded and did not check. `unchecked`: what could not be checked any more.

    `expired`: offsets that were deleted before they were loaded. `waiting`: per partition, the offsets above the last stable offset, which
    open transactions keep from being read.
    """

    run: str
    table: str
    snapshot: Snapshot
    loaded: Sequence[OffsetRange]
    checked: Sequence[CheckedRange]
    unchecked: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]
    waiting: Sequence[OffsetRange]

    @property
    def wrong(self) -> Sequence[CheckedRange]:
        """The ranges with lost or doubled records."""
        return [one for one in self.checked if not one.is_right]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "ok": not self.wrong,
            "run": self.run,
            "table": self.table,
            "cluster_id": self.snapshot.cluster_id,
            "topic_ids": {topic.name: topic.topic_id for topic in self.snapshot.topics},
            "partitions": [one.as_json() for one in self.checked],
            **{name: [one._asdict() for one in getattr(self, name)] for name in ("loaded", "unchecked", "expired", "waiting")},
        }


def load(spark: Any, options: LoadOptions, stream: TextIO | None = None, on_step: Callable[[str], None] = lambda step: None) -> LoadReport:
    """Load what the table lacks. Progress goes to `stream`; `on_step` is called after each of `STEPS`.

    CommandFailed and ClientError: nothing is lost and nothing doubled, run it again when the reason is gone. WrongData, one of these: a log
    became shorter than what was loaded of it.
    """
    if not is_plaintext(options.properties):
        raise BadUsage("security.protocol must be PLAINTEXT: offsets are read without TLS and SASL; remove it from the client's properties")
    kafka_source.client_options(options.properties)
    check_session(spark, delta=True)
    job = _Load(spark, options, stream, on_step)
    with job.table.locked():
        on_step("locked")
        try:
            return job.run()
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
                raise _failure(error) from error
            raise


class _Load:
    """One run."""

    def __init__(self, spark: Any, options: LoadOptions, stream: TextIO | None, on_step: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._stream = stream
        self._on_step = on_step
        self._id = str(uuid.uuid4())
        self._addresses: Addresses = addresses(options.servers)
        self._topics = _topics(self._addresses, options)
        self.table = DeltaTable(spark, options.table)

    def run(self) -> LoadReport:
        """The steps, with the table locked."""
        before = self.table.loaded()
        snapshot, planned = self._plan(None if before is None else before.offsets)
        self._on_step("planned")
        checked: list[CheckedRange] = []
        unchecked: list[OffsetRange] = []
        if before is not None and before.unchecked is not None:
            self._check(before.unchecked, checked, unchecked)
        commit: LoadCommit | None = None
        if planned.ranges:
            ids = {topic.name: topic.topic_id for topic in snapshot.topics if any(one.topic == topic.name for one in planned.ranges)}
            self.table.create(snapshot.cluster_id, ids)
            self._on_step("created")
            start = TableOffsets(snapshot.cluster_id, {}, {}) if before is None else before.offsets
            commit, planned = self._append(start, ids, planned, None if before is None else before.transaction)
        if commit is not None:
            self._on_step("committed")
            self._check(commit, checked, unchecked)
            self._on_step("checked")
        waiting = [OffsetRange(topic.name, index, found.end, found.high_watermark) for topic in snapshot.topics
                   for index, found in sorted(topic.partitions.items()) if found.end < found.high_watermark]
        return LoadReport(self._id, str(self.table.path), snapshot, () if commit is None else commit.ranges, checked, unchecked,
                          planned.expired, waiting)

    def _plan(self, loaded: TableOffsets | None) -> tuple[Snapshot, Plan]:
        snapshot = take(self._addresses, self._topics, self._options.isolation_level)
        return snapshot, plan(snapshot, loaded, skip_expired=self._options.skip_expired)

    def _append(
        self, loaded: TableOffsets, ids: Mapping[str, str], planned: Plan, transaction: int | None
    ) -> tuple[LoadCommit | None, Plan]:
        """Read and commit, and plan again if offsets expire meanwhile and may be skipped. None: the table has all of it already."""
        for attempt in range(1, ATTEMPTS + 1):
            table = loaded.after(planned.ranges, ids)
            commit = LoadCommit(self._id, self._options.isolation_level, table, planned.ranges, planned.expired)
            if transaction is not None and commit.version <= transaction:
                return None, planned  # the offsets came from the rows, and only gaps follow these
            try:
                with watched(self._spark, sum(one.size for one in planned.ranges), self._stream):
                    self.table.append(self._records(planned.ranges), commit)
                return commit, planned
            except CommandFailed:
                raise
            except Exception as error:
                if self.table.has(commit):
                    return commit, planned
                if not _is_expired(error) or not self._options.skip_expired or attempt == ATTEMPTS:
                    raise _failure(error) from error
            # As if the table had everything before the ranges, so that what expires of them is counted.
            _, again = self._plan(loaded.after([one._replace(end=one.start) for one in planned.ranges], ids))
            planned = Plan(again.ranges, [*planned.expired, *again.expired])
            if not planned.ranges:
                return None, planned
        raise AssertionError

    def _records(self, ranges: Sequence[OffsetRange]) -> Any:
        options = self._options
        return kafka_source.records(self._spark, options.servers, ranges, options.isolation_level, options.properties, options.split)

    def _check(self, commit: LoadCommit, checked: list[CheckedRange], unchecked: list[OffsetRange]) -> None:
        """Check a commit's rows and commit the result, which is added to one of the lists."""
        rows = self.table.rows(commit)
        if rows is None:
            unchecked.extend(commit.ranges)
            return
        found = check_rows(self._spark, rows, commit.ranges, self._addresses, commit.isolation_level)
        self.table.append_check(commit._replace(checked=[one.as_json() for one in found]))
        checked.extend(found)


def _topics(at: Addresses, options: LoadOptions) -> list[str]:
    """The topics by the options; CommandFailed, BadUsage."""
    if bool(options.topics) is (options.include is not None):
        raise BadUsage("specify --topic or --include")
    if options.include is not None:
        try:
            return find_topics(at, re.compile(options.include))
        except re.error as error:
            raise BadUsage(f"--include is {options.include!r}, which is not a regular expression: {error}") from None
    check_topics_exist(at, options.topics)
    return sorted(set(options.topics))


def _is_expired(error: Exception) -> bool:
    """Whether Spark's source found that offsets were deleted."""
    return re.search(r"OffsetOutOfRange|KAFKA_DATA_LOSS|some data may have been lost", str(error)) is not None


def _failure(error: Exception) -> CommandFailed:
    """What an exception of Spark means, with what to do about it."""
    text = str(error)
    if _is_expired(error):
        return CommandFailed("offsets were deleted while they were being read, and nothing was loaded; "
                             "run this again, with --on-expired skip to go on without them")
    if "long overflow" in text:
        return CommandFailed("a record has a timestamp that Spark cannot represent (after the year 294247); nothing was loaded; "
                             "`txbroker get-offsets --time max-timestamp` shows the partition")
    if "ConcurrentTransaction" in text or "ConcurrentModification" in text:
        return CommandFailed("another load committed to the table first, and this one wrote nothing; run it again")
    causes = re.findall(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error|Failed)): (.+)$", text, flags=re.M)
    reason = ": ".join(causes[-1]) if causes else text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return CommandFailed(f"Spark failed: {reason}; correct that and run this again")
