"""Cleaned segments take the place of old ones: readers, indexes and snapshots afterwards, and what a crash leaves at each step."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.log.cleaned import write_cleaned
from tests.log.support import (
    NOW,
    QuickDisk,
    Worker,
    append,
    committed_rows,
    end_transaction,
    names,
    open_log,
    rows,
    values,
)
from txbroker.errors import NoSpace, StorageError
from txbroker.log.disk import Buffer
from txbroker.log.log import Log
from txbroker.wire.entries import EntryHeader

OLD = (0, 6, 12)


class _Dead(BaseException):
    """The process was killed."""


class MortalDisk(QuickDisk):
    """A disk whose process dies once it has done `life` things that change names or contents."""

    def __init__(self, life: int = 10**9) -> None:
        self.life = life

    def _age(self) -> None:
        if self.life == 0:
            raise _Dead
        self.life -= 1

    def rename(self, old: str, new: str) -> None:
        self._age()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._age()
        super().remove(path)

    def write(self, path: str, data: Buffer) -> None:
        self._age()
        super().write(path, data)

    def replace(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self._age()
        super().replace(path, data, sync=sync)


def odd(header: EntryHeader) -> bool:
    """Which of the data batches a cleaning keeps: those of odd offsets. Markers stay."""
    return header.control or header.last_offset % 2 == 1


def kept(log: Log) -> list[bytes | None]:
    """What is to be left of a log whose segments OLD were cleaned."""
    return [value for offset, _, _, value in rows(log) if offset >= 18 or offset % 2 == 1]


def made(path: Path, disk: QuickDisk | None = None, later: Worker | None = None) -> Log:
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


def replaced(log: Log, aside: Path, disk: QuickDisk | None = None) -> bool:
    size = write_cleaned(log, OLD, odd, aside, QuickDisk())
    return log.replace_segments(OLD, size=size, generation=log.generation, now_ms=NOW)


def facts(log: Log) -> tuple[object, ...]:
    """All that must be the same whichever copy of a segment there is."""
    return committed_rows(log)[-2:], log.log_end_offset, log.log_start_offset, sorted(state.producer_id for state in log.producers)


def test_a_cleaned_segment_takes_the_place_of_three(tmp_path: Path) -> None:
    later = Worker()
    log = made(tmp_path / "log", later=later)
    later.run()
    wanted, aborted, size = kept(log), log.aborted_transactions(0, 20), log.size
    assert len(aborted) == 2
    reading = log.read(0, 1 << 20, offset_end=20).region
    before = reading.read()
    assert replaced(log, tmp_path / "aside")
    assert [segment.base_offset for segment in log.segments] == [0, 18, 20]
    assert values(log) == wanted
    assert log.size < size
    assert log.size == sum((tmp_path / "log" / name).stat().st_size for name in names(tmp_path / "log", ".log"))
    assert log.aborted_transactions(0, 20) == aborted
    assert reading.read() == before, "who has begun to read reads on"
    for offset in range(21):
        assert [row[3] for row in rows(log, offset)] == [row[3] for row in rows(log) if row[0] >= offset]
    for timestamp in (NOW, NOW + 5, NOW + 13, NOW + 17, NOW + 19):
        found = log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found.offset == next(offset for offset, stamp, _, _ in rows(log) if stamp >= timestamp)
    assert {name.split(".")[0] for name in names(tmp_path / "log", ".snapshot")} == {f"{offset:020d}" for offset in (18, 20)}
    assert len(names(tmp_path / "log", ".deleted")) >= 9 + 2
    later.run()
    assert names(tmp_path / "log", ".deleted", ".swap", ".cleaned") == []


def test_the_directory_is_synced_before_the_old_files_go(tmp_path: Path) -> None:
    done: list[str] = []

    class Telling(QuickDisk):
        def sync(self, path: str) -> None:
            done.append(f"sync {path}")

        def remove(self, path: str) -> None:
            done.append(f"remove {path}")
            super().remove(path)

    later = Worker()
    log = made(tmp_path / "log", Telling(), later)
    later.run()
    done.clear()
    assert replaced(log, tmp_path / "aside")
    assert done == [], "the reactor waits for no disk"
    later.run()
    assert done[0] == f"sync {tmp_path / 'log'}"
    assert len(done) >= 12
    assert all(line.startswith("remove ") and line.endswith(".deleted") for line in done[1:])


def test_nothing_is_replaced_that_is_not_as_it_was(tmp_path: Path) -> None:
    log = made(tmp_path / "log")
    size = write_cleaned(log, OLD, odd, tmp_path / "aside", QuickDisk())
    everything, files = values(log), names(tmp_path / "log")
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
        assert not log.replace_segments(bases, size=bytes_, generation=generation, now_ms=NOW), bases
    assert (values(log), names(tmp_path / "log")) == (everything, files)
    log.advance_start(6)
    log.delete_expired(NOW, log.log_end_offset)
    assert not log.replace_segments(OLD, size=size, generation=log.generation, now_ms=NOW), "retention was there first"


def test_retention_waits_for_a_cleaning(tmp_path: Path) -> None:
    log = made(tmp_path / "log")
    log.advance_start(12)
    log.being_cleaned = True
    assert log.delete_expired(NOW, log.log_end_offset) == 0
    log.being_cleaned = False
    assert log.delete_expired(NOW, log.log_end_offset) == 2


def test_nothing_may_be_left_of_a_segment(tmp_path: Path) -> None:
    log = made(tmp_path / "log")
    end = log.log_end_offset
    size = write_cleaned(log, OLD, lambda header: False, tmp_path / "aside", QuickDisk())
    assert size == 0
    assert log.replace_segments(OLD, size=0, generation=log.generation, now_ms=NOW)
    assert values(log) == [b"value 18", b"value 19", b"last"]
    assert rows(log, 3) == rows(log)
    log.close()
    for clean in (True, False):
        log = open_log(tmp_path / "log", clean=clean)
        assert (values(log), log.log_start_offset, log.log_end_offset) == ([b"value 18", b"value 19", b"last"], 0, end)


class FullDisk(QuickDisk):
    """A disk that has no room for a name, once `renames_left` were given."""

    renames_left = 10**9

    def rename(self, old: str, new: str) -> None:
        self.renames_left -= 1
        if self.renames_left < 0:
            raise NoSpace(f"cannot rename {old}: no space left on device")
        super().rename(old, new)


def test_a_full_disk_leaves_the_old_segments_or_ends_the_use_of_the_directory(tmp_path: Path) -> None:
    outcomes: list[str] = []
    for renames in range(100):
        disk = FullDisk()
        log = made(tmp_path / f"{renames}", disk)
        everything, new, size = values(log), kept(log), write_cleaned(log, OLD, odd, tmp_path / "aside", QuickDisk())
        disk.renames_left = renames
        try:
            assert log.replace_segments(OLD, size=size, generation=log.generation, now_ms=NOW)
        except NoSpace:
            outcomes.append("went on")
            assert values(log) == everything
            assert names(tmp_path / f"{renames}", ".swap") == []
        except StorageError:
            outcomes.append("offline")
            assert values(open_log(tmp_path / f"{renames}", clean=False, recovery_point=18)) == new
        else:
            assert values(log) == new
            break
    assert outcomes == ["went on"] * 4 + ["offline"] * (len(outcomes) - 4)
    assert len(outcomes) > 15


@pytest.mark.parametrize("everything_goes", [False, True])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, everything_goes: bool) -> None:
    original = made(tmp_path / "original")
    keep = (lambda header: False) if everything_goes else odd
    old, new = values(original), [b"value 18", b"value 19", b"last"] if everything_goes else kept(original)
    expected, aborted = facts(original), original.aborted_transactions(0, 20)
    size = write_cleaned(original, OLD, keep, tmp_path / "aside", QuickDisk())
    original.close()
    seen: list[str] = []

    def check(path: Path) -> str:
        """That the log in `path` is whole, once it is opened; which it is."""
        log = open_log(path, clean=False, recovery_point=18)
        found = values(log)
        state = "old" if found == old else "new" if found == new else "between"
        # A new segment without records does not say which old ones it was made of: some of them may be left, as in Kafka.
        assert state != "between" or (everything_goes and set(new) < set(found) < set(old))
        assert facts(log) == expected
        assert everything_goes or log.aborted_transactions(0, 20) == aborted
        assert names(path, ".cleaned", ".swap", ".deleted") == []
        assert append(log, b"more").first_offset == 21
        log.close()
        assert values(open_log(path)) == [*found, b"more"]
        return state

    for life in count():
        path = shutil.copytree(tmp_path / "original", tmp_path / f"at{life}")
        # The copy is opened as it was in the process that dies: with the files of the cleaning, which the loader would remove.
        cleaned = {name: (path / name).read_bytes() for name in names(path, ".cleaned")}
        disk = MortalDisk()
        log = open_log(path, disk=disk, file_delete_delay_ms=0)
        for name, content in cleaned.items():
            (path / name).write_bytes(content)
        disk.life = life
        died = False
        try:
            assert log.replace_segments(OLD, size=size, generation=log.generation, now_ms=NOW)
        except _Dead:
            died = True
        if names(path, ".log.swap") and not names(path, ".cleaned"):
            for second in count():  # the start that completes it may die at any step too
                again = shutil.copytree(path, tmp_path / f"at{life}.{second}")
                try:
                    open_log(again, disk=MortalDisk(second), clean=False, recovery_point=18)
                except _Dead:
                    assert check(again) == "new" or everything_goes
                    shutil.rmtree(again)
                else:
                    break
        seen.append(check(path))
        shutil.rmtree(path)
        if not died:
            break
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert sorted(seen, key=["old", "between", "new"].index) == seen, "it never goes back"
    assert len(seen) > 20
