"""`compaction-check`: silent on what the real cleaner does, and each fault that is planted is found, and nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cleaner.logs import NOW, RETENTION, LogMaker
from tests.spark.compaction_logs import CLEAN_END, CONFIGS, TOPIC, Directory, flip, index_again, moved, usual, with_value, without
from tests.spark.kafka_samples import EXPECTED, unpack
from txbroker.console.failures import CommandFailed
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.cleaner.unaligned_reads import Ints
from txbroker.spark.compaction.check import CheckOptions, CheckReport, after, before
from txbroker.spark.compaction.verdicts import Kind
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.entries import Scan, read_records
from txbroker.wire.records import Record

Found = set[tuple[int, Kind, tuple[int, ...]]]


class Forgetful(OffsetMap):
    """The map of a cleaner that loses the latest record of k4."""

    def all_offsets(self) -> Ints:
        found = super().all_offsets()
        return found[found != 9]


@pytest.fixture
def data(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data")


@pytest.fixture
def options(data: Directory, tmp_path: Path) -> CheckOptions:
    source = TopicSource("", [TOPIC])
    return CheckOptions(source, str(tmp_path / "state"), lambda: NOW, f"b1={data.path}", topic_configs=CONFIGS, examples=9)


def violations(report: CheckReport) -> Found:
    assert report.verdict is not None
    assert all(one.records == len(one.examples) and one.first_offset == one.examples[0].offset for one in report.verdict.violations)
    return {(one.partition, one.kind, tuple(example.offset for example in one.examples)) for one in report.verdict.violations}


def counts(report: CheckReport, partition: int) -> dict[str, int]:
    assert report.verdict is not None
    return {kind.name: count for kind, count in report.verdict.counts["b1", TOPIC, partition].items()}


def transactions() -> LogMaker:
    """Aborted and committed transactions, and an open one from offset 11 on."""
    log = LogMaker()
    log.data([(b"a", b"1", NOW), (b"b", b"1", NOW)])
    log.data([(b"a", b"aborted", NOW)] * 2, producer_id=1, transactional=True)
    log.end(1, committed=False)
    log.data([(b"b", b"2", NOW), (b"c", None, NOW)], producer_id=2, transactional=True)
    log.end(2, committed=True)
    log.roll()
    log.data([(b"a", b"3", NOW)])
    log.data([(b"d", b"1", NOW), (b"d", b"2", NOW)], producer_id=3, transactional=True)
    log.roll()
    log.data([(b"a", b"4", NOW)])
    return log


def test_nothing_is_wrong_with_what_the_cleaner_does(spark: Any, data: Directory, options: CheckOptions) -> None:
    logs = {0: usual(), 1: usual(), 2: transactions(), 3: usual(), 4: usual()}
    for number, log in logs.items():
        data.write(number, log)
    data.clean(1, logs[1], now_ms=NOW - 2 * RETENTION)  # sets a delete horizon, which has passed
    first = before(spark, options)
    assert first.ok and [first.before.rows[part] for part in first.parts] == [16, 8, 5, 16, 16]

    data.clean(0, logs[0], now_ms=NOW + 100)
    data.clean(1, logs[1], now_ms=NOW + 100, first_dirty_offset=0)
    data.clean(2, logs[2], end=8, now_ms=NOW + 100)
    data.checkpoint("log-start-offset-checkpoint", {3: 6})
    report = after(spark, replace(options, now_ms=lambda: NOW + 500, topic_configs={**CONFIGS, "cleanup.policy": "compact,delete"}))
    assert violations(report) == set() and report.ok, report
    assert [counts(report, number) for number in range(5)] == [
        {"KEPT": 8, "COMPACTED": 8}, {"KEPT": 7, "DELETED": 1}, {"KEPT": 4, "COMPACTED": 1}, {"KEPT": 10, "EXPIRED": 6}, {"KEPT": 16}]
    with pytest.raises(CommandFailed, match="was altered since --before"):
        after(spark, replace(options, topic_configs={**CONFIGS, "compaction.strategy": "timestamp"}))
    assert (Path(options.state) / "manifest.json").exists() and not (Path(options.state) / "after").exists()


def test_each_planted_fault_is_found_and_nothing_else(spark: Any, data: Directory, options: CheckOptions) -> None:
    logs = {number: usual() for number in range(15)}
    logs[8] = LogMaker()
    logs[8].data([(b"k0", b"v0", NOW)])
    logs[8].data([(b"k1", b"v1", NOW)], gap=1)
    for number, log in logs.items():
        data.write(number, log)
    originals = read(data.partition(0))
    data.clean(11, logs[11], now_ms=NOW - 100)  # its delete horizon is NOW + 900
    before(spark, options)
    for number, log in logs.items():
        if number not in (8, 11):
            data.clean(number, log, now_ms=NOW + 100, make_map=Forgetful if number == 2 else None)
    edits: dict[int, Callable[[list[Record]], list[Record]]] = {
        1: without(11),
        3: without(9),
        4: with_value(12, b"other"),
        5: without(14),
        6: moved({8: 12, 12: 8}, originals),
        7: lambda records: [*([originals[6]] if records[0].offset == 8 else []), *without(11)(records)],
        8: lambda records: [*records, Record(1, NOW, b"k9", b"new")] if records[0].offset == 0 else records,
        9: without(14, 15),
        10: with_value(11, b"no tombstone"),
        11: without(11),
    }
    for number, edit in edits.items():
        data.edit(number, edit)
    position = flip(data.partition(12) / f"{CLEAN_END:020d}.log", 14)
    data.checkpoint("log-start-offset-checkpoint", {14: 2})
    index = data.partition(13) / f"{CLEAN_END:020d}.index"
    index.write_bytes(struct.pack(">II", 2, 7))
    report = after(spark, replace(options, now_ms=lambda: NOW + 500))
    assert violations(report) == {
        (1, Kind.TOMBSTONE_EARLY, (11,)),
        (2, Kind.LOST, (9,)),
        (3, Kind.LOST, (9,)),
        (4, Kind.CHANGED, (12,)),
        (5, Kind.ABOVE_CHECKPOINT, (14,)),
        (6, Kind.REORDERED, (8, 12)),
        (7, Kind.RESURRECTED, (11,)),
        (8, Kind.APPEARED, (1,)),
        (9, Kind.TRUNCATED, (14, 15)),
        (10, Kind.CHANGED, (11,)),
        (11, Kind.TOMBSTONE_EARLY, (11,)),
        (12, Kind.ABOVE_CHECKPOINT, (13, 14, 15)),
        (14, Kind.EXPIRED_WITHOUT_RETENTION, (0, 1)),
    }
    assert not report.ok
    ((damage),) = report.damages
    assert (damage.partition, damage.problem.partition(":")[0]) == (12, f"at position {position}")
    assert {(one.partition, Path(one.path).name) for one in report.faults} == {
        (12, f"{CLEAN_END:020d}.log"), (13, index.name)}
    assert json.loads(json.dumps(report.as_json()))["violations"][0]["kind"] == "tombstone_early"


def test_logs_of_apache_kafka(spark: Any, tmp_path: Path, options: CheckOptions) -> None:
    """Logs that it has compacted, with transactions, and in old formats: silent until the latest record of a key is gone."""
    samples = unpack(tmp_path / "samples")
    topics = ("s-compact", "s-txn", "s-v0-none", "s-v1-gzip")
    chosen = replace(options, source=TopicSource("", topics), log_dirs=str(samples), topic_configs={**CONFIGS, "cleanup.policy": "compact"})
    taken = before(spark, chosen).before
    levels = {part: EXPECTED[f"{part.topic}-{part.partition}"] for part in taken.parts}
    assert taken.rows == {part: one.get("read_committed", one["read_uncommitted"])["records"] for part, one in levels.items()}
    path = samples / "s-compact-0" / f"{2841:020d}.log"
    content = path.read_bytes()
    at, header = next((at, header) for at, header in Scan(content) if header.last_offset == 2999)
    assert header.count == 7, "each is the latest record of its key"
    path.write_bytes(content[:at] + content[at + header.size :])
    index_again(path.parent, 2841)
    report = after(spark, chosen)
    assert report.verdict is not None and not report.faults and not report.damages, report
    assert [(one.topic, one.kind, one.records, one.first_offset) for one in report.verdict.violations] == [
        ("s-compact", Kind.LOST, 7, 2992)]


def read(directory: Path) -> dict[int, Record]:
    found = {}
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        found.update({one.offset: one for at, header in Scan(content) for one in read_records(content, at, header, 10**9)})
    return found


