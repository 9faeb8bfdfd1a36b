"""`audit` of a topic against a table of `upsert`: the latest record of each key, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.spark.audits import Audited, Rows, found
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.server import Server
from txbroker.console.failures import BadUsage
from txbroker.spark.audit.report import AuditReport, KeyCounts
from txbroker.spark.upsert import UpsertOptions, upsert


class Upserted(Audited):
    """A topic, and the table of `upsert` in `place`."""

    def load(self) -> None:
        upsert(self.spark, UpsertOptions(self.source, str(self.table), self.source.brokers, buckets=2))


def send(server: Server, topic: str, first: int, count: int) -> None:
    """Records of ten keys, of which key 9 is deleted, in two partitions by the key; and one without a key in each partition."""
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=20)
    for number in range(first, first + count):
        key = number % 10
        producer.send(topic, None if key == 9 else b"value %d" % number, b"key %d" % key, partition=key % 2)
    for partition in range(2):
        producer.send(topic, b"no key", partition=partition)
    producer.close()


def events(report: AuditReport) -> list[dict[str, int]]:
    return [dict(one.events) for one in report.partitions]


def test_a_table_of_upsert(spark: Any, broker: Server, name: str, tmp_path: Path, commands_share_the_session: None) -> None:
    """Clean: 5 keys a partition, and records that are not merged yet. Then what is planted, one thing a key."""
    create_topic(broker, name, 2)
    send(broker, name, 0, 30)
    audited = Upserted(spark, broker, name, tmp_path)
    audited.load()
    send(broker, name, 30, 10)
    sides = ("--bootstrap-server", broker.address, "--topic", name, "--table", str(audited.table))
    output, _ = run("spark", "audit", *sides, "--keys")
    assert output.splitlines() == [
        *(f"{name}-{i} [0, 16): 5 written, 5 delivered, 5 equal, 6 not delivered yet, 5 keys, 5 unseen" for i in range(2)),
        "not checked: records without a key, which a table of `txbroker spark upsert` cannot have",
        "not checked: timestamp types: only the timestamps are compared",
        f"10 records equal in {name} and table {audited.table}, 12 records not delivered yet; nothing is wrong",
    ]
    def planted(rows: Rows) -> Rows:
        by_key = {bytes(row["key"]): row for row in rows}
        del by_key[b"key 0"], by_key[b"key 9"]
        by_key[b"key 1"]["value"] = b"other"
        by_key[b"key 3"] |= {"offset": 6, "value": b"value 13", "timestamp_ms": 0}
        return [*by_key.values(), by_key[b"key 2"], {**by_key[b"key 4"], "key": b"key x", "offset": 99}]

    report = audited.audit(audited.changed(planted))
    assert found(report) == [
        ("missing", 0, 1, 10), ("doubled", 0, 1, 11), ("extra", 0, 1, 99), ("missing", 1, 1, 11), ("changed", 1, 1, 10),
        ("extra", 1, 1, 6),
    ]  # fmt: skip
    assert events(report)[1]["removed"] == 1, "the row of a deleted key may be purged"


def test_a_table_that_has_an_older_record(spark: Any, broker: Server, name: str, tmp_path: Path) -> None:
    """A run that was lost after its offsets had been committed; and what retention has deleted since then is not wrong."""
    create_topic(broker, name, 2)
    send(broker, name, 0, 30)
    audited = Upserted(spark, broker, name, tmp_path)
    audited.load()
    before = audited.changed(lambda rows: rows)
    (old,) = spark.read.format("delta").load(str(before)).where("CAST(key AS STRING) = 'key 5'").collect()
    send(broker, name, 30, 10)
    audited.load()
    stale = audited.changed(lambda rows: [old.asDict(recursive=True) if row["key"] == old.key else row for row in rows])
    report = audited.audit(stale, keys=True)
    assert found(report) == [("missing", 1, 1, 18), ("stale", 1, 1, 12)]
    assert [one.keys for one in report.partitions] == [KeyCounts(5), KeyCounts(5, 1, 0)]
    delete_records(broker, name, 19, 1)
    report = audited.audit()
    assert not report.findings
    assert [(one.start, one.equal) for one in report.partitions] == [(0, 5), (19, 2)], "rows below the log start are not compared"
    with pytest.raises(BadUsage, match="--since is not possible with a table of `txbroker spark upsert`"):
        audited.audit(since=0)


def test_compaction_after_the_merge(spark: Any, broker: Server, name: str, tmp_path: Path) -> None:
    """The table equals the topic before and after compaction, also when the tombstone is gone, and while it lags behind."""
    if broker.kind != BrokerProcess.kind:
        pytest.skip("compaction on request is in no release of Apache Kafka")
    create_topic(broker, name, 2, {**KEEP, "cleanup.policy": "compact", "delete.retention.ms": "0"})
    producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=20)
    for number in range(20):
        producer.send(name, None if number % 5 == 4 else b"value %d" % number, b"key %d" % (number % 5), partition=0)
    producer.flush()
    audited = Upserted(spark, broker, name, tmp_path)
    audited.load()
    compact = ("log-cleaner", "--bootstrap-server", broker.address, "--compact-now", name, "--roll", "--wait")
    for _ in range(2):  # a tombstone is removed by the second pass after it
        run(*compact)
        producer.send(name, b"later", b"key 0", partition=0)
        producer.flush()
    producer.close()
    run(*compact)
    report = audited.audit()
    assert not report.findings
    assert events(report) == [{"superseded": 1, "tombstone": 1}, {}], "key 0 has later records, which are not merged yet"
