"""The latest value of each key of a topic in a Delta table, by MERGE.

1. Read what the table has, and the offsets of the source: a topic, or a table of `load`.
2. Read what the table lacks, and reduce it to the latest record of each key.
3. Merge these: a record replaces the row of its key if its order is higher. The commit has the offsets.
4. With `purge_after_ms`, delete the rows of keys that were deleted long ago.

Which record is the latest is the topic's `compaction.strategy`, by the log cleaner's own rule (`order`). So the order in which records are
merged does not matter, and merging one again changes nothing. The row of a deleted key stays, with its order: otherwise an older record
that is merged later would bring the key back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from txbroker.client.topic_reader import READ_COMMITTED
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.console.topic_order import topic_order
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.brokers import Brokers
from txbroker.spark.loaded_table import LoadedTable
from txbroker.spark.offset_ranges import OffsetRange, Plan, TableOffsets, plan
from txbroker.spark.order import rank, version
from txbroker.spark.progress import watched
from txbroker.spark.session import check_session, configure_shuffles
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.tables.load_commit import LoadCommit
from txbroker.spark.tables.table_folder import folder, format_of, locked
from txbroker.spark.tables.upsert_table import COLUMNS, INCOMPARABLE, Identity, Merged, UpsertTable, incomparable
from txbroker.spark.topic_source import TopicSource

BUCKETS = 16
EXAMPLES = 5
STEPS = ("locked", "planned", "created", "read", "merged", "purged")


@dataclass(frozen=True)
class UpsertOptions:
    """The source of one topic, and the table's folder.

    `order`: which record of a key is the latest; by default that of the topic, by these `brokers`. `by_timestamp`: see
    `Identity`. Both are fixed with the table: None takes the table's. `buckets`: partitions of a new table, by a hash of the key. `again`:
    merge all records of the source, also those that the table has. `purge_after_ms`: forget deleted keys after this time, and not before
    the topic's `delete.retention.ms`.
    """

    source: TopicSource | LoadedTable
    table: str
    brokers: Brokers | None = None
    order: CompactionOrder | None = None
    by_timestamp: bool | None = None
    buckets: int = BUCKETS
    again: bool = False
    purge_after_ms: int | None = None
    skip_expired: bool = False


class Read(NamedTuple):
    """What was read: `records`, of which `null_keys` have no key and cannot be in the table, and the number of `keys`."""

    records: int = 0
    null_keys: int = 0
    keys: int = 0


class KeyInTwoPartitions(NamedTuple):
    """A key with records in two partitions, of which none is known to be the later one."""

    key: bytes
    partitions: tuple[int, int]


class _Outcome(NamedTuple):
    """Fields of the report."""

    read: Read
    merged: Merged | None = None
    incomparable: int = 0
    examples: Sequence[KeyInTwoPartitions] = ()


@dataclass(frozen=True)
class UpsertReport:
    """`merged`: None if nothing was merged, because there is nothing new or because of `incomparable` keys. `examples`: some of these."""

    run: str
    table: str
    identity: Identity
    ranges: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]
    read: Read
    merged: Merged | None
    incomparable: int
    examples: Sequence[KeyInTwoPartitions]
    purged: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.run,
            "table": self.table,
            "cluster_id": self.identity.cluster_id,
            "topic": self.identity.topic,
            "topic_id": self.identity.topic_id,
            "strategy": self.identity.order.strategy.value,
            "by_timestamp": self.identity.by_timestamp,
            "ranges": [one._asdict() for one in self.ranges],
            "expired": [one._asdict() for one in self.expired],
            **self.read._asdict(),
            "merged": None if self.merged is None else self.merged._asdict(),
            "incomparable": self.incomparable,
            "examples": [{"key": one.key.hex(), "partitions": one.partitions} for one in self.examples],
            "purged": self.purged,
        }


def latest(spark: Any, location: str) -> Any:
    """A DataFrame of the table's keys that are not deleted, with the columns of a record. CommandFailed, BadUsage."""
    table = UpsertTable(spark, folder(location))
    if table.identity() is None:
        raise CommandFailed(f"{location} has no table; run `txbroker spark upsert` first")
    return table.read().where("NOT deleted").drop("deleted", "merged_ms", "key_bucket")


def upsert(
    spark: Any, options: UpsertOptions, stream: TextIO | None = None, on_step: Callable[[str], None] = lambda step: None
) -> UpsertReport:
    """Merge what the table lacks. Progress goes to `stream`; `on_step` is called after each of `STEPS`.

    CommandFailed and ClientError: run it again when the reason is gone. WrongData, one of these: a log became shorter than what was merged.
    """
    check_options(options)
    path = folder(options.table)
    check_session(spark, delta=True)
    with locked(spark, path), spark_failures():
        on_step("locked")
        return _Upsert(spark, UpsertTable(spark, path), options, stream, on_step).run()


def check_options(options: UpsertOptions) -> None:
    """Refuse what cannot be used, before anything starts: BadUsage, CommandFailed, ClientError. The brokers are asked last."""
    if isinstance(options.source, TopicSource):
        options.source.check()
        if options.source.isolation_level != "read_committed":
            raise BadUsage("upsert reads committed records only; leave out --isolation-level")
    format_of(folder(options.table))
    options.source.find()
    if options.brokers is not None and not isinstance(options.source, TopicSource):
        options.brokers.connect().close()


class _Upsert:
    """One run, with the table locked."""

    def __init__(
        self, spark: Any, table: UpsertTable, options: UpsertOptions, stream: TextIO | None, on_step: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._table = table
        self._options = options
        self._stream = stream
        self._on_step = on_step
        self._id = str(uuid.uuid4())

    def run(self) -> UpsertReport:
        """The steps."""
        snapshot = self._snapshot()
        known = self._table.identity()
        identity = self._identity(snapshot, known)
        before = None if known is None else self._covered(known)
        planned = self._plan(snapshot, before)
        self._on_step("planned")
        if known is None and planned.ranges:
            self._table.create(identity)
            self._on_step("created")
        outcome = self._merge(identity, before, planned, self._table.transaction(identity) + 1) if planned.ranges else _Outcome(Read())
        purged = 0
        if self._options.purge_after_ms is not None and not outcome.incomparable and (known is not None or planned.ranges):
            purged = self._purge(identity.topic, self._options.purge_after_ms)
            self._on_step("purged")
        return UpsertReport(self._id, str(self._table.path), identity, planned.ranges, planned.expired, *outcome, purged)

    def _snapshot(self) -> Snapshot:
        source = self._options.source
        snapshot = source.snapshot(self._spark) if isinstance(source, LoadedTable) else source.snapshot()
        if len(snapshot.topics) != 1:
            names = ", ".join(topic.name for topic in snapshot.topics)
            raise BadUsage(f"a table of upsert has the keys of one topic, and these are {names}; specify one")
        return snapshot

    def _identity(self, snapshot: Snapshot, known: Identity | None) -> Identity:
        """What the table is made of, or is to be; CommandFailed if that differs."""
        (topic,) = snapshot.topics
        options = self._options
        order = options.order
        if order is None and options.brokers is not None:
            reader = options.brokers.reader(topic.name, READ_COMMITTED)
            try:
                order = topic_order(reader)
            finally:
                reader.close()
        if order is not None and order.strategy is not Strategy.HEADER:
            order = CompactionOrder(order.strategy)  # a header that nothing reads may change
        if known is None:
            if order is None:
                raise BadUsage("specify --bootstrap-server, so that the topic's compaction.strategy is known, or --compaction-strategy")
            return Identity(snapshot.cluster_id, topic.name, topic.topic_id, order, bool(options.by_timestamp), options.buckets)
        if topic.name != known.topic:
            raise CommandFailed(f"the table has the keys of topic {known.topic}, and not of {topic.name}; specify another --table")
        if order is not None and order != known.order:
            raise CommandFailed(f"the table compares records by {_name(known.order)}, and the topic's compaction.strategy, or "
                                f"--compaction-strategy, is {_name(order)} now; specify another --table")
        if options.by_timestamp is not None and options.by_timestamp is not known.by_timestamp:
            raise CommandFailed("--cross-partition is fixed with a table; specify another --table, and merge everything into it")
        return known

    def _covered(self, known: Identity) -> TableOffsets:
        """What the table has; no offsets if Delta does not have its commits any more, or there was none."""
        newest = self._table.newest()
        return TableOffsets(known.cluster_id, {known.topic: known.topic_id}, {}) if newest is None else newest.table

    def _plan(self, snapshot: Snapshot, before: TableOffsets | None) -> Plan:
        planned = plan(snapshot, before, skip_expired=self._options.skip_expired)
        return plan(snapshot, None, skip_expired=True) if self._options.again else planned

    def _merge(self, identity: Identity, before: TableOffsets | None, planned: Plan, transaction: int) -> _Outcome:
        """Read and merge."""
        from pyspark.sql import functions as f

        session = self._spark.newSession()  # MERGE takes the commit's id and metadata from the session's settings
        size = sum(one.size for one in planned.ranges)
        configure_shuffles(session, size)
        source = self._source(session, identity, planned.ranges).persist()
        try:
            with watched(self._spark, size, self._stream):
                counts = source.agg(
                    f.expr("sum(records)"), f.expr("sum(CASE WHEN key IS NULL THEN records END)"), f.expr("count(key)"),
                    f.expr("collect_set(CASE WHEN key IS NOT NULL THEN key_bucket END)"), f.expr("count_if(incomparable)"),
                ).collect()[0]
            read = Read(counts[0] or 0, counts[1] or 0, counts[2])
            self._on_step("read")
            if counts[4]:
                return _Outcome(read, None, *self._incomparable(source, identity))
            start = TableOffsets(identity.cluster_id, {}, {}) if before is None else before
            after = start.after(planned.ranges, {identity.topic: identity.topic_id})
            commit = LoadCommit(self._id, "read_committed", after, planned.ranges, planned.expired)
            try:
                merged = self._table.merge(source.where("key IS NOT NULL"), identity, counts[3] or [0], commit, transaction)
            except Exception as error:
                if INCOMPARABLE not in str(error):
                    raise
                return _Outcome(read, None, *self._incomparable(source, identity))
            self._on_step("merged")
            return _Outcome(read, merged)
        finally:
            source.unpersist()

    def _source(self, session: Any, identity: Identity, ranges: Sequence[OffsetRange]) -> Any:
        """One row a key, and one for all records without a key.

        `max_by` reduces before the shuffle; numbering the records of each key would sort all of them.
        """
        from pyspark.sql import functions as f

        order = identity.effective
        record = [name for name in COLUMNS if name not in ("key", "key_bucket", "merged_ms")]
        rows = self._options.source.records(session, ranges).selectExpr(
            "*", "value IS NULL AS deleted", f"{version(order)} AS version", "unix_millis(current_timestamp()) AS merged_ms")
        of_key = rows.groupBy("key").agg(
            f.expr(f"max_by(struct({', '.join(record)}), {rank(order, version_column='version')})").alias("latest"),
            f.expr("count(*)").alias("records"), f.expr("min(partition)").alias("low"), f.expr("max(partition)").alias("high"),
            f.expr("max(merged_ms)").alias("merged_ms"))
        unknown = {Strategy.TIMESTAMP: "false", Strategy.OFFSET: "low < high", Strategy.HEADER: "low < high AND latest.version IS NULL"}
        return of_key.selectExpr("key", "latest.*", "merged_ms", f"CAST(pmod(xxhash64(key), {identity.buckets}) AS INT) AS key_bucket",
                                 "records", "low", "high", f"key IS NOT NULL AND {unknown[order.strategy]} AS incomparable")

    def _incomparable(self, source: Any, identity: Identity) -> tuple[int, Sequence[KeyInTwoPartitions]]:
        """Keys with records in two partitions, of the source alone or of the source and the table; how many, and the first."""
        from pyspark.sql import functions as f

        both = source.alias("s").join(self._table.read().alias("t"), f.expr("s.key_bucket = t.key_bucket AND s.key = t.key"), "left")
        found = both.where(f"s.incomparable OR (t.key IS NOT NULL AND {incomparable(identity.effective)})")
        other = "CASE WHEN s.incomparable THEN s.low ELSE t.partition END"
        first = found.selectExpr("s.key", f"{other} AS other", "CASE WHEN s.incomparable THEN s.high ELSE s.partition END AS own")
        rows = first.orderBy("key").limit(EXAMPLES).collect()
        return found.count(), [KeyInTwoPartitions(bytes(row.key), (row.other, row.own)) for row in rows]

    def _purge(self, topic: str, after_ms: int) -> int:
        """Delete the rows of keys that were deleted so long ago."""
        if self._options.brokers is not None:
            reader = self._options.brokers.reader(topic, READ_COMMITTED)
            try:
                after_ms = max(after_ms, int(reader.configs(["delete.retention.ms"]).get("delete.retention.ms") or 0))
            finally:
                reader.close()
        now_ms = self._spark._jvm.java.lang.System.currentTimeMillis()
        return self._table.purge(now_ms - after_ms)


def _name(order: CompactionOrder) -> str:
    return f"{order.strategy.value} {order.header}" if order.strategy is Strategy.HEADER else order.strategy.value
