"""Leader epochs: assignments, truncations, and the results of OffsetForLeaderEpoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, open_log
from tests.support.fakes.disk_path import DiskPath
from txbroker.log.leader_epochs import LeaderEpochs


def made(path: DiskPath, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(path.disk, str(path.made()))
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_the_end_of_an_epoch(directory: DiskPath) -> None:
    epochs = made(directory, (2, 10), (3, 20), (7, 30))
    ends = {epoch: tuple(epochs.end_offset_for(epoch, 45)) for epoch in range(-1, 9)}
    assert ends == {
        -1: (-1, -1), 0: (0, 10), 1: (1, 10), 2: (2, 20), 3: (3, 30), 4: (3, 30), 5: (3, 30), 6: (3, 30), 7: (7, 45), 8: (-1, -1),
    }  # fmt: skip
    assert tuple(made(directory / "none").end_offset_for(0, 5)) == (-1, -1)
    assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 20, 29, 30, 99)] == [-1, 2, 2, 3, 3, 7, 7]


def test_the_file_is_kafkas(directory: DiskPath) -> None:
    made(directory, (0, 0), (5, 1500))
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 1500\n"
    assert list(LeaderEpochs(directory.disk, str(directory))) == [(0, 0), (5, 1500)]


def test_a_new_epoch_removes_later_and_larger_epochs(directory: DiskPath) -> None:
    epochs = made(directory, (1, 10), (2, 20), (3, 30))
    epochs.assign(3, 35)  # known already
    assert list(epochs) == [(1, 10), (2, 20), (3, 30)]
    epochs.assign(4, 20)
    assert list(epochs) == [(1, 10), (4, 20)]
    epochs.assign(2, 50)
    assert list(epochs) == [(1, 10), (2, 50)]
    epochs.assign(-1, 60)
    assert epochs.latest == 2


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 45), st.integers(0, 45))
def test_truncations_against_the_epochs_of_all_records(steps: list[int], first: int, last: int) -> None:
    """`steps`: how much the epoch grows with each record. Records [first, last) remain at the end."""
    disk = MemoryDisk()
    epochs = LeaderEpochs(disk, "/")
    epoch, of = 0, list[int]()
    for offset, step in enumerate(steps):
        epoch += step
        of.append(epoch)
        epochs.assign(epoch, offset)
    end = min(max(first, last), len(of))
    start = min(first, end)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    assert [epochs.epoch_of(offset) for offset in range(start, end)] == of[start:end]
    assert sorted({entry[0] for entry in epochs}) == [entry[0] for entry in epochs]
    for entry_epoch, entry_start in epochs:
        assert entry_start in (start, of.index(entry_epoch))
    if start:
        assert epochs.epoch_of(start - 1) == -1
    assert list(LeaderEpochs(disk, "/")) == list(epochs)


DAMAGED = [b"noise", b"0\n5\n0 0\n", b"1\n0\n", b"0\n2\n5 0\n4 10\n", b"0\n1\n0 -3\n", b"\xff\xfe", b"0\n1\n0 0 0\n"]
DAMAGED += [b"0\n2\n0 0\n3 1"]  # of an offset with more digits, whose end a loss of power has cut off


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_rebuilt_from_the_batches(directory: DiskPath, content: bytes) -> None:
    log = open_log(directory)
    for epoch in (0, 0, 3, 3, 4):
        append(log, b"x", leader_epoch=epoch)
    log.close()
    (directory / "leader-epoch-checkpoint").write_bytes(content)
    assert list(open_log(directory).leader_epochs) == [(0, 0), (3, 2), (4, 4)]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 2\n4 4\n"


@pytest.mark.parametrize("content", [b"", b"0"])
def test_a_damaged_file_is_rebuilt_from_all_batches_after_a_loss_of_power(directory: DiskPath, content: bytes) -> None:
    log = open_log(directory, segment_bytes=200)
    for epoch in (0, 0, 0, 0, 3, 3, 4):
        append(log, b"x" * 50, leader_epoch=epoch)
    assert len(log.segments) > 2
    (directory / "leader-epoch-checkpoint").write_bytes(content)
    again = open_log(directory, clean=False, recovery_point=5, segment_bytes=200)
    assert list(again.leader_epochs) == [(0, 0), (3, 4), (4, 6)], "recovery reads the last segments before the others"


def test_epochs_follow_truncations_and_deletions(directory: DiskPath) -> None:
    log = open_log(directory)
    for epoch in (0, 0, 1, 1, 2):
        append(log, b"x", leader_epoch=epoch)
    log.advance_start(3)
    assert list(log.leader_epochs) == [(1, 3), (2, 4)]
    assert log.end_offset_for_epoch(1) == (1, 4)
    assert log.end_offset_for_epoch(2) == (2, 5)
    log.truncate_to(4)
    assert list(log.leader_epochs) == [(1, 3)]
    log.truncate_fully_at(50, now_ms=NOW)
    assert list(log.leader_epochs) == []
    append(log, b"x", leader_epoch=9)
    log = open_log(directory, clean=False, log_start_offset=50)
    assert list(log.leader_epochs) == [(9, 50)]


def test_recovery_corrects_entries_that_the_batches_contradict(directory: DiskPath) -> None:
    """A loss of power may keep the file of before a truncation, and what was appended after it."""
    log = open_log(directory)
    for epoch in (4, 4, 4, 6, 6):
        append(log, b"x", leader_epoch=epoch)
    log.flush()
    path = directory / "leader-epoch-checkpoint"
    right = path.read_text()
    for wrong in ("0\n2\n4 0\n5 1\n", "0\n3\n4 0\n5 2\n6 3\n", "0\n2\n4 0\n6 4\n", "0\n2\n4 0\n6 2\n", "0\n1\n6 0\n"):
        path.write_text(wrong)
        assert list(open_log(directory, clean=False).leader_epochs) == [(4, 0), (6, 3)]
        assert path.read_text() == right
