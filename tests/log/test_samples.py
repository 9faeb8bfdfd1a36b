"""Logs that Apache Kafka 3.9.1 wrote, in every format and codec: they are opened, read and recovered without changes."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import NOW, Row, committed_rows, rows
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.errors import BrokerError
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.producer_snapshots import format_snapshot, parse_snapshot
from txbroker.names import parse_partition_directory

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logs" / "kafka-3.9.1.json").read_text())


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sample logs in one directory. What Kafka's own consumer read of them is in EXPECTED."""
    directory = tmp_path_factory.mktemp("samples")
    with tarfile.open(GOLDEN / "logs" / "kafka-3.9.1.tar.xz") as archive:
        archive.extractall(directory)  # a trusted archive; `filter` needs Python 3.11.4
    for path in (GOLDEN / "kafka-3.9.1" / "data").iterdir():
        if path.is_dir():
            shutil.copytree(path, directory / path.name)
    assert {path.name for path in directory.iterdir()} == set(EXPECTED)
    return directory


def opened(path: Path, **options: Any) -> Log:
    topic_partition = parse_partition_directory(path.name)
    assert topic_partition is not None
    return Log.open(str(path), topic_partition, disk=UnsyncedDisk(), config=LogConfig(), now_ms=NOW, **options)


def digest(found: list[Row]) -> dict[str, Any]:
    def text(content: bytes | None) -> str | None:
        return None if content is None else content.hex()

    lines = "".join(f"{offset} {timestamp} {text(key)} {text(value)}\n" for offset, timestamp, key, value in found)
    return {"records": len(found), "digest": hashlib.sha256(lines.encode()).hexdigest()[:16]}


def check(log: Log, name: str) -> None:
    expected = EXPECTED[name]
    assert log.log_end_offset == expected["end_offset"]
    if "read_uncommitted" in expected:
        assert digest(rows(log, bytes_max=3000)) == expected["read_uncommitted"]
    if "read_committed" in expected:
        assert digest(committed_rows(log)) == expected["read_committed"]
    if "aborted" in expected:
        assert [list(found) for found in log.aborted_transactions(0, log.log_end_offset)] == expected["aborted"]


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_cleanly_closed_log_reads_as_with_kafka_and_is_not_changed(originals: Path, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copytree(originals / name, tmp_path / name))
    before = files(path)
    log = opened(path)
    check(log, name)
    log.close()
    after = files(path)
    if log.log_end_offset == 0:  # a leader epoch without records is removed, as in Kafka
        assert after.pop("leader-epoch-checkpoint") == b"0\n0\n"
        assert before.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert after == before


@pytest.mark.parametrize("name", EXPECTED)
def test_recovery_restores_the_same_log(originals: Path, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copytree(originals / name, tmp_path / name))
    for file in path.iterdir():
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()
    log = opened(path, clean=False)
    check(log, name)
    log.close()
    check(opened(path), name)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("__")])
def test_rebuilt_indexes_agree_with_kafkas(originals: Path, tmp_path: Path, name: str) -> None:
    kafkas = opened(Path(shutil.copytree(originals / name, tmp_path / "a" / name)))
    path = Path(shutil.copytree(originals / name, tmp_path / "b" / name))
    for file in path.iterdir():
        if file.suffix in (".index", ".timeindex"):
            file.unlink()
    ours = opened(path)
    for offset in range(ours.log_end_offset):
        read = ours.read(offset, 1, offset_end=ours.log_end_offset, whole_first_batch=True)
        other = kafkas.read(offset, 1, offset_end=ours.log_end_offset, whole_first_batch=True)
        assert (read.region.position, read.region.length) == (other.region.position, other.region.length)
    timestamps = sorted({row[1] for row in rows(kafkas)})
    for timestamp in {t + shift for t in timestamps[:: max(1, len(timestamps) // 25)] for shift in (-1, 0, 1)}:
        assert ours.offset_for_timestamp(timestamp) == kafkas.offset_for_timestamp(timestamp)
    assert ours.offset_of_max_timestamp() == kafkas.offset_of_max_timestamp()
    for one, other_segment in zip(ours.segments, kafkas.segments, strict=True):
        assert one.max_timestamp[0] == other_segment.max_timestamp[0]


def test_look_ups_by_time_agree_with_a_linear_search(originals: Path, tmp_path: Path) -> None:
    log = opened(Path(shutil.copytree(originals / "s-segments-0", tmp_path / "s-segments-0")))
    found = rows(log)
    for timestamp in range(min(row[1] for row in found) - 1, max(row[1] for row in found) + 2, 97):
        expected = next(((row[1], row[0], 0) for row in found if row[1] >= timestamp), None)
        assert log.offset_for_timestamp(timestamp) == expected
    largest = max(found, key=lambda row: row[1])
    assert log.offset_of_max_timestamp() == (largest[1], largest[0], 0)


def test_snapshots_are_written_as_kafka_writes_them(originals: Path) -> None:
    paths = sorted(originals.rglob("*.snapshot"))
    assert len(paths) > 30
    for path in paths:
        content = path.read_bytes()
        states = parse_snapshot(content)
        assert len(states) == (len(content) - 10) // 46
        assert format_snapshot(states) == content


def test_metadata_and_epochs_are_read(originals: Path, tmp_path: Path) -> None:
    log = opened(Path(shutil.copytree(originals / "s-txn-0", tmp_path / "s-txn-0")))
    assert (originals / "s-txn-0" / "partition.metadata").read_text().endswith("topic_id: F-TFO20uRGmiysMY-DWj_w")
    assert log.topic_id.hex() == "17e4c53b6d2e4469a2cac318f835a3ff"
    assert list(log.leader_epochs) == [(0, 0)]
    with pytest.raises(BrokerError):
        log.assign_topic_id(bytes(15) + b"\x07")
