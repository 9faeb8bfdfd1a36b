"""A file of a log that must exist and is gone, or is too short, is an error with its name, and no file is created in its place."""

from __future__ import annotations

import errno

import pytest

from tests.log.support import NOW, append, fill, names, open_log, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.errors import MissingFile, NoSpace, StorageError
from txbroker.log.log import Log


def three_segments(directory: DiskPath, disk: FaultyDisk | None = None, **options: int) -> Log:
    """Segments at 0, 4 and 8, the last one active with 2 records, all released."""
    log = open_log(directory, disk=disk, **options)
    for count in (4, 4, 2):
        fill(log, count)
        if count == 4:
            log.roll(NOW)
    log.close()
    return open_log(directory, disk=disk, **options)


@pytest.mark.parametrize("base", [0, 4, 8])
def test_a_log_file_that_is_gone_is_not_created_by_a_read(directory: DiskPath, base: int) -> None:
    log = three_segments(directory)
    path = directory / f"{base:020d}.log"
    path.unlink()
    for _ in range(2):
        with pytest.raises(MissingFile, match=str(path)):
            log.read(base + 1, 1000, offset_end=10)
        assert not path.exists()


def test_a_log_file_that_is_too_short_is_not_read(directory: DiskPath) -> None:
    log = three_segments(directory)
    path = directory / f"{4:020d}.log"
    size = path.size()
    path.truncate(size // 2)
    with pytest.raises(MissingFile, match=f"{path} has {size // 2} bytes, but {size} were written to it"):
        log.read(5, 1000, offset_end=10)
    assert path.size() == size // 2


def test_a_look_up_does_not_empty_the_indexes_of_a_log_file_that_is_gone(directory: DiskPath) -> None:
    log = three_segments(directory, index_interval_bytes=0)
    (directory / f"{4:020d}.log").unlink()
    (directory / f"{4:020d}.timeindex").unlink()
    index = (directory / f"{4:020d}.index").read_bytes()
    with pytest.raises(MissingFile, match=f"{4:020d}.log"):
        log.read(5, 1000, offset_end=10)
    assert (directory / f"{4:020d}.index").read_bytes() == index != b""


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_file_that_is_gone_is_not_begun_again_in_its_middle(directory: DiskPath, suffix: str) -> None:
    log = open_log(directory, index_interval_bytes=0)
    fill(log, 600)
    active = log.segments[-1]
    active.seal()
    path = directory / f"{0:020d}.{suffix}"
    assert path.size() > 0
    path.unlink()
    with pytest.raises(MissingFile, match=str(path)):
        fill(log, 3, timestamp=NOW + 10_000)
    assert not path.exists()
    assert log.log_end_offset == 600


def test_an_append_to_a_segment_whose_file_is_gone_fails(directory: DiskPath) -> None:
    log = three_segments(directory)
    path = directory / f"{8:020d}.log"
    path.unlink()
    with pytest.raises(MissingFile, match=str(path)):
        append(log, b"x")
    assert not path.exists()
    assert log.log_end_offset == 10


@pytest.mark.parametrize("renames", range(9))
def test_a_full_disk_in_the_middle_of_a_deletion_of_segments_changes_nothing(directory: DiskPath, renames: int) -> None:
    disk = FaultyDisk(directory.disk)
    options = {"retention_bytes": 1, "file_delete_delay_ms": 0}
    log = three_segments(directory, disk, **options)
    before, expected = names(directory), values(log)
    disk.fail("rename", after=renames, times=1, error=errno.ENOSPC)
    if renames < 7:  # three files of two segments, and the snapshot of the second one
        with pytest.raises(NoSpace):
            log.delete_expired(NOW, 10)
        gone = "" if renames < 3 else f"{0:020d}"  # whole segments only
        assert names(directory) == [name for name in before if not gone or not name.startswith(gone)]
        assert log.log_start_offset == (4 if gone else 0)
        assert values(log) == expected[log.log_start_offset :]
        assert values(open_log(directory.copy_to(directory.parent / "killed"), clean=False)) == values(log)
        append(log, b"more")
    assert log.delete_expired(NOW, 10) == (1 if 3 <= renames < 7 else 2)
    assert [name for name in names(directory) if not name.startswith(f"{8:020d}") and name[:20].isdigit()] == [f"{10:020d}.snapshot"]
    assert values(log, 8)[:2] == expected[8:]


def test_a_deletion_that_cannot_be_undone_takes_the_directory_offline(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = three_segments(directory, disk, retention_bytes=1)
    disk.fail("rename", after=2, error=errno.ENOSPC)
    with pytest.raises(StorageError, match="have new names in part") as caught:
        log.delete_expired(NOW, 10)
    assert not isinstance(caught.value, NoSpace)


def test_a_new_log_is_not_judged_by_the_checkpoints_of_an_earlier_one(directory: DiskPath) -> None:
    """A replica was removed and comes back, and the broker is killed before it has written the checkpoints again."""
    checkpoints = {"recovery_point": 90, "high_watermark": 91}
    assert open_log(directory, clean=False, **checkpoints).missing == []
    append(open_log(directory, clean=False), b"1")
    for file in directory.glob("*"):
        if file.suffix in (".log", ".index", ".timeindex"):
            file.unlink()
    (missing,) = open_log(directory, clean=False, **checkpoints).missing
    assert (missing.start, missing.end) == (0, 91)


@pytest.mark.parametrize(("name", "is_error"), [
    (f"{8:020d}.log", True), (f"{8:020d}.snapshot", True), (f"{0:020d}.log", True), (f"{3:020d}.log", False), (f"{3:020d}.snapshot", False),
    ("leader-epoch-checkpoint", True), ("", True),
])  # fmt: skip
def test_a_file_that_a_flush_does_not_find(directory: DiskPath, name: str, is_error: bool) -> None:
    """It is an error unless it is a segment's, or a snapshot, that the log has left meanwhile."""
    log = three_segments(directory)
    before = log.recovery_point
    append(log, b"unsynced")
    plan = log.flush_plan()
    assert plan is not None
    plan.absent.append(f"{directory}/{name}" if name else str(directory))
    if is_error:
        with pytest.raises(MissingFile, match=r"it is gone"):
            log.flushed(plan)
    else:
        log.flushed(plan)
    assert log.recovery_point == (before if is_error else 11)
