"""`audit` of topics against tables and groups: it finds exactly what is planted, and nothing on clean data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.cli.commands import run
from tests.spark.audits import Audited, Rows, audited_with, found, without
from tests.spark.kafka_samples import serve
from tests.spark.producing import PARTITIONS, produce
from tests.spark.test_gaps import cut
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.audit.job import AuditOptions, _Audit
from txbroker.spark.audit.report import KeyCounts
from txbroker.spark.checksum import Checksum, content
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.topic_source import TopicSource

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def audited(spark: Any, shared_broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A topic with 20 records in each of three partitions, and a table that has them."""
    name = "audited"
    create_topic(shared_broker, name, PARTITIONS)
    produce(shared_broker, name, 60)
    audited = Audited(spark, shared_broker, name, tmp_path_factory.mktemp("audit"))
    audited.load()
    return audited


def test_what_is_planted_in_a_table(audited: Audited) -> None:
    """In partition 0 the numbers of records are equal: one is lost and another one doubled."""
    def planted(rows: Rows) -> Rows:
        found = without((0, 7))(rows)
        by_place = {(row["partition"], row["offset"]): row for row in found}
        for place, changes in {
            (0, 13): {"offset": 14}, (0, 14): {"offset": 13}, (1, 3): {"value": b"other"}, (1, 11): {"key": None}, (2, 6): {"offset": 99},
            (1, 5): {"timestamp_ms": by_place[1, 5]["timestamp_ms"] + 1}, (1, 8): {"headers": [{"key": "h", "value": None}]},
        }.items():
            by_place[place].update(changes)
        again = by_place[2, 7]
        return [*found, by_place[0, 9], {**again, "offset": 100, "value": None}, {**again, "offset": 8}]

    changed = audited.changed(planted)
    report = audited.audit(changed)
    assert found(report) == [
        ("missing", 0, 1, 7), ("doubled", 0, 1, 9), ("out_of_order", 0, 2, 13), ("changed", 1, 4, 3),
        ("doubled", 2, 1, 8), ("out_of_order", 2, 1, 99), ("extra", 2, 1, 100),
    ]  # fmt: skip
    missing, _, swapped, changes, _, moved, _ = report.findings
    assert [(one.offset, one.key) for one in missing.examples] == [(7, b"key 21")]
    assert "--topic audited --partition 0 --offset 7 --max-messages 1" in missing.command
    assert [(one.offset, one.other) for one in swapped.examples] == [(13, 14), (14, 13)]
    assert [one.offset for one in changes.examples] == [3, 5, 8, 11]
    assert f"delta.`{changed}` WHERE topic = 'audited' AND partition = 1 AND offset = 3" in changes.command
    assert [(one.offset, one.other) for one in moved.examples] == [(99, 6)]
    assert [one.equal for one in report.partitions] == [17, 16, 19]


def test_a_clean_table_and_its_keys(audited: Audited, tmp_path: Path, commands_share_the_session: None) -> None:
    """The command's reports, and the table of keys; then increments since the report."""
    produce(audited.server, audited.topic, 6)
    report, html, keys = (tmp_path / name for name in ("report.json", "report.html", "keys"))
    arguments = ("--bootstrap-server", audited.server.address, "--topic", audited.topic, "--table", str(audited.table))
    output, complaint = run("spark", "audit", *arguments, "--json", str(report), "--html", str(html), "--keys-table", str(keys))
    assert output.splitlines() == [
        *(f"audited-{i} [0, 20): 20 written, 20 delivered, 20 equal, 2 not delivered yet, 20 keys, 2 unseen" for i in range(3)),
        "not checked: timestamp types: only the timestamps are compared",
        f"60 records equal in audited and table {audited.table}, 6 records not delivered yet; nothing is wrong",
    ]
    assert "66 of 66 offsets (100 %)" in complaint, "progress"
    written = json.loads(report.read_text())
    assert (written["job"], written["ok"], written["findings"]) == ("audit", True, [])
    assert "Nothing is wrong: 60 records are the same on both sides" in html.read_text()

    rows = {bytes(row.key): row for row in audited.spark.read.parquet(str(keys)).collect()}
    assert len(rows) == 60
    seen, unseen = rows[b"key 17"], rows[b"key 1"]
    assert (seen.partition, seen.offset, seen.delivered_offset, seen.unseen) == (2, 5, 5, False)
    assert (unseen.offset, unseen.delivered_offset, unseen.unseen, unseen.records, unseen.delivered_records) == (20, 0, True, 2, 1)
    assert seen.checksum == seen.delivered_checksum and unseen.checksum != unseen.delivered_checksum
    assert unseen.delivered_checksum == Checksum.of([content(b"key 1", b"value 1", _ms(unseen.delivered_timestamp))]).text
    _, complaint = run("spark", "audit", *arguments, "--keys-table", str(keys), status=2)
    assert f"{keys} exists already; remove it" in complaint

    audited.load()
    output, _ = run("spark", "audit", *arguments, "--since", str(report))
    assert output.splitlines()[0] == "audited-0 [20, 22): 2 written, 2 delivered, 2 equal"
    other = tmp_path / "again.html"
    run("spark", "report", str(report), "--output", str(other))
    assert other.read_text() == html.read_text()


def _ms(moment: Any) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)


def test_a_parquet_table(audited: Audited, tmp_path: Path) -> None:
    """The files of its manifests; a file of a killed load beside them does not matter."""
    table = tmp_path / "parquet"
    assert not load(audited.spark, LoadOptions(audited.source, str(table), format="parquet")).wrong
    files = sorted(table.glob("data/*/part-*.parquet"))
    shutil.copyfile(files[0], files[0].with_name("part-of-a-killed-load.parquet"))
    assert not audited.audit(table).findings
    contents = [(path, pyarrow.parquet.ParquetFile(path).read()) for path in files]
    path, rows = next(one for one in contents if one[1]["partition"][0].as_py() == 1)
    kept, first = [at for at, offset in enumerate(rows["offset"].to_pylist()) if offset != 4], rows["offset"].to_pylist().index(2)
    pyarrow.parquet.write_table(rows.take([*kept, first]), path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    report = audited.audit(table)
    assert found(report) == [("missing", 1, 1, 4), ("doubled", 1, 1, 2)]
    assert report.findings[1].command.startswith(f"SELECT * FROM the files that `txbroker spark files --table {table}` lists WHERE ")


def test_since_a_time(audited: Audited) -> None:
    frame = audited.spark.read.format("delta").load(str(audited.table))
    (last,) = frame.where("partition = 0").agg({"timestamp_ms": "max"}).collect()[0]
    report = audited.audit(since=last)
    assert not report.findings
    first = report.partitions[0]
    assert 0 < first.start < first.end == 22, "records of the last millisecond"
    later = audited.audit(since=last + 60_000)
    assert [(one.start, one.end, one.written) for one in later.partitions] == [(22, 22, 0)] * PARTITIONS


def test_a_group(audited: Audited) -> None:
    """Delivered is what is before the committed offset; retention can delete what a group has not read."""
    name = "audited-group"
    create_topic(audited.server, name, 2)
    produce(audited.server, name, 40, 2)
    delete_records(audited.server, name, 6, 1)
    consumer = KafkaConsumer(bootstrap_servers=audited.server.address, group_id="readers")
    consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(15, "", -1), TopicPartition(name, 1): OffsetAndMetadata(2, "", -1)})
    consumer.close()
    topics = TopicSource(audited.server.address, [name])
    report = audited_with(audited.spark, AuditOptions(topics, group="readers", keys=True))
    assert found(report) == [("unread", 1, 4, 2)]
    assert [(one.start, one.end, one.written, one.waiting, one.keys) for one in report.partitions] == [
        (0, 15, 15, 5, KeyCounts(20, 5, 5)), (6, 6, 0, 14, KeyCounts(14, 14, 14)),
    ]  # fmt: skip
    assert sum(one.keys for one in report.ages) == 34
    with pytest.raises(CommandFailed, match="group others has no committed offset for audited-group; see `txbroker groups"):
        audited_with(audited.spark, AuditOptions(topics, group="others"))


def test_a_record_that_the_topic_lost(spark: Any, start_broker: Callable[..., BrokerProcess], name: str, tmp_path: Path) -> None:
    """After a load, so that the table still has the records; and before one."""
    server = start_broker()
    create_topic(server, name)
    for _ in range(4):
        produce(server, name, 5, 1)
    audited = Audited(spark, server, name, tmp_path)
    audited.load()
    server.stop()
    cut(server.data / f"{name}-0")
    server.start()
    report = audited.audit()
    assert found(report) == [("lost", 0, 6, 7)]
    (partition,) = report.partitions
    assert (partition.written, partition.delivered, partition.equal, partition.events) == (14, 20, 14, {"lost": 6})
    assert [one.offset for one in report.findings[0].examples] == [7, 10, 11, 12, 13]
    again = audited.audit(audited.changed(without(*((0, offset) for offset in (7, *range(10, 15))))))
    assert found(again) == [("lost", 0, 6, 7)] and not again.findings[0].examples
    assert (again.partitions[0].delivered, again.partitions[0].equal) == (14, 14)


def test_compaction_after_the_load(audited: Audited, name: str, tmp_path: Path) -> None:
    """What the cleaner removed is superseded, and that needs proof: a record whose key has no later one is lost."""
    server = audited.server
    if server.kind != BrokerProcess.kind:
        pytest.skip("compaction on request is in no release of Apache Kafka")
    create_topic(server, name, configs={**KEEP, "cleanup.policy": "compact", "delete.retention.ms": "0"})
    producer = KafkaProducer(bootstrap_servers=server.address)
    for i in range(20):
        producer.send(name, b"value %d" % i, b"key %d" % (i % 4), partition=0)
    producer.send(name, None, b"key 0", partition=0)
    producer.flush()
    compacted = Audited(audited.spark, server, name, tmp_path)
    compacted.load()
    compact = ("log-cleaner", "--bootstrap-server", server.address, "--compact-now", name, "--roll", "--wait")
    run(*compact)
    producer.send(name, b"value", b"key 1", partition=0)
    producer.close()
    run(*compact)  # a tombstone is removed by the second pass after it
    report = compacted.audit()
    assert not report.findings
    (partition,) = report.partitions
    assert partition.events == {"superseded": 18, "tombstone": 1} and (partition.equal, partition.waiting) == (2, 1)

    planted = compacted.changed(lambda rows: [{**row, "key": b"key 9"} if row["offset"] == 2 else row for row in rows])
    assert found(compacted.audit(planted)) == [("lost_latest", 0, 1, 2)]


def test_logs_of_apache_kafka(spark: Any, tmp_path: Path) -> None:
    """A table that was loaded without regard to transactions, and a topic that was compacted before the load."""
    server = serve(tmp_path / "broker")
    try:
        source = TopicSource(server.address, ["s-compact", "s-txn"], isolation_level="read_uncommitted")
        load(spark, LoadOptions(source, str(tmp_path / "table"), format="delta"))
        report = audited_with(spark, AuditOptions(replace(source, isolation_level="read_committed"), str(tmp_path / "table")))
        assert not report.findings
        partitions = {(one.topic, one.partition): one for one in report.partitions}
        assert (partitions["s-txn", 0].equal, partitions["s-txn", 0].events) == (60, {"aborted": 20})
        assert (partitions["s-compact", 0].equal, partitions["s-compact", 0].events) == (401, {})
        assert "10 offsets after open transactions in 1 partition" in report.not_checked
    finally:
        server.close()


def test_retention_during_an_audit(audited: Audited, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are deleted after the snapshot and before the records are read."""
    create_topic(audited.server, name, 2)
    produce(audited.server, name, 40, 2)
    retained = Audited(audited.spark, audited.server, name, tmp_path)
    retained.load()
    changed = retained.changed(without((0, 12)))
    steps = []

    def expire(self: Any, *arguments: Any) -> Any:
        steps.append(len(steps))
        if len(steps) == 1:
            delete_records(audited.server, name, 5, 1)
        return records_written(self, *arguments)

    records_written = _Audit._records_written
    monkeypatch.setattr(_Audit, "_records_written", expire)
    report = retained.audit(changed)
    assert len(steps) == 2, "read again behind the offsets that expired"
    assert found(report) == [("missing", 0, 1, 12)]
    assert [(one.start, one.end) for one in report.partitions] == [(0, 20), (5, 20)]
