"""Truncation: no read and no look-up finds anything that was truncated."""

from __future__ import annotations

import errno
from random import Random

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, batch, end_transaction, entries, fill, headers, names, open_log, rows, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from tests.support.fakes.worker import Worker
from txbroker.errors import OutOfResources
from txbroker.log.log import Log
from txbroker.wire.batch import read_header


def index_files(path: DiskPath) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names(path, ".index", ".timeindex", ".txnindex")}


def check_indexes(log: Log, path: DiskPath) -> None:
    """Check that the index files are equal to those built by a scan of the batches."""
    log.close()
    before = index_files(path)
    recovered = open_log(path, clean=False, index_interval_bytes=log.config.index_interval_bytes)
    recovered.close()
    assert index_files(path) == before


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("failing", ["rename", "sync"])
def test_a_truncation_that_is_interrupted_can_be_repeated(directory: DiskPath, fully: bool, failing: str) -> None:
    """Without space, or without descriptors, which passes, the log ends where a segment does, and stays in use."""
    kept: set[int] = set()
    for after in range(6):
        path = directory / str(after)
        disk, worker = FaultyDisk(directory.disk), Worker()
        log = open_log(path, disk=disk, later=worker)
        for _ in range(4):
            fill(log, 4)
            log.roll(NOW)
        worker.run()
        log.flush()
        expected = values(log)
        disk.fail(failing, path=str(path), after=after if failing == "rename" else after // 3, times=1,
                  error=errno.ENOSPC if failing == "rename" else errno.EMFILE)  # fmt: skip
        with pytest.raises(OutOfResources):
            log.truncate_fully_at(3, now_ms=NOW) if fully else log.truncate_to(3)
        expected = expected[: log.log_end_offset]
        kept.add(len(expected))
        assert values(log) == expected
        killed = open_log(path.copy_to(directory / f"{after}-killed"), clean=False)
        assert values(killed) == expected
        append(log, b"a leader may append before")
        log.flush()
        assert values(open_log(path.copy_to(directory / f"{after}-led"), clean=False)) == [*expected, b"a leader may append before"]
        log.truncate_fully_at(3, now_ms=NOW) if fully else log.truncate_to(3)
        log.flush()
        again = open_log(path, clean=False)
        assert values(again) == ([] if fully else expected[:3])
    assert kept == ({16} if failing == "rename" else {16, 12})


@pytest.mark.parametrize("fully", [False, True])
def test_a_loss_of_power_during_a_truncation_leaves_no_gap(fully: bool) -> None:
    """Whichever of the changed names survive, and whatever was appended by a leader before they were synced."""
    ends: set[int] = set()
    for seed in range(60):
        storage, chance = MemoryDisk(), Random(seed)
        disk, path = FaultyDisk(storage), DiskPath(storage, "/data/log")
        storage.make_directory("/data")
        storage.sync("/")
        log = open_log(path, disk=disk, later=lambda *_: None)
        for _ in range(4):
            fill(log, 4)
            log.roll(NOW)
        log.flush()
        before = values(log)
        for _ in range(chance.randint(1, 5)):
            log.restart_towards(2, now_ms=NOW) if fully else log.truncate_towards(3)
            if log.truncation_waits and chance.random() < 0.7:
                log._sync_names()
        expected = before[: log.log_end_offset] if log.log_start_offset == 0 else []
        if chance.random() < 0.5:
            for _ in range(6):
                append(log, b"later")
        storage.power_cut(chance)
        again = open_log(path, clean=False, recovery_point=chance.choice((0, 16)))
        found = [row[3] for row in rows(again)]
        old = [value for value in found if value != b"later"]
        assert old == before[: len(old)]
        assert len(old) >= len(expected)
        offsets = [row[0] for row in rows(again)]
        assert offsets == list(range(again.log_end_offset - len(offsets), again.log_end_offset)), "no gap"
        assert found == old + [b"later"] * (len(found) - len(old))
        for offset in offsets:
            assert rows(again, offset)[0][0] == offset, "each record is found by its offset"
        ends.add(len(old))
    assert len(ends) > 2


@pytest.mark.parametrize("appended", [1, 3, 4, 6])
@pytest.mark.parametrize("recovery_point", [6, 8])
def test_a_segment_that_returns_inside_the_one_before_it_is_removed(directory: DiskPath, appended: int, recovery_point: int) -> None:
    """A leader appended while the removal of a truncated segment was not synced, and a loss of power brought the segment back."""
    log = open_log(directory)
    for base in (0, 4, 8):
        fill(log, 4)
        if base < 8:
            log.roll(NOW)
    log.flush()
    before = values(log)
    returned = {path: path.read_bytes() for path in directory.iterdir() if path.stem == f"{8:020d}" and path.suffix != ".snapshot"}
    log.truncate_to(6)
    for _ in range(2 + appended):
        append(log, b"later")
    expected = before[:6] + [b"later"] * (2 + appended)
    log.flush()
    for path, content in returned.items():
        path.write_bytes(content)
    again = open_log(directory, clean=False, recovery_point=recovery_point)
    append(again, b"last")
    assert values(again) == [*expected, b"last"]
    for offset in range(again.log_end_offset):
        assert rows(again, offset)[0][0] == offset, "each record is found by its offset"


def test_leader_epochs_are_truncated_on_a_full_disk(directory: DiskPath) -> None:
    """Their file stays until the next batch, whatever its epoch."""
    for replicated in (False, True):
        path = directory / str(replicated)
        disk = FaultyDisk(directory.disk)
        log = open_log(path, disk=disk)
        append(log, b"1", leader_epoch=4)
        append(log, b"2", b"3", leader_epoch=5)
        disk.fail("replace", times=1, error=errno.ENOSPC)
        assert log.truncate_to(1)
        assert list(open_log(path.copy_to(directory / f"{replicated}-killed"), clean=False).leader_epochs) == [(4, 0)]
        if replicated:
            log.append_replicated(batch(b"2", b"3", base_offset=1, leader_epoch=4), now_ms=NOW)
        else:
            append(log, b"2", b"3", leader_epoch=4)
        assert list(open_log(path, clean=False).leader_epochs) == [(4, 0)]


def test_empty_segments_are_dropped_without_a_sync(directory: DiskPath) -> None:
    """A new follower begins where its leader's log begins."""
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, later=lambda *_: None)
    assert log.restart_towards(100, now_ms=NOW)
    assert log.log_start_offset == 100 and not log.names_due


@pytest.mark.parametrize("target", range(13))
@pytest.mark.parametrize("reopened", [False, True])
def test_truncation_to_every_offset(directory: DiskPath, target: int, reopened: bool) -> None:
    log = open_log(directory, index_interval_bytes=0, file_delete_delay_ms=0)
    borders = [0]
    for number, count in enumerate((1, 3, 1, 2, 3, 2)):
        if number in (2, 4):
            log.roll(NOW)
        append(log, *(b"old" for _ in range(count)), timestamp=NOW + 10 * number)
        borders.append(log.log_end_offset)
    expected = rows(log)
    if reopened:
        log.close()
        log = open_log(directory, index_interval_bytes=0, file_delete_delay_ms=0)
    assert log.truncate_to(target) == (target < 12)
    end = max(border for border in borders if border <= target)
    assert (log.log_end_offset, rows(log)) == (end, expected[:end])
    assert names(directory, ".deleted") == []
    new = [b"new", b"newer", b"newest"]
    append(log, *new, timestamp=NOW + 3)
    append(log, b"last", timestamp=NOW + 4)
    assert values(log) == [row[3] for row in expected[:end]] + [*new, b"last"]
    for offset in range(log.log_end_offset):
        first = read_header(log.read(offset, 1, offset_end=log.log_end_offset, whole_first_batch=True).region.read())
        assert first.base_offset <= offset <= first.last_offset
    found = rows(log)
    for timestamp in range(NOW - 1, NOW + 60):
        answer = log.offset_for_timestamp(timestamp)
        assert (answer and answer.offset) == next((row[0] for row in found if row[1] >= timestamp), None)
    answer = log.offset_of_max_timestamp()
    assert answer is not None
    assert answer.offset == max(found, key=lambda row: (row[1], -row[0]))[0]


def test_indexes_after_a_truncation_and_appends(directory: DiskPath) -> None:
    log = open_log(directory, index_interval_bytes=100)
    fill(log, 40)
    log.truncate_to(23)
    fill(log, 30, size=33, timestamp=NOW + 22)
    check_indexes(log, directory)


def test_an_offset_within_a_batch_truncates_the_whole_batch(directory: DiskPath) -> None:
    log = open_log(directory)
    for size in (10, 60, 110, 20):
        append(log, b"x" * size)
    for offset in range(4):
        log.read(offset, 10**6, offset_end=4)
    log.truncate_to(1)
    append(log, b"a", b"b", b"c")
    for offset in (1, 2, 3):
        assert read_header(log.read(offset, 10**6, offset_end=4).region.read()).base_offset == 1


def test_truncating_a_marker_removes_its_aborted_transaction(directory: DiskPath) -> None:
    log = open_log(directory)
    for sequence in range(3):
        append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
        end_transaction(log, 5, committed=False)
    assert [found.first_offset for found in log.aborted_transactions(0, 6)] == [0, 2, 4]
    log.truncate_to(3)
    assert [found.first_offset for found in log.aborted_transactions(0, 6)] == [0]
    assert log.last_stable_offset(3) == 2
    end_transaction(log, 5, committed=True)
    assert log.last_stable_offset(4) == 4
    check_indexes(log, directory)


@pytest.mark.parametrize("rolled", [False, True])
def test_a_marker_that_stays_above_the_high_watermark_still_limits_the_last_stable_offset(directory: DiskPath, rolled: bool) -> None:
    """A truncation goes down in steps, and the leader may not have the marker. The snapshot after it does not have the transaction."""
    log = open_log(directory)
    append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 5, committed=False)
    if rolled:
        log.roll(NOW)
    append(log, b"y")
    append(log, b"z")
    assert log.last_stable_offset(1) == 0
    log.truncate_to(3)
    assert log.last_stable_offset(1) == 0
    log.truncate_to(2)
    assert (log.log_end_offset, log.last_stable_offset(1), log.last_stable_offset(2)) == (2, 0, 2)
    log.truncate_to(1)
    assert log.last_stable_offset(1) == 0
    end_transaction(log, 5, committed=True)
    assert (log.last_stable_offset(1), log.last_stable_offset(2)) == (0, 2)


def sequenced(log: Log, sequence: int, producer_id: int = 5) -> bool:
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return append(log, b"x", **options).duplicate  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["truncate", "torn"])
def test_snapshots_above_a_truncation_are_not_used(directory: DiskPath, way: str) -> None:
    log = open_log(directory)
    for sequence in range(6):
        sequenced(log, sequence)
    log.close()
    assert names(directory, ".snapshot") == [f"{6:020d}.snapshot"]
    log = open_log(directory)
    if way == "truncate":
        log.truncate_to(4)
    else:
        last_two = sum(len(data) for _, data in entries(log, 4))
        (directory / f"{0:020d}.log").write_bytes((directory / f"{0:020d}.log").read_bytes()[:-last_two])
        log = open_log(directory, clean=False)
    assert log.log_end_offset == 4
    for sequence in (0, 1):
        assert not sequenced(log, sequence, producer_id=6)
    log.close()
    log = open_log(directory)
    assert sequenced(log, 3)
    assert sequenced(log, 1, producer_id=6)
    assert not sequenced(log, 4)


def test_recovery_leaves_complete_files(directory: DiskPath) -> None:
    log = open_log(directory, index_interval_bytes=0)
    for sequence in range(9):
        sequenced(log, sequence)
        if sequence in (2, 5):
            log.roll(NOW)
    log.close()
    before = index_files(directory)
    for name in names(directory, ".index", ".timeindex", ".snapshot"):
        (directory / name).unlink()
    open_log(directory, clean=False, index_interval_bytes=0)
    assert index_files(directory) == before
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (3, 6)]


def test_a_truncation_below_the_first_segment_empties_the_log(directory: DiskPath) -> None:
    worker = Worker()
    log = open_log(directory, log_start_offset=10, later=worker)
    fill(log, 3)
    assert log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, values(log)) == (4, 4, 4, [])
    worker.wait(60_000)
    assert names(directory, ".log", ".deleted") == [f"{4:020d}.log"]
    append(log, b"x")
    assert [header.base_offset for header in headers(log)] == [4]


def test_a_truncated_log_does_not_reuse_files_that_are_being_deleted(directory: DiskPath) -> None:
    worker = Worker()
    log = open_log(directory, later=worker)
    fill(log, 3)
    log.truncate_fully_at(0, now_ms=NOW)  # the same base offset as the deleted segment
    append(log, b"x")
    worker.wait(60_000)
    assert values(log) == [b"x"]
    assert values(open_log(directory, clean=False)) == [b"x"]
