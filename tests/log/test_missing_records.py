"""A start on a directory whose files do not have all records: it says which are missing, serves the rest, and keeps the evidence."""

from __future__ import annotations

import contextlib
import errno
from typing import Any

import pytest

from tests.log.support import NOW, PARTITION, append, batch, fill, names, open_log, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import CHANGES, FaultyDisk, Killed
from txbroker.log.log import Log
from txbroker.log.missing_file import FILE_NAME, parse_missing
from txbroker.log.missing_records import Missing
from txbroker.logtools.partition_check import PartitionCheck

BASES = (0, 4, 8, 12)
COMPACTED = {"cleanup_policy": frozenset({"compact"})}


def written(directory: DiskPath, **options: Any) -> list[bytes | None]:
    """A cleanly closed log with four records in each of four segments; its values."""
    log = open_log(directory, **options)
    for base in BASES:
        fill(log, 4)
        if base < BASES[-1]:
            log.roll(NOW)
    found = values(log)
    log.close()
    return found


def ranges(log: Log) -> list[tuple[int, int]]:
    return [(missing.start, missing.end) for missing in log.missing]


def remove(directory: DiskPath, base: int, *suffixes: str) -> None:
    for suffix in suffixes:
        (directory / f"{base:020d}{suffix}").unlink()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")], ids=["log", "segment"])
def test_a_closed_segment_is_gone(directory: DiskPath, caplog: pytest.LogCaptureFixture, suffixes: tuple[str, ...], clean: bool) -> None:
    expected = written(directory)
    remove(directory, 4, *suffixes)
    for _ in range(3):
        log = open_log(directory, clean=clean, recovery_point=16)
        assert ranges(log) == [(4, 8)], "at every start"
        assert values(log) == expected[:4] + expected[8:]
        assert not (directory / f"{4:020d}.log").exists()
        log.close()
    assert "the records from offset 4 to 7 are missing" in caplog.text
    assert f"{4:020d}" in caplog.text


def test_a_closed_segment_is_gone_with_its_indexes_and_snapshot(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    """No name shows it: the first reader that comes there does, once."""
    expected = written(directory)
    remove(directory, 4, ".log", ".index", ".timeindex", ".snapshot")
    log = open_log(directory)
    assert ranges(log) == []
    for _ in range(3):
        assert values(log) == expected[:4] + expected[8:]
    assert ranges(log) == [(4, 8)]
    assert caplog.text.count("the records from offset 4 to 7 are missing") == 1
    assert "readers continue at offset 8" in caplog.text


def test_the_first_segment_is_gone(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    expected = written(directory)
    remove(directory, 0, ".log", ".index", ".timeindex")
    log = open_log(directory, recovery_point=16)
    assert (ranges(log), log.log_start_offset, values(log)) == ([(0, 4)], 4, expected[4:])
    assert "leader-epoch-checkpoint" in caplog.text


@pytest.mark.parametrize("known", ["recovery_point", "high_watermark"])
@pytest.mark.parametrize("clean", [True, False])
def test_the_last_segment_is_gone(directory: DiskPath, caplog: pytest.LogCaptureFixture, known: str, clean: bool) -> None:
    expected = written(directory)
    remove(directory, 12, ".log", ".index", ".timeindex")
    log = open_log(directory, clean=clean, **{known: 16})
    assert (ranges(log), log.log_end_offset, values(log)) == ([(12, 16)], 12, expected[:12])
    (level,) = {record.levelname for record in caplog.records if "are missing" in record.message}
    assert level == ("ERROR" if clean or known == "recovery_point" else "WARNING")
    assert append(log, b"more").first_offset == 12


def test_all_segments_are_gone(directory: DiskPath) -> None:
    written(directory)
    for base in BASES:
        remove(directory, base, ".log", ".index", ".timeindex")
    log = open_log(directory, clean=False, high_watermark=16)
    assert (ranges(log), values(log)) == ([(0, 16)], [])


def test_a_segment_between_others_is_too_short(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    expected = written(directory)
    path = directory / f"{4:020d}.log"
    path.truncate(path.size() // 2)
    log = open_log(directory, clean=False)
    assert (ranges(log), values(log)) == ([(6, 8)], expected[:6] + expected[8:]) or log.log_end_offset == 6
    log.close()


def test_the_file_of_leader_epochs_is_gone(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    written(directory)
    remove(directory, 0, ".log", ".index", ".timeindex")
    (directory / "leader-epoch-checkpoint").unlink()
    log = open_log(directory, recovery_point=16)
    assert list(log.leader_epochs) == [(0, 4)]
    assert "leader-epoch-checkpoint is missing" in caplog.text


# The next starts, and `log verify`


LOSSES = {"first": (0, (0, 4)), "middle": (4, (4, 8)), "last": (12, (12, 16))}


def lose(directory: DiskPath, base: int) -> dict[str, bytes]:
    """Lose the files of a segment; their content."""
    paths = [directory / name for name in names(directory) if name.startswith(f"{base:020d}") and not name.endswith(".snapshot")]
    lost = {path.name: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return lost


def verified(directory: DiskPath) -> list[str]:
    check = PartitionCheck(directory.disk, str(directory), PARTITION, live=False, clean=True, advance=lambda done, records: None)
    return [finding.problem for finding in check.run().findings.kept if finding.path.endswith(FILE_NAME)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_each_start_and_a_verification_name_what_is_missing(
    directory: DiskPath, caplog: pytest.LogCaptureFixture, loss: str, ending: str
) -> None:
    written(directory)
    base, expected = LOSSES[loss]
    lose(directory, base)
    text = f"the records from offset {expected[0]} to {expected[1] - 1} are missing"
    checkpoints = {"recovery_point": 16, "high_watermark": 16}
    for epoch in range(1, 5):
        caplog.clear()
        log = open_log(directory, clean=epoch == 1 or ending == "closed", **checkpoints)
        assert ranges(log) == [expected]
        assert sum(record.levelname == "ERROR" and text in record.message for record in caplog.records) == 1
        append(log, b"later", b"and later", leader_epoch=epoch)
        log.flush()
        checkpoints = {"recovery_point": log.recovery_point, "high_watermark": log.log_end_offset}
        if ending == "closed":
            log.close()
        assert [text in problem for problem in verified(directory)] == [True]


@pytest.mark.parametrize("loss", LOSSES)
def test_records_that_are_back_are_not_missing(directory: DiskPath, loss: str) -> None:
    """Their files are restored from a backup."""
    expected = written(directory)
    base, _ = LOSSES[loss]
    lost = lose(directory, base)
    epochs = (directory / "leader-epoch-checkpoint").read_bytes()
    log = open_log(directory, recovery_point=16)
    assert len(ranges(log)) == 1
    log.close()
    assert len(verified(directory)) == 1
    for name, content in lost.items():
        (directory / name).write_bytes(content)
    (directory / "leader-epoch-checkpoint").write_bytes(epochs)
    assert verified(directory) == []
    log = open_log(directory)
    assert (ranges(log), values(log)) == ([], expected)
    assert FILE_NAME not in names(directory)


def test_records_that_a_leader_has_sent_again_are_not_missing(directory: DiskPath) -> None:
    written(directory)
    lose(directory, 12)
    log = open_log(directory, recovery_point=16)
    log.append_replicated(batch(b"12", b"13", base_offset=12, leader_epoch=0), now_ms=NOW)
    log.close()
    log = open_log(directory, recovery_point=14)
    assert ranges(log) == [(12, 16)]
    log.append_replicated(batch(b"14", b"15", base_offset=14, leader_epoch=0), now_ms=NOW)
    log.close()
    assert ranges(open_log(directory, recovery_point=16)) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_below_the_log_start_offset_is_no_longer_missing(directory: DiskPath, loss: str) -> None:
    written(directory)
    base, (_, end) = LOSSES[loss]
    lose(directory, base)
    log = open_log(directory, recovery_point=16)
    append(log, *[b"later"] * 20, leader_epoch=1)
    log.advance_start(end - 1)
    assert len(ranges(log)) == 1
    log.advance_start(end + 1)
    assert ranges(log) == []
    start = log.log_start_offset
    log.close()
    assert verified(directory) == []
    assert ranges(open_log(directory, log_start_offset=start)) == []
    assert FILE_NAME not in names(directory)


def test_what_a_truncation_removes_is_no_longer_missing(directory: DiskPath) -> None:
    written(directory)
    lose(directory, 4)
    lose(directory, 12)
    log = open_log(directory, recovery_point=16)
    assert ranges(log) == [(4, 8), (12, 16)]
    log.truncate_to(10)
    assert ranges(log) == [(4, 8)]
    log.close()
    log = open_log(directory, recovery_point=10)
    assert ranges(log) == [(4, 8)]
    log.truncate_fully_at(20, now_ms=NOW)
    log.close()
    assert ranges(open_log(directory, recovery_point=20)) == []
    assert FILE_NAME not in names(directory)


@pytest.mark.parametrize("content", [b"", b"0\n1\n4 8", b"1\n0\n", b"0\n1\n8 4 0 x\n", b"0\n1\n4 8 x x\n", b"\xff" * 20, b"0\n1\n4 8 0\n"])
def test_a_malformed_file_is_an_error_with_its_name(directory: DiskPath, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    expected = written(directory)
    (directory / FILE_NAME).write_bytes(content)
    for _ in range(2):
        caplog.clear()
        log = open_log(directory)
        assert (ranges(log), values(log)) == ([], expected)
        (line,) = [record.message for record in caplog.records if FILE_NAME in record.message]
        assert "is malformed" in line
        log.close()
        assert len(verified(directory)) == 1


def test_the_file_is_text(directory: DiskPath) -> None:
    written(directory)
    lose(directory, 12)
    open_log(directory, recovery_point=16)
    content = (directory / FILE_NAME).read_bytes()
    evidence = f"the log in {directory} ends there, but the recovery point is 16"
    assert content.decode() == f"0\n1\n12 16 0 {evidence}\n"
    assert parse_missing(content) == [Missing(12, 16, evidence, 0)]


def test_a_start_without_space_for_the_file_serves_the_log(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    expected = written(directory)
    lose(directory, 12)
    disk = FaultyDisk(directory.disk)
    disk.fail("replace", error=errno.ENOSPC)
    log = open_log(directory, disk=disk, recovery_point=16)
    assert (ranges(log), values(log)) == ([(12, 16)], expected[:12])
    assert f"{FILE_NAME} cannot be written" in caplog.text


# No false alarms


@pytest.mark.parametrize("marked", [1, 2, 3])
def test_a_deletion_that_was_killed_is_no_loss(directory: DiskPath, marked: int) -> None:
    """The first segment was being deleted by retention: not all of its files have the mark."""
    written(directory)
    for suffix in (".log", ".index", ".timeindex")[:marked]:
        (directory / f"{0:020d}{suffix}").rename(directory / f"{0:020d}{suffix}.deleted")
    log = open_log(directory, clean=False, recovery_point=16, high_watermark=16)
    assert ranges(log) == []
    log.close()
    assert ranges(open_log(directory, recovery_point=16, high_watermark=16)) == []
    assert not [name for name in names(directory) if name.startswith(f"{0:020d}")]


def test_a_start_that_is_killed_while_it_removes_a_deleted_segment_is_no_loss(directory: DiskPath) -> None:


    written(directory)
    (directory / f"{4:020d}.log").rename(directory / f"{4:020d}.log.deleted")
    for changes in range(6):
        copy = directory.copy_to(directory.parent / f"killed-{changes}")
        disk = FaultyDisk(copy.disk)
        disk.fail(CHANGES, after=changes, error=Killed)
        with contextlib.suppress(Killed):
            open_log(copy, disk=disk, clean=False, recovery_point=16)
        log = open_log(copy, clean=False, recovery_point=16)
        assert not any("is gone" in missing.evidence for missing in log.missing)


def test_a_compacted_log_has_gaps(directory: DiskPath) -> None:
    """A segment that compaction emptied, and the snapshot of a clean close in the middle of what it removed."""
    log = open_log(directory, **COMPACTED)
    for base in BASES:
        fill(log, 4)
        if base < BASES[-1]:
            log.roll(NOW)
    log.close()
    (directory / f"{4:020d}.log").truncate(0)
    for suffix in (".index", ".timeindex"):
        (directory / f"{4:020d}{suffix}").truncate(0)
    (directory / f"{6:020d}.snapshot").write_bytes((directory / f"{4:020d}.snapshot").read_bytes())
    log = open_log(directory, **COMPACTED, recovery_point=16)
    assert len(values(log)) == 12
    assert ranges(log) == []


def test_the_lost_log_file_of_a_compacted_log_is_found_by_its_index(directory: DiskPath) -> None:
    written(directory, **COMPACTED)
    remove(directory, 4, ".log")
    assert ranges(open_log(directory, **COMPACTED)) == [(4, 8)]


def test_the_snapshot_of_a_clean_close_within_a_segment_is_no_evidence(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 2)
    log.close()
    log = open_log(directory, recovery_point=2)
    fill(log, 2)
    log.roll(NOW)
    fill(log, 1)
    log.close()
    assert f"{2:020d}.snapshot" in names(directory)
    log = open_log(directory, recovery_point=5, high_watermark=5)
    assert ranges(log) == []
    assert f"{2:020d}.snapshot" not in names(directory), "no segment begins there"


def test_a_message_says_what_is_missing() -> None:
    assert str(Missing(4, 8, "x is gone")) == "the records from offset 4 to 7 are missing: x is gone"
