"""Replacing segments by cleaned ones: readers, indexes and snapshots afterwards, and a crash at each step."""

from __future__ import annotations

import errno
from itertools import count
from random import Random

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log.cleaned import write_cleaned
from tests.log.support import (
    NOW,
    append,
    committed_rows,
    end_transaction,
    names,
    open_log,
    rows,
    values,
)
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import CHANGES, FaultyDisk, Killed
from tests.support.fakes.worker import Worker
from txbroker.errors import NoSpace, StorageError
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.segment_swap import SWAP_MARK, undo
from txbroker.wire.entries import EntryHeader

OLD = (0, 6, 12)


def odd(header: EntryHeader) -> bool:
    """Whether the cleaning keeps a batch: those at odd offsets, and markers."""
    return header.control or header.last_offset % 2 == 1


def kept(log: Log) -> list[bytes | None]:
    """The values that remain after the segments OLD were cleaned."""
    return [value for offset, _, _, value in rows(log) if offset >= 18 or offset % 2 == 1]


def made(path: DiskPath, disk: Disk | None = None, later: Worker | None = None) -> Log:
    """Three segments of six offsets, one of two, and the active one. Some of the first were written in transactions that were aborted."""
    log = open_log(path, disk=disk, index_interval_bytes=50, **({} if later is None else {"later": later}))
    for number in range(20):
        if log.log_end_offset in (6, 12, 18, 20):
            log.roll(NOW)
        if number in (3, 9):
            append(log, f"aborted {number}".encode(), producer_id=5, producer_epoch=0, base_sequence=number // 9, transactional=True)
        elif number in (4, 10):
            end_transaction(log, 5, committed=False)
        else:
            append(log, f"value {number}".encode(), timestamp=NOW + number, producer_id=100 + number, producer_epoch=0, base_sequence=0)
    log.roll(NOW)
    append(log, b"last")
    return log


def replaced(log: Log, aside: DiskPath) -> bool:
    return replace(log, write_cleaned(log, OLD, odd, aside))


def replace(log: Log, size: int, bases: tuple[int, ...] = OLD, generation: int | None = None) -> bool:
    """Begin to replace segments; an error of a later step is raised if that is not in a worker."""
    errors: list[StorageError] = []
    begun = log.replace_segments(
        bases,
        size=size,
        generation=log.generation if generation is None else generation,
        now_ms=NOW,
        done=lambda error: errors.append(error) if error is not None else None,
    )
    if errors:
        raise errors[0]
    return begun


def facts(log: Log) -> tuple[object, ...]:
    """State that must be the same with the old and with the new segments."""
    return committed_rows(log)[-2:], log.log_end_offset, log.log_start_offset, sorted(state.producer_id for state in log.producers)


def test_a_cleaned_segment_replaces_three(directory: DiskPath) -> None:
    later = Worker()
    log = made(directory / "log", later=later)
    later.run()
    wanted, aborted, size = kept(log), log.aborted_transactions(0, 20), log.size
    assert len(aborted) == 2
    reading = log.read(0, 1 << 20, offset_end=20).region
    before = reading.read()
    assert replaced(log, directory / "aside")
    assert log.names_due, "no segment may leave meanwhile"
    assert not log.truncate_towards(3)
    assert log.expire(NOW + 10**12, 20) is None
    assert values(log) != wanted, "the names of the new files are not durable yet"
    later.run()
    assert not log.names_due
    assert [segment.base_offset for segment in log.segments] == [0, 18, 20]
    assert values(log) == wanted
    assert log.size < size
    assert log.size == sum((directory / "log" / name).size() for name in names(directory / "log", ".log"))
    assert log.aborted_transactions(0, 20) == aborted
    assert reading.read() == before, "a region stays readable"
    for offset in range(21):
        assert [row[3] for row in rows(log, offset)] == [row[3] for row in rows(log) if row[0] >= offset]
    for timestamp in (NOW, NOW + 5, NOW + 13, NOW + 17, NOW + 19):
        found = log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found.offset == next(offset for offset, stamp, _, _ in rows(log) if stamp >= timestamp)
    assert {name.split(".")[0] for name in names(directory / "log", ".snapshot")} == {f"{offset:020d}" for offset in (18, 20)}
    assert len(names(directory / "log", ".deleted")) >= 9 + 2
    later.wait(60_000)
    assert names(directory / "log", ".deleted", ".swap", ".cleaned") == []


def test_the_directory_is_synced_before_the_old_files_go(directory: DiskPath) -> None:
    disk, later = FaultyDisk(directory.disk), Worker()
    log = made(directory / "log", disk, later)
    later.run()
    disk.done.clear()
    assert replaced(log, directory / "aside")
    assert {operation for operation, _ in disk.done}.isdisjoint({"sync", "remove"}), "no sync in the reactor thread"
    disk.done.clear()
    later.run()
    syncs = [at for at, (operation, path) in enumerate(disk.done) if (operation, path) == ("sync", f"{directory}/log")]
    renames = [at for at, (operation, _) in enumerate(disk.done) if operation == "rename"]
    removed = disk.done.index(("remove", f"{directory}/log/{SWAP_MARK}"))
    assert syncs[0] < renames[0] < renames[-1] < syncs[1] < removed < syncs[2]
    disk.done.clear()
    later.wait(60_000)
    assert disk.done[0] == ("sync", f"{directory}/log")
    assert len(disk.done) >= 12
    assert all(operation == "remove" and path.endswith(".deleted") for operation, path in disk.done[1:])


def test_changed_segments_are_not_replaced(directory: DiskPath) -> None:
    log = made(directory / "log")
    size = write_cleaned(log, OLD, odd, directory / "aside")
    everything, files = values(log), names(directory / "log")
    for bases, bytes_, generation in (
        (OLD, size, log.generation + 1),
        (OLD, size + 1, log.generation),
        ((0, 12), size, log.generation),
        ((0, 6, 13), size, log.generation),
        ((1, 6, 12), size, log.generation),
        ((18,), size, log.generation),
        ((20,), 0, log.generation),
        ((18, 20), 0, log.generation),
    ):
        assert not replace(log, bytes_, bases, generation), bases
    assert (values(log), names(directory / "log")) == (everything, files)
    log.advance_start(6)
    log.delete_expired(NOW, log.log_end_offset)
    assert not replace(log, size), "retention deleted the segments first"


def test_retention_waits_for_a_cleaning(directory: DiskPath) -> None:
    log = made(directory / "log")
    log.advance_start(12)
    log.being_cleaned = True
    assert log.delete_expired(NOW, log.log_end_offset) == 0
    log.being_cleaned = False
    assert log.delete_expired(NOW, log.log_end_offset) == 2


def test_a_cleaned_segment_may_be_empty(directory: DiskPath) -> None:
    log = made(directory / "log")
    end = log.log_end_offset
    size = write_cleaned(log, OLD, lambda header: False, directory / "aside")
    assert size == 0
    assert replace(log, 0)
    assert values(log) == [b"value 18", b"value 19", b"last"]
    assert rows(log, 3) == rows(log)
    log.close()
    for clean in (True, False):
        log = open_log(directory / "log", clean=clean, recovery_point=end)
        assert (values(log), log.log_start_offset, log.log_end_offset) == ([b"value 18", b"value 19", b"last"], 0, end)


def test_a_full_disk_keeps_the_old_segments_or_takes_the_directory_offline(directory: DiskPath) -> None:
    outcomes: list[str] = []
    for renames in range(100):
        disk = FaultyDisk(directory.disk)
        log = made(directory / f"{renames}", disk)
        everything, new, size = values(log), kept(log), write_cleaned(log, OLD, odd, directory / "aside")
        disk.fail("rename", after=renames, error=errno.ENOSPC)
        try:
            assert replace(log, size)
        except NoSpace:
            outcomes.append("went on")
            assert values(log) == everything
            disk.repair()
            undo(disk, f"{directory}/{renames}")
            assert names(directory / f"{renames}", ".swap", ".cleaned", SWAP_MARK) == []
        except StorageError as error:
            assert str(error).startswith("a cleaned segment could not replace others: ")
            outcomes.append("offline")
            assert values(open_log(directory / f"{renames}", clean=False, recovery_point=18)) == new
        else:
            assert values(log) == new
            break
    assert outcomes == ["went on"] * 4 + ["offline"] * (len(outcomes) - 4)
    assert len(outcomes) > 15


@pytest.mark.parametrize("everything_goes", [False, True])
def test_after_a_crash_the_log_has_the_old_or_the_new_segments(directory: DiskPath, everything_goes: bool) -> None:
    original = made(directory / "original")
    keep = (lambda header: False) if everything_goes else odd
    old, new = values(original), [b"value 18", b"value 19", b"last"] if everything_goes else kept(original)
    expected, aborted = facts(original), original.aborted_transactions(0, 20)
    size = write_cleaned(original, OLD, keep, directory / "aside")
    original.close()
    seen: list[str] = []

    def check(path: DiskPath) -> str:
        """Open the log in `path` and check it; whether it has the old or the new segments."""
        log = open_log(path, clean=False, recovery_point=18)
        found = values(log)
        state = "old" if found == old else "new" if found == new else "between"
        assert state != "between"
        assert facts(log) == expected
        assert everything_goes or log.aborted_transactions(0, 20) == aborted
        assert names(path, ".cleaned", ".swap", ".deleted", SWAP_MARK) == []
        assert append(log, b"more").first_offset == 21
        log.close()
        assert values(open_log(path)) == [*found, b"more"]
        return state

    for life in count():
        path = (directory / "original").copy_to(directory / f"at{life}")
        # The loader removes the files of the cleaning, so they are written again after opening.
        cleaned = {name: (path / name).read_bytes() for name in names(path, ".cleaned")}
        disk = FaultyDisk(directory.disk)
        log = open_log(path, disk=disk, file_delete_delay_ms=0)
        for name, content in cleaned.items():
            (path / name).write_bytes(content)
        disk.fail(CHANGES, after=life, error=Killed)
        died = False
        try:
            assert replace(log, size)
        except Killed:
            died = True
        if names(path, SWAP_MARK) and not names(path, ".cleaned"):
            for second in count():  # the start that completes the swap may be killed at any step too
                again = path.copy_to(directory / f"at{life}.{second}")
                dying = FaultyDisk(directory.disk)
                dying.fail(CHANGES, after=second, error=Killed)
                try:
                    open_log(again, disk=dying, clean=False, recovery_point=18)
                except Killed:
                    assert check(again) == "new"
                    again.remove_tree()
                else:
                    break
        seen.append(check(path))
        path.remove_tree()
        if not died:
            break
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert sorted(seen, key=["old", "new"].index) == seen, "later steps never lead back to the old segments"
    assert len(seen) > 20


@pytest.mark.parametrize("everything_goes", [False, True])
def test_after_a_loss_of_power_the_log_has_the_old_or_the_new_segments(everything_goes: bool) -> None:
    """Whichever of the changed names survive; the process was killed before one of its changes, or before a sync."""
    seen: list[str] = []
    for life in count():
        died = False
        for seed in range(5):
            state, died = after_a_loss_of_power(everything_goes, life, seed)
            seen.append(state)
        if not died:
            break
    assert set(seen[:5]) == {"old"}
    assert set(seen[-5:]) == {"new"}
    assert len(seen) > 100


def after_a_loss_of_power(everything_goes: bool, life: int, seed: int) -> tuple[str, bool]:
    """Which segments the log has, and whether the process was killed, after `life` changes and syncs."""
    storage = MemoryDisk()
    disk, root = FaultyDisk(storage), DiskPath(storage, "/data").made()
    log = made(root / "log", disk)
    old, new = values(log), [b"value 18", b"value 19", b"last"] if everything_goes else kept(log)
    aborted = log.aborted_transactions(0, 20)
    log.flush()
    size = write_cleaned(log, OLD, (lambda header: False) if everything_goes else odd, root / "aside")
    for path in [*(f"/data/log/{name}" for name in names(root / "log")), "/data/log", "/data", "/"]:
        storage.sync(path)
    disk.fail(CHANGES | {"sync"}, after=life, error=Killed)
    died = False
    try:
        assert replace(log, size)
    except Killed:
        died = True
    storage.power_cut(Random(seed))
    again = open_log(root / "log", clean=False, recovery_point=18)
    found = values(again)
    assert found in (old, new)
    assert again.log_end_offset == 21
    assert everything_goes or again.aborted_transactions(0, 20) == aborted
    assert names(root / "log", ".cleaned", ".swap", ".deleted", SWAP_MARK) == []
    return "old" if found == old else "new", died


def test_the_active_segment_is_not_replaced(directory: DiskPath) -> None:
    log = made(directory / "log")
    everything = values(log)
    for bases in ((20,), (18, 20)):
        size = write_cleaned(log, bases, lambda header: True, directory / f"aside{len(bases)}")
        assert not replace(log, size, bases), bases
    assert values(log) == everything
    append(log, b"more")
    assert values(log) == [*everything, b"more"]


@pytest.mark.parametrize("everything_goes", [False, True])
def test_a_cleaned_segment_that_is_active_after_a_truncation_is_written_to(directory: DiskPath, everything_goes: bool) -> None:
    log = made(directory / "log")
    size = write_cleaned(log, OLD, (lambda header: False) if everything_goes else odd, directory / "aside")
    assert replace(log, size)
    log.truncate_to(14)
    left = values(log)
    assert [segment.base_offset for segment in log.segments] == [0]
    for number in range(20):  # enough for entries in the indexes
        append(log, b"again %d" % number, timestamp=NOW + 100 + number, now_ms=NOW + 1000)
    assert values(log) == [*left, *(b"again %d" % number for number in range(20))]
    found = log.offset_for_timestamp(NOW + 110)
    assert found is not None and found.offset == 24


def test_an_empty_cleaned_segment_that_is_active_rolls_by_the_time_of_the_cleaning(directory: DiskPath) -> None:
    log = made(directory / "log")
    size = write_cleaned(log, OLD, lambda header: False, directory / "aside")
    assert replace(log, size)
    log.truncate_to(14)
    log.config = LogConfig(index_interval_bytes=50, segment_ms=1000)
    for after_ms, segments in ((100, 1), (900, 1), (1001, 2)):  # records without timestamps
        append(log, b"v", timestamp=-1, now_ms=NOW + after_ms)
        assert len(log.segments) == segments
