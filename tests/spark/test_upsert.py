"""`upsert`: the table has what the log cleaner leaves of the topic, in whatever order and how often records are merged."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewPartitions

from tests.cli.commands import run
from tests.spark.delta_logs import forget_offsets
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic, delete_records, until_leaders
from tests.support.server import Server
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.brokers import Brokers
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.loaded_table import LoadedTable
from txbroker.spark.tables.upsert_table import UpsertTable
from txbroker.spark.topic_source import TopicSource
from txbroker.spark.upsert import KeyInTwoPartitions, Merged, UpsertOptions, UpsertReport, _Upsert, latest, upsert
from txbroker.wire.records import Record

HEADER = "version"
ORDERS = {"offset": CompactionOrder.of_topic("offset", ""), "timestamp": CompactionOrder.of_topic("timestamp", ""),
          "header": CompactionOrder.of_topic("header", HEADER)}
BASE_MS = 1_600_000_000_000
Upsert = Callable[..., UpsertReport]


class Killed(BaseException):
    """A test ends a run here."""


class Change(NamedTuple):
    """A record. `time`: both the version and the timestamp follow from it."""

    key: bytes | None
    value: bytes | None
    time: int
    versioned: bool = True


class Row(NamedTuple):
    """What the table and the topic have of a key. A deleted key has no value."""

    partition: int
    offset: int
    timestamp: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    create_topic(broker, name, 1)
    return name


@pytest.fixture
def upserting(spark: Any, broker: Server, topic: str, table: Path) -> Upsert:
    """Merge the topic into the table."""
    def upserting(**options: Any) -> UpsertReport:
        on_step = options.pop("on_step", lambda step: None)
        source = options.pop("source", TopicSource(broker.address, [topic]))
        given = {"brokers": source.brokers if isinstance(source, TopicSource) else None, "buckets": 2, **options}
        return upsert(spark, UpsertOptions(source, str(table), **given), on_step=on_step)

    return upserting


def send(server: Server, topic: str, changes: Iterable[Change], partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=20)
    for one in changes:
        headers = [(HEADER, struct.pack(">q", one.time))] if one.versioned else []
        producer.send(topic, one.value, one.key, headers, partition, BASE_MS + one.time)
    producer.close()


def rows(spark: Any, table: Path) -> dict[bytes, Row]:
    """The table's rows by key; each key has one."""
    found = spark.read.format("delta").load(str(table)).collect()
    by_key = {bytes(row.key): Row(row.partition, row.offset, row.timestamp_ms, None if row.value is None else bytes(row.value),
                                  tuple((header.key, bytes(header.value)) for header in row.headers or ())) for row in found}
    assert len(by_key) == len(found), "one row a key"
    assert all(row.deleted is (row.value is None) for row in found)
    return by_key


def compacted(server: Server, topic: str) -> dict[bytes, Row]:
    """What the broker's log cleaner leaves, by key."""
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.alter_configs([ConfigResource("TOPIC", topic, {"txbroker.compact": "roll"})], raise_on_unknown=False)
    admin.close()
    consumer, partition = KafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest"), TopicPartition(topic, 0)
    consumer.assign([partition])
    records = []
    while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
        records += [record for polled in consumer.poll(1000).values() for record in polled]
    consumer.close()
    found = {one.key: Row(0, one.offset, one.timestamp, one.value, tuple(one.headers)) for one in records}
    assert len(found) == len(records), "the cleaner leaves one record of each key"
    return found


def histories() -> list[list[Change]]:
    """Three changes of a key, one of them perhaps without a version, in each order, each of them a value or a delete; a key for each."""
    found = []
    for times in (*itertools.permutations((1, 2, 3)), (2, 2, 1), (1, 2, 2)):
        for deleted in itertools.product((False, True), repeat=3):
            key = b"%d" % len(found)
            unversioned = len(found) % 4
            found.append([Change(key, None if gone else b"" if time == 1 else b"value %d" % time, time, unversioned != number)
                          for number, (time, gone) in enumerate(zip(times, deleted, strict=True))])
    return found


@pytest.mark.parametrize("strategy", ORDERS)
def test_the_table_equals_the_topic_after_compaction(spark: Any, broker: Server, name: str, table: Path, strategy: str) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("KIP-280 and compaction on request are in no release of Apache Kafka")
    create_topic(broker, name, 1, {**KEEP, "cleanup.policy": "compact", "compaction.strategy": strategy,
                                   "compaction.strategy.header": HEADER, "min.cleanable.dirty.ratio": "1.0"})
    options = UpsertOptions(TopicSource(broker.address, [name]), str(table), Brokers.of(broker.address), buckets=2)
    for number, numbers in enumerate(((0,), (1, 2))):
        send(broker, name, [history[index] for index in numbers for history in histories()])
        send(broker, name, [Change(b"last %d" % number, b"", 9)])  # the cleaner judges the last record of a log when another one follows
        report = upsert(spark, options)
        assert report.identity.order == ORDERS[strategy]
        assert report.read == (len(histories()) * len(numbers) + 1, 0, len(histories()) + 1)
    found = rows(spark, table)
    assert found == compacted(broker, name)
    assert {bytes(row.key) for row in latest(spark, str(table)).collect()} == {key for key, row in found.items() if row.value is not None}


def test_records_that_are_merged_again_change_nothing(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert) -> None:
    send(broker, topic, [Change(b"a", b"1", 1), Change(b"b", b"1", 1), Change(b"a", None, 2), Change(None, b"no key", 1)])
    assert upserting().merged == (2, 0)
    before = rows(spark, table)
    again = upserting(again=True)
    assert again.merged == (0, 0)
    assert again.read == (4, 1, 2)
    assert rows(spark, table) == before
    assert upserting().ranges == []
    send(broker, topic, [Change(b"b", b"2", 2)])
    assert upserting().merged == (0, 1)
    assert {key: row.value for key, row in rows(spark, table).items()} == {b"a": None, b"b": b"2"}
    for setting in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
        assert spark.conf.get(f"spark.databricks.delta.{setting}", None) is None, "settings of the commit are in no other session"


@pytest.mark.parametrize("step", ["created", "merged"])
def test_a_run_that_ends_after_a_step(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert, step: str) -> None:
    def end(reached: str) -> None:
        if reached == step:
            raise Killed

    send(broker, topic, [Change(b"a", b"1", 1), Change(b"b", b"1", 1)])
    with pytest.raises(Killed):
        upserting(on_step=end)
    send(broker, topic, [Change(b"a", None, 2)])
    assert upserting().merged == ((0, 1) if step == "merged" else (2, 0))
    assert {key: row.value for key, row in rows(spark, table).items()} == {b"a": None, b"b": b"1"}


def test_two_runs_at_once(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert) -> None:
    """The second one is refused by the lock. Where locks do not work, Delta skips the merge of the one that began first."""
    def second(step: str) -> None:
        if step == "read":
            with pytest.raises(CommandFailed, match=r"another .* writes to"):
                upserting()
            options = UpsertOptions(TopicSource(broker.address, [topic]), str(table), order=ORDERS["offset"])
            assert _Upsert(spark, UpsertTable(spark, table), options, None, lambda _: None).run().merged == (1, 0)

    send(broker, topic, [Change(b"a", b"1", 1)])
    with pytest.raises(CommandFailed, match=r"another upsert committed to .* first, and this one wrote nothing"):
        upserting(on_step=second)
    assert {key: row.value for key, row in rows(spark, table).items()} == {b"a": b"1"}


def test_from_a_table_of_load(spark: Any, broker: Server, topic: str, table: Path, tmp_path: Path, upserting: Upsert) -> None:
    raw = str(tmp_path / "raw")
    source = LoadedTable(raw)
    with pytest.raises(CommandFailed, match="has no table; run `txbroker spark load` first"):
        upserting(source=source)
    changes = [history[number] for number in range(3) for history in histories()[:8]]
    for some in (changes[:10], changes[10:]):
        send(broker, topic, some)
        load(spark, LoadOptions(TopicSource(broker.address, [topic]), raw))
        if not table.exists():
            with pytest.raises(BadUsage, match=r"specify --bootstrap-server, so that the topic's compaction.strategy is known"):
                upserting(source=source)
        report = upserting(source=source, order=None if table.exists() else ORDERS["header"])
        assert report.read.records == len(some)
    assert upserting(source=source).ranges == []
    expected: dict[bytes | None, tuple[Any, Change]] = {}
    for offset, one in enumerate(changes):
        headers = ((HEADER, struct.pack(">q", one.time)),) if one.versioned else ()
        rank = ORDERS["header"].rank(Record(offset, BASE_MS + one.time, one.key, one.value, headers))
        expected[one.key] = max(expected.get(one.key, (rank, one)), (rank, one), key=lambda ranked: ranked[0])
    assert {key: row.value for key, row in rows(spark, table).items()} == {key: one.value for key, (_, one) in expected.items()}
    with pytest.raises(CommandFailed, match="has no rows of topic other"):
        upserting(source=LoadedTable(raw, "other"))


def test_keys_in_two_partitions(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert) -> None:
    """Partitions are added in mid stream, and keys move to the new ones."""
    source = TopicSource(broker.address, [topic])
    keys = [b"%d" % number for number in range(8)]
    send(broker, topic, [Change(key, b"old", 1) for key in keys])
    upserting(source=source)
    by_time = UpsertOptions(source, str(table.with_name("by-time")), source.brokers, by_timestamp=True, buckets=2)
    upsert(spark, by_time)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_partitions({topic: NewPartitions(2)})
    admin.close()
    until_leaders(broker, topic, 2)
    send(broker, topic, [Change(keys[0], b"again here", 2)], 0)
    send(broker, topic, [Change(b"9", b"", 5)], 0)
    send(broker, topic, [Change(key, b"moved", 3) for key in (*keys[1:5], b"9")], 1)
    commits = sorted(table.glob("_delta_log/*.json"))
    report = upserting(source=source)
    assert (report.merged, report.incomparable) == (None, 5)
    assert report.examples == [*(KeyInTwoPartitions(key, (0, 1)) for key in (*keys[1:5], b"9"))]
    assert sorted(table.glob("_delta_log/*.json")) == commits, "nothing was committed"
    assert upsert(spark, by_time).merged == Merged(1, 5)
    found = {key: row.value for key, row in rows(spark, table.with_name("by-time")).items()}
    assert found == dict.fromkeys(keys[5:], b"old") | dict.fromkeys(keys[1:5], b"moved") | {keys[0]: b"again here", b"9": b""}
    with pytest.raises(CommandFailed, match="--cross-partition is fixed with a table"):
        upserting(source=source, by_timestamp=True)

    # With a version, partitions do not matter.
    header = UpsertOptions(source, str(table.with_name("header")), order=ORDERS["header"], buckets=2)
    send(broker, topic, [Change(keys[6], b"without a version", 3, versioned=False)], 1)
    send(broker, topic, [Change(b"new", b"", 3, versioned=False)], 0)
    assert upsert(spark, header).merged == Merged(10, 0)
    assert rows(spark, table.with_name("header"))[keys[6]].value == b"old", "the record with a version is the latest"
    send(broker, topic, [Change(b"new", b"", 3, versioned=False)], 1)
    assert upsert(spark, header).examples == [KeyInTwoPartitions(b"new", (0, 1))], "found by MERGE"


def test_rows_of_deleted_keys_are_purged(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert) -> None:
    send(broker, topic, [Change(b"a", None, 1), Change(b"b", b"1", 1)])
    assert upserting(purge_after_ms=0).purged == 0, "delete.retention.ms is a day"
    assert upserting(purge_after_ms=-1, brokers=None).purged == 1
    assert list(rows(spark, table)) == [b"b"]


def test_a_log_of_the_table_without_offsets(spark: Any, broker: Server, topic: str, table: Path, upserting: Upsert) -> None:
    """Delta removes its log after 30 days. Then everything is merged again."""
    send(broker, topic, [Change(b"a", b"1", 1), Change(b"b", None, 1)])
    upserting()
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    assert upserting().ranges == []
    forget_offsets(spark, table)
    before = rows(spark, table)
    again = upserting()
    assert (again.merged, again.read.records) == (Merged(0, 0), 2)
    assert rows(spark, table) == before and upserting().ranges == []
    forget_offsets(spark, table)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.delete_topics([topic])
    admin.close()
    create_topic(broker, topic, 1)
    send(broker, topic, [Change(b"a", b"of another topic", 1)])
    with pytest.raises(CommandFailed, match=r"was deleted and created again: .*; specify another --table$"):
        upserting()
    assert rows(spark, table) == before


def test_what_is_refused(spark: Any, broker: Server, topic: str, table: Path, tmp_path: Path, upserting: Upsert) -> None:
    send(broker, topic, [Change(b"a", b"1", number) for number in range(6)])
    with pytest.raises(BadUsage, match="committed records only"):
        upserting(source=TopicSource(broker.address, [topic], isolation_level="read_uncommitted"))
    upserting()
    with pytest.raises(CommandFailed, match=r"compares records by offset, and the topic's compaction.strategy, or .*, is timestamp now"):
        upserting(order=ORDERS["timestamp"])
    other = f"{topic}-2"
    create_topic(broker, other)
    with pytest.raises(CommandFailed, match=f"has the keys of topic {topic}, and not of {other}"):
        upserting(source=TopicSource(broker.address, [other]))
    with pytest.raises(BadUsage, match="the keys of one topic"):
        upserting(source=TopicSource(broker.address, [topic, other]))
    raw = tmp_path / "raw"
    load(spark, LoadOptions(TopicSource(broker.address, [topic]), str(raw)))
    with pytest.raises(CommandFailed, match="was not made by `txbroker spark upsert`"):
        upsert(spark, UpsertOptions(TopicSource(broker.address, [topic]), str(raw)))
    send(broker, topic, [Change(b"a", b"1", 7), Change(b"a", b"1", 8)])
    delete_records(broker, topic, 7)
    with pytest.raises(CommandFailed, match="--on-expired skip"):
        upserting()
    report = upserting(skip_expired=True)
    assert [tuple(one)[2:] for one in report.expired] == [(6, 7)] and report.merged == Merged(0, 1)


def test_the_command(spark: Any, broker: Server, name: str, table: Path, tmp_path: Path, commands_share_the_session: None) -> None:
    create_topic(broker, name, 2)
    send(broker, name, [Change(b"a", b"1", 1), Change(b"b", None, 1), Change(None, b"1", 1)])
    written = tmp_path / "report.json"
    arguments = ("spark", "upsert", "--bootstrap-server", broker.address, "--topic", name, "--table", str(table), "--json", str(written))
    output, _ = run(*arguments)
    assert output.splitlines() == ["1 record without a key, which cannot be in the table",
                                   "3 records of 2 keys read: 2 inserted, 0 updated, 0 unchanged"]
    report = json.loads(written.read_text())
    assert (report["job"], report["ok"], report["strategy"], report["merged"]) == ("upsert", True, "offset", {"inserted": 2, "updated": 0})
    assert run(*arguments)[0] == "nothing new\n"
    send(broker, name, [Change(b"a", b"2", 2)], 1)
    output, complaint = run(*arguments, status=1)
    assert output == "1 record of 1 key read, nothing merged\n"
    assert "1 key of" in complaint and "'a' in 0 and 1; with --cross-partition timestamp and another --table" in complaint
    for wrong in (("--table", "x"), ("--from-table", "x", "--table", "x", "--topic", "a", "--topic", "b"),
                  (*arguments[2:], "--compaction-strategy", "header")):
        run("spark", "upsert", *wrong, status=2)
