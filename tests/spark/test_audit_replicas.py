"""`audit` of two replicas by their log directories: silent on lawful differences, and each fault that is planted is found."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cleaner.logs import NOW, LogMaker
from tests.cli.commands import run
from tests.spark.audits import audited_with, found
from tests.spark.compaction_logs import TOPIC, Directory, flip, index_again, usual, with_value, without
from tests.spark.kafka_samples import unpack
from tests.spark.test_compaction_commands import BIG, SEGMENT_BYTES, clean
from tests.support.raw_admin import KEEP, create_topic
from tests.support.server import Server
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark.audit.job import AuditOptions
from txbroker.spark.audit.report import AuditReport
from txbroker.spark.offset_ranges import WrongData
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.entries import Scan
from txbroker.wire.records import Record

HIGH_WATERMARKS = "replication-offset-checkpoint"


class Pair:
    """Two brokers' directories with the same logs, by partition."""

    def __init__(self, spark: Any, place: Path, logs: Sequence[LogMaker]) -> None:
        self._spark = spark
        self.logs = logs
        self.a, self.b = Directory(place / "a"), Directory(place / "b")
        for one in (self.a, self.b):
            for number, log in enumerate(logs):
                one.write(number, log)
            self.high_watermarks(one)

    def high_watermarks(self, one: Directory, **changes: int) -> None:
        ends = {number: log.next_offset for number, log in enumerate(self.logs)}
        one.checkpoint(HIGH_WATERMARKS, ends | {int(name[1:]): end for name, end in changes.items()})

    def audit(self, **options: Any) -> AuditReport:
        return audited_with(self._spark, AuditOptions(TopicSource("", [TOPIC]), log_dirs=f"a={self.a.path}",
                                                      against_log_dirs=f"b={self.b.path}", **options))


def short() -> LogMaker:
    """Keys k0 to k4 twice, the second time with a tombstone of k2 at offset 7; the active segment begins at offset 10."""
    log = LogMaker()
    for first in (0, 5):
        log.data([(b"k%d" % (i % 5), None if i == 7 else b"v%d" % i, NOW - 9000 + i) for i in range(first, first + 5)])
    log.roll()
    log.data([(b"k%d" % i, b"w%d" % i, NOW - 7000 + i) for i in range(4)])
    return log


def transactions() -> LogMaker:
    """A committed transaction (offsets 0 to 2), an aborted one (3 to 5) and an open one from offset 6 on, where a segment begins."""
    log = LogMaker()
    for committed in (True, False):
        log.data([(b"a%d" % committed, b"1", NOW - 9000), (b"b%d" % committed, b"2", NOW - 9000)], producer_id=1, transactional=True)
        log.end(1, committed=committed)
    log.roll()
    log.data([(b"c", b"3", NOW - 8000)], producer_id=2, transactional=True)
    return log


def swapped(one: int, other: int) -> Callable[[list[Record]], list[Record]]:
    """An edit that exchanges the contents of two records of a batch."""
    def edit(records: list[Record]) -> list[Record]:
        known = {record.offset: record for record in records}
        places = {one: other, other: one}
        return [known[places[record.offset]]._replace(offset=record.offset) if places.keys() <= known.keys() and record.offset in places
                else record for record in records]  # fmt: skip

    return edit


def remove_batch(directory: Path, base: int, offset: int) -> None:
    """Cut the batch with an offset out of a segment."""
    path = directory / f"{base:020d}.log"
    content = path.read_bytes()
    at, header = next((at, header) for at, header in Scan(content) if header.last_offset >= offset)
    path.write_bytes(content[:at] + content[at + header.size :])
    index_again(directory, base)


def test_lawful_and_planted_differences(spark: Any, tmp_path: Path) -> None:
    """Partitions 0 to 3 are right: compacted on one side only, or on both at other moments, and transactions. The others are wrong."""
    pair = Pair(spark, tmp_path, [short(), short(), usual(), transactions(), short(), short(), short(), transactions()])
    for directory, number, end in ((pair.b, 0, 10), (pair.a, 1, 10), (pair.a, 2, 10), (pair.b, 2, 13), (pair.b, 3, 6), (pair.b, 5, 10),
                                   (pair.a, 6, 10)):  # fmt: skip
        directory.clean(number, pair.logs[number], end)
    for edit in (without(2, 11), swapped(8, 9), with_value(12, b"other")):  # nothing may be gone where no cleaner was
        pair.b.edit(4, edit)
    for edit in (without(9, 7), with_value(8, b"other")):  # a tombstone may be gone, the latest record of a key may not
        pair.b.edit(5, edit)
    pair.a.edit(6, without(9, 12))
    for base, offset in ((0, 3), (0, 5), (6, 6)):  # aborted records, a marker, and a record of an open transaction
        remove_batch(pair.b.partition(7), base, offset)
    report = pair.audit()
    assert found(report) == [
        ("missing", 4, 2, 2), ("changed", 4, 1, 12), ("out_of_order", 4, 2, 8), ("missing", 5, 1, 9), ("changed", 5, 1, 8),
        ("extra", 6, 1, 12), ("lost_latest", 6, 1, 9), ("missing", 7, 4, 3),
    ]  # fmt: skip
    lawful = [{kind: count for kind, count in one.events.items() if kind in ("removed", "superseded", "tombstone")}
              for one in report.partitions]  # fmt: skip
    assert lawful == [{"removed": 5}, {"superseded": 5}, {"removed": 3}, {}, {}, {"removed": 6}, {"superseded": 5}, {}]
    assert [one.equal for one in report.partitions[:4]] == [9, 9, 8, 3], "two committed records, and one that is not decided"
    findings = {(one.kind, one.partition): one for one in report.findings}
    assert [(one.offset, one.key) for one in findings["missing", 4].examples] == [(2, b"k2"), (11, b"k1")]
    assert [(one.offset, one.other) for one in findings["out_of_order", 4].examples] == [(8, 9), (9, 8)]
    command = "txbroker log extract {} --from-offset {} --to-offset {}"
    assert findings["missing", 5].command == command.format(pair.a.partition(5), 9, 10)
    assert findings["extra", 6].command == command.format(pair.b.partition(6), 12, 13)
    assert (report.kind, report.topic, report.delivered, report.isolation_level) == ("replica", "t in a", "b", "read_uncommitted")
    assert report.not_checked == []


def test_high_watermarks_and_damage(spark: Any, tmp_path: Path) -> None:
    """Records are compared up to the smaller high watermark; a log that ends before it has lost records."""
    pair = Pair(spark, tmp_path, [short()])
    last = pair.b.partition(0) / f"{10:020d}.log"
    whole = last.read_bytes()
    last.write_bytes(b"")
    index_again(pair.b.partition(0), 10)
    report = pair.audit(since=NOW - 7500)
    assert found(report) == [("missing", 0, 4, 10)] and report.partitions[0].start == 10
    pair.high_watermarks(pair.b, _0=10)
    report = pair.audit()
    assert not report.findings
    assert (report.partitions[0].end, report.partitions[0].until, report.partitions[0].waiting) == (10, 14, 4)
    (pair.b.path / HIGH_WATERMARKS).unlink()
    assert pair.audit(since=NOW).not_checked == [
        "high watermarks of 1 partition of b, which are in no checkpoint: the log end offset was taken instead"]
    last.write_bytes(whole)
    index_again(pair.b.partition(0), 10)
    at = flip(last, 12)
    with pytest.raises(WrongData, match=rf"{last.name} is damaged at position {at}: .*; see `txbroker log verify`, and compare again"):
        pair.audit()
    pair.high_watermarks(pair.a, _0=10)
    assert not pair.audit().findings, "the damage is above the high watermark"


def test_what_is_refused(spark: Any, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, [short()])
    source = TopicSource("", [TOPIC])
    alone = tmp_path / f"{TOPIC}-0"
    shutil.copytree(pair.a.partition(0), alone)
    for log_dirs, problem in ((alone, "names the partition .* without the checkpoints of a log directory; specify log.dirs"),
                              (f"{pair.a.path},{pair.b.path}", "--log-dir has several directories of one partition")):  # fmt: skip
        with pytest.raises((BadUsage, CommandFailed), match=problem):
            audited_with(spark, AuditOptions(source, log_dirs=str(log_dirs), against_log_dirs=str(pair.b.path)))
    with pytest.raises(CommandFailed, match=r"there is no partition of other in .*; specify log.dirs of the brokers"):
        audited_with(spark, AuditOptions(TopicSource("", ["other"]), log_dirs=str(pair.a.path), against_log_dirs=str(pair.b.path)))
    with pytest.raises(BadUsage, match="--log-dir and --against-log-dir need each other"):
        audited_with(spark, AuditOptions(source, against_log_dirs=str(pair.b.path)))
    for one, identity in ((pair.a, "AAAAAAAAAAAAAAAAAAAAAA"), (pair.b, "BBBBBBBBBBBBBBBBBBBBBA")):
        (one.partition(0) / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}")
    with pytest.raises(CommandFailed, match="these are different topics"):
        pair.audit()
    for wrong in (("--log-dir", "/a", "--table", "x"), ("--against-log-dir", "/a"),
                  ("--bootstrap-server", "127.0.0.1:9", "--log-dir", "/a", "--against-log-dir", "/b")):  # fmt: skip
        run("spark", "audit", "--topic", TOPIC, *wrong, status=2)


def test_directories_that_a_broker_compacted(
    start_broker: Callable[..., Server], name: str, tmp_path: Path, commands_share_the_session: None
) -> None:
    """A copy of a broker's log directory is the other replica; the broker has written and compacted since then."""
    server = start_broker({"log.cleaner.backoff.ms": "200"})
    create_topic(server, name, configs={**KEEP, "cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)})

    def send(count: int) -> None:
        producer = KafkaProducer(bootstrap_servers=server.address, batch_size=200_000, linger_ms=5)
        for number in range(count):
            producer.send(name, None if number % 9 == 8 else os.urandom(BIG), b"key %d" % (number % 7), partition=0)
        producer.close()

    send(60)
    server.stop()
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy)
    server.start()
    send(40)
    clean(server, [name])
    server.stop()
    sides = ("--log-dir", str(server.data), "--against-log-dir", f"copy={copy}", "--html", str(tmp_path / "audit.html"))
    output, _ = run("spark", "audit", "--topic", name, *sides)
    assert output.startswith(f"{name}-0 [0, 60): ") and " superseded" in output and "nothing is wrong" in output
    assert f"Audit of {name} in {server.data} against copy" in (tmp_path / "audit.html").read_text()
    remove_batch(copy / f"{name}-0", 0, 0)
    output, _ = run("spark", "audit", "--topic", name, *sides[:4])
    assert "nothing is wrong" in output, "the broker has compacted what is gone from the copy"


def test_logs_of_apache_kafka(spark: Any, tmp_path: Path) -> None:
    """Compacted topics, transactions and old formats in directories of Apache Kafka 3.9: equal to their copy, but for one batch."""
    for side in "ab":
        unpack(tmp_path / side)
    remove_batch(tmp_path / "b" / "s-txn-0", 8, 20)
    report = audited_with(spark, AuditOptions(TopicSource("", include="s-(compact|txn)"), log_dirs=f"a={tmp_path / 'a'}",
                                              against_log_dirs=f"b={tmp_path / 'b'}"))
    (finding,) = report.findings
    assert (finding.kind, finding.topic) == ("missing", "s-txn")
    assert sum(one.equal for one in report.partitions) > 450
