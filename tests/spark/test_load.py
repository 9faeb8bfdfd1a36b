"""`load` into a Delta table: each record exactly once, whatever ends a run, and every offset without a record explained."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from tests.cli.commands import ENVIRONMENT, run
from tests.spark.kafka_samples import serve
from tests.spark.loads import Load, offsets, summary, whole
from tests.spark.producing import PARTITIONS, produce
from tests.spark.test_gaps import cut
from tests.support import cache
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.java import SHORT_LIVED
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.records import Received, Sample, assert_same, samples
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark import load as load_module
from txbroker.spark.load import STEPS, LoadOptions, LoadReport, load
from txbroker.spark.offset_ranges import WrongData
from txbroker.spark.tables.load_commit import LoadCommit
from txbroker.spark.tables.opening import open_table
from txbroker.spark.topic_source import TopicSource

FORMATS = pytest.mark.parametrize("form", ["delta", "parquet"])


class Killed(BaseException):
    """A test ends a run here."""


@FORMATS
def test_everything_of_a_record_is_in_the_table(spark: Any, broker: Server, name: str, table: Path, form: str) -> None:
    create_topic(broker, name, PARTITIONS, configs={**KEEP, "message.timestamp.after.max.ms": str(2**63 - 1)})
    sent = []
    producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)
    odd = [Sample(b"k", b"v", (), timestamp) for timestamp in (0, 10**15)]
    for i, record in enumerate([*samples(90, seed=11), *odd]):
        producer.send(name, record.value, record.key, list(record.headers), i % PARTITIONS, record.timestamp)
        sent.append((i % PARTITIONS, record))
    producer.close()
    report = load(spark, LoadOptions(TopicSource(broker.address, [name], split=10), str(table), format=form))
    assert not report.wrong and sum(one.rows for one in report.checked) == len(sent)
    frame = open_table(spark, str(table)).read()
    assert frame.columns == ["topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers"]
    rows = frame.orderBy("partition", "offset").drop("timestamp").collect()
    found = [Received(row.partition, row.offset, row.timestamp_ms, _bytes(row.key), _bytes(row.value),
                      tuple((header.key, _bytes(header.value)) for header in row.headers or ())) for row in rows]
    assert_same(sent, found)
    assert {(row.topic, row.timestamp_type) for row in rows} == {(name, 0)}
    assert frame.where("unix_millis(timestamp) != timestamp_ms").count() == 0


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_runs_one_after_the_other(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    assert summary(loading()) == [(0, 0, 10, 10), (1, 0, 10, 10), (2, 0, 10, 10)]
    nothing = loading()
    assert not nothing.loaded and not nothing.checked
    produce(broker, topic, 10, 2)
    assert summary(loading()) == [(0, 10, 15, 5), (1, 10, 15, 5)]
    other = f"{topic}-2"
    create_topic(broker, other, 1)
    produce(broker, other, 4, 1)
    second = loading(topics=(), include=f"{topic}(-2)?")
    assert summary(second) == [(0, 0, 4, 4)]
    assert offsets(spark, table) == sorted([*whole(topic, 10), *whole(topic, 15, 2, 10), *whole(other, 4, 1)])


@FORMATS
@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_run_that_ends_after_a_step(spark: Any, broker: Server, topic: str, table: Path, loading: Load, step: str, form: str) -> None:
    def end(reached: str) -> None:
        if reached == step:
            raise Killed

    with pytest.raises(Killed):
        loading(on_step=end, format=form)
    produce(broker, topic, 3)
    report = loading(format=form)
    expected = {"committed": [(index, 0, 10, 10) for index in range(3)] + [(index, 10, 11, 1) for index in range(3)],
                "checked": [(index, 10, 11, 1) for index in range(3)]}.get(step, [(index, 0, 11, 11) for index in range(3)])
    assert summary(report) == expected, "what was committed and not checked is checked now"
    assert not report.wrong and offsets(spark, table) == whole(topic, 11)


@pytest.mark.parametrize(("step", "form"), [("writing", "parquet"), ("committed", "delta")])
def test_kill_9_of_the_driver(
    spark: Any, spark_jars: Path, broker: Server, topic: str, table: Path, loading: Load, step: str, form: str
) -> None:
    command = [sys.executable, "-m", "tests.spark.killed_load", spark_jars, cache.pyspark(), "local[2]", broker.address, topic, table,
               form, step]
    environment = {**ENVIRONMENT, "JAVA_TOOL_OPTIONS": " ".join(SHORT_LIVED)}
    ended = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    produce(broker, topic, 3)

    def load_when_the_jvm_has_ended() -> LoadReport | None:
        try:
            return loading(format=form)
        except CommandFailed as failure:
            assert "another job writes" in str(failure)
            return None

    report = until(load_when_the_jvm_has_ended, "the killed driver's JVM releases the table")
    assert not report.wrong and offsets(spark, table) == whole(topic, 11)


def test_two_loads_of_one_table_at_once(spark: Any, topic: str, table: Path, loading: Load) -> None:
    """The second begins while the first holds the table, before and after its commit."""
    refused = []

    def second(step: str) -> None:
        with pytest.raises(CommandFailed, match="another job writes"):
            loading()
        refused.append(step)

    loading(on_step=second)
    assert refused == list(STEPS[:-1])
    assert offsets(spark, table) == whole(topic, 10)


@FORMATS
def test_a_load_that_another_one_overtook(spark: Any, broker: Server, topic: str, table: Path, loading: Load, form: str) -> None:
    """As on a file system without locks: another load commits between the plan of this one and its commit. Delta skips the write."""
    table.mkdir()

    def overtake(step: str) -> None:
        if step == "planned":
            options = LoadOptions(TopicSource(broker.address, [topic]), str(table))
            load_module._Load(spark, open_table(spark, str(table), form), options, None, lambda _: None).run()

    with pytest.raises(CommandFailed, match=r"another load committed to .* first, and this one wrote nothing"):
        loading(on_step=overtake, format=form)
    assert offsets(spark, table) == whole(topic, 10)


def test_a_table_of_another_format_that_was_created_meanwhile(
    spark: Any, topic: str, table: Path, loading: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the folder and the lock."""
    hold = load_module.locked

    def overtaken(session: Any, path: Path) -> Any:
        monkeypatch.setattr(load_module, "locked", hold)
        loading(format="delta")
        return hold(session, path)

    monkeypatch.setattr(load_module, "locked", overtaken)
    with pytest.raises(CommandFailed, match="has the format delta; leave out --format parquet"):
        loading(format="parquet")
    assert not (table / "_manifests").exists()
    assert offsets(spark, table) == whole(topic, 10)


@FORMATS
def test_a_commit_whose_answer_was_lost(spark: Any, topic: str, table: Path, loading: Load, form: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is read again after any failure: the commit is there, so nothing is loaded twice."""
    kind = type(open_table(spark, str(table), form))
    append = kind.append

    def answer_lost(self: Any, data: Any, commit: LoadCommit) -> None:
        append(self, data, commit)
        if commit.checked is None:
            raise ConnectionError("the answer is lost")

    monkeypatch.setattr(kind, "append", answer_lost)
    assert summary(loading(format=form)) == [(index, 0, 10, 10) for index in range(3)]
    assert not loading().loaded
    assert offsets(spark, table) == whole(topic, 10)


def test_a_timestamp_that_spark_cannot_represent(broker: Server, name: str, table: Path, loading: Load) -> None:
    late = f"{name}-late"
    create_topic(broker, late, configs={**KEEP, "message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = KafkaProducer(bootstrap_servers=broker.address)
    producer.send(late, b"value", timestamp_ms=10**18)
    producer.close()
    with pytest.raises(CommandFailed, match="a record has a timestamp that Spark cannot represent"):
        loading(topics=[late], format="parquet")


def test_a_topic_that_was_created_again(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    loading()
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.delete_topics([topic])
    admin.close()
    create_topic(broker, topic, PARTITIONS)
    produce(broker, topic, 60)  # beyond the end of the old one
    with pytest.raises(CommandFailed, match=f"topic {topic} was deleted and created again"):
        loading()
    assert offsets(spark, table) == whole(topic, 10)


def test_offsets_that_expired(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    loading()
    produce(broker, topic, 30)
    delete_records(broker, topic, 14, 1)
    with pytest.raises(CommandFailed, match=r"deleted before they were read: 4 offsets; --on-expired skip"):
        loading()
    report = loading(skip_expired=True)
    assert [tuple(one) for one in report.expired] == [(topic, 1, 10, 14)]
    assert summary(report) == [(0, 10, 20, 10), (1, 14, 20, 6), (2, 10, 20, 10)]


@pytest.mark.parametrize("skip", [False, True])
def test_offsets_that_expire_between_the_plan_and_the_read(broker: Server, topic: str, loading: Load, skip: bool) -> None:
    def expire(step: str) -> None:
        if step == "created":
            delete_records(broker, topic, 4, 2)

    if not skip:
        with pytest.raises(CommandFailed, match="offsets were deleted while they were being read, and nothing was written"):
            loading(on_step=expire)
        return
    report = loading(on_step=expire, skip_expired=True)
    assert [tuple(one) for one in report.expired] == [(topic, 2, 0, 4)]
    assert summary(report) == [(0, 0, 10, 10), (1, 0, 10, 10), (2, 4, 10, 6)]


def test_logs_of_apache_kafka(spark: Any, tmp_path: Path, table: Path) -> None:
    """Aborted transactions, one that is open, and a compacted topic; the offsets of each partition add up."""
    server = serve(tmp_path / "broker")
    try:
        report = load(spark, LoadOptions(TopicSource(server.address, ["s-txn", "s-compact"]), str(table)))
        found = {(one.range.topic, one.range.partition): (one.rows, one.gaps) for one in report.checked}
        assert not report.wrong
        rows, gaps = found["s-txn", 0]
        assert (rows, gaps.aborted, gaps.control, gaps.total) == (60, 20, 20, 40)
        rows, gaps = found["s-compact", 0]
        assert (rows, gaps.compacted, gaps.total) == (401, 2950, 2951)
        assert ("s-txn", 0, 100, 110) in [tuple(one) for one in report.waiting]
        uncommitted = TopicSource(server.address, ["s-txn"], isolation_level="read_uncommitted")
        dirty = load(spark, LoadOptions(uncommitted, str(tmp_path / "dirty")))
        first = dirty.checked[0]
        assert (first.rows, first.gaps.aborted, first.gaps.control) == (90, 0, 20)
    finally:
        server.close()


@pytest.mark.usefixtures("commands_share_the_session")
def test_lost_records_are_reported(start_broker: Callable[..., BrokerProcess], name: str, table: Path, tmp_path: Path) -> None:
    server = start_broker()
    create_topic(server, name)
    for _ in range(4):
        produce(server, name, 5, 1)
    server.stop()
    cut(server.data / f"{name}-0")
    server.start()

    report = tmp_path / "report.json"
    arguments = ("--bootstrap-server", server.address, "--topic", name, "--table", str(table), "--json", str(report))
    output, complaint = run("spark", "load", *arguments, status=1)
    assert output.splitlines() == [f"{name}-0 [0, 20): 14 rows, 6 UNEXPLAINED", "14 rows of 20 offsets in 1 partition loaded"]
    assert "6 offsets without a record and without a reason, the first is 7; look at the broker's log" in complaint
    assert "20 of 20 offsets (100 %)" in complaint, "progress"
    written = json.loads(report.read_text())
    assert (written["schema"], written["job"], written["ok"]) == (1, "load", False)
    assert [(one["rows"], one["unexplained"], one["first_unexplained"]) for one in written["partitions"]] == [(14, 6, 7)]

    output, _ = run("spark", "load", *arguments)
    assert output == "nothing new\n"
    assert json.loads(report.read_text())["ok"]
    other = ("--topic", "missing", "--table", str(tmp_path / "new"), "--json", str(report))
    _, complaint = run("spark", "load", "--bootstrap-server", server.address, *other, status=2)
    assert "topic missing does not exist" in complaint
    assert not report.exists() and not (tmp_path / "new").exists()


def test_a_table_after_maintenance(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    """OPTIMIZE commits carry no offsets; and Delta's log is removed after 30 days, after which the offsets come from the rows."""
    loading()
    for _ in range(3):
        spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    produce(broker, topic, 6)
    assert summary(loading()) == [(index, 10, 12, 2) for index in range(3)]

    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(table)).checkpoint()
    log = table / "_delta_log"
    last = max(path.name for path in log.glob("*.json"))
    for path in [path for path in log.iterdir() if path.name.endswith((".json", ".json.crc")) and last not in path.name]:
        path.unlink()
    (log / last).write_text("".join(line for line in (log / last).read_text().splitlines(True) if "commitInfo" not in line))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert not loading().loaded
    produce(broker, topic, 3)
    assert summary(loading()) == [(index, 12, 13, 1) for index in range(3)]
    assert offsets(spark, table) == whole(topic, 13)


def test_tables_that_are_refused(spark: Any, broker: Server, topic: str, table: Path, tmp_path: Path, loading: Load) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    with pytest.raises(CommandFailed, match="is not empty and has no table"):
        loading(table=str(full))
    spark.range(3).write.format("delta").save(str(table))
    with pytest.raises(CommandFailed, match="was not made by `txbroker spark load`"):
        loading()
    forgetting = tmp_path / "forgetting"
    loading(table=str(forgetting), format="delta")
    spark.sql(f"ALTER TABLE delta.`{forgetting}` SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 day')")
    with pytest.raises(CommandFailed, match="by which Delta forgets which loads it has; remove the property"):
        loading(table=str(forgetting))
    for location in ("s3a://bucket/table", "hdfs://node/table"):
        with pytest.raises(BadUsage, match="only folders of a file system"):
            loading(table=location)


def test_a_log_that_became_shorter(spark: Any, start_broker: Callable[..., BrokerProcess], name: str, table: Path) -> None:
    server = start_broker()
    create_topic(server, name)
    produce(server, name, 10, 1)
    server.stop()
    older = server.directory / "older"
    shutil.copytree(server.data, older)
    server.start()
    produce(server, name, 10, 1)
    load(spark, LoadOptions(TopicSource(server.address, [name]), str(table)))
    server.stop()
    shutil.rmtree(server.data)
    older.rename(server.data)
    server.start()
    with pytest.raises(WrongData, match=r"ends at offset 10, and the table has it up to 20: the log lost records"):
        load(spark, LoadOptions(TopicSource(server.address, [name]), str(table)))
