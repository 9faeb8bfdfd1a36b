"""Moving logs between directories: disk failures, crashes and restarts during a move."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log_directories.moving import check_arrived, filled, finish
from tests.log_directories.support import NOW, T0, DirectoryHarness, append, content
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import CHANGES, FaultyDisk, Killed
from txbroker.errors import OutOfResources, StorageError
from txbroker.log.replica_move_recovery import CURRENT_COPY
from txbroker.names import TopicPartition


@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("broken", [0, 1])
def test_a_disk_failure_during_a_move(directory: DiskPath, small_steps: None, broken: int, steps: int) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    expected = content(log)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(steps)
    broker.disk.fail(path=broker.paths[broken])
    if broken == 0:
        directories.fail(log, StorageError("broken"))
    broker.worker.run()
    assert directories.offline() == [broker.paths[broken]]
    if broken == 1:
        assert directories.get(T0) is log
        assert content(log) == expected
    broker.crash()
    broker.disk.repair()
    again = DirectoryHarness(directory, 2, segment_bytes=500)
    again.start()
    assert content(finish(again)) == expected


def test_a_move_arrives_when_the_disk_is_no_longer_full(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    broker.start()
    log = filled(broker)
    broker.directories.moves.begin(T0, broker.paths[1], NOW)
    broker.disk.fail("rename", broker.paths[1], error=errno.ENOSPC)
    broker.worker.wait(5000)
    assert broker.directories.get(T0) is log and broker.directories.moves.is_moving(T0)
    append(log, b"meanwhile")
    broker.disk.repair()
    broker.worker.wait(1000)
    check_arrived(broker, content(log))


def test_a_copy_that_cannot_arrive_is_discarded_when_the_move_is_cancelled(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    broker.start()
    log = filled(broker)
    broker.directories.moves.begin(T0, broker.paths[1], NOW)
    broker.disk.fail("rename", broker.paths[1], error=errno.ENOSPC)
    broker.worker.wait(5000)
    broker.directories.moves.cancel(T0)
    broker.worker.wait(5000)
    assert broker.partitions("b") and not broker.directories.moves.is_moving(T0)
    broker.disk.repair()
    broker.worker.wait(100_000)
    assert broker.partitions("b") == [] and broker.directories.get(T0) is log


@pytest.mark.parametrize("deleted", [False, True])
def test_the_old_log_leaves_when_its_disk_is_no_longer_full(directory: DiskPath, small_steps: None, deleted: bool) -> None:
    """A deletion of the partition waits for it: after a restart the old log would be in use."""
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.disk.fail("rename", log.directory, error=errno.ENOSPC)
    broker.worker.wait(5000)
    assert broker.watcher.moved and broker.partitions("a") == ["t-0"]
    if deleted:
        with pytest.raises(OutOfResources):
            directories.delete(T0)
    assert directories.get(T0) is broker.watcher.moved[T0]
    broker.disk.repair()
    if deleted:
        directories.delete(T0)
        broker.worker.wait(100_000)
        assert (broker.partitions("a"), broker.partitions("b")) == ([], [])
    else:
        broker.worker.wait(1000)
        check_arrived(broker, content(log))


def crash_during_a_move(broker: DirectoryHarness, steps: int, appended: int) -> bytes:
    """Crash after some steps of a move, with appends between them; the content of the log."""
    broker.start()
    log = filled(broker, 8)
    broker.directories.moves.begin(T0, broker.paths[1], NOW)
    for step in range(steps):
        broker.worker.run(1)
        if step < appended:
            in_use = broker.directories.get(T0)
            assert in_use is not None
            append(in_use, b"on the way %d" % step)
    in_use = broker.directories.get(T0)
    assert in_use is not None
    expected = content(in_use)
    assert log is not None
    broker.crash()
    return expected


@settings(max_examples=examples(40))
@given(steps=st.integers(0, 30), appended=st.integers(0, 12))
def test_a_crash_during_a_move_loses_nothing(directory: DiskPath, small_steps: None, steps: int, appended: int) -> None:
    root = directory / "broker"
    root.remove_tree()
    expected = crash_during_a_move(DirectoryHarness(root, 2, segment_bytes=500), steps, appended)
    again = DirectoryHarness(root, 2, segment_bytes=500)
    again.start()
    found = again.directories.get(T0)
    assert found is not None
    assert content(found) == expected
    moved = finish(again)
    assert content(moved) == expected
    again.worker.wait(60_000)
    assert len(again.partitions("a")) + len(again.partitions("b")) == 1
    again.crash()


def test_a_crash_before_each_change_of_a_move_loses_nothing(directory: DiskPath, small_steps: None) -> None:
    changes = 0
    while True:
        root, disk = directory / str(changes), FaultyDisk(directory.disk)
        broker = DirectoryHarness(root, 2, disk=disk, segment_bytes=500)
        directories = broker.start()
        expected = content(filled(broker, 8))
        crash = disk.fail(CHANGES, after=changes, error=Killed)
        try:
            directories.moves.begin(T0, broker.paths[1], NOW)
            broker.worker.run()
            broker.worker.wait(60_000)
        except Killed:
            changes += 1
        broker.crash()
        again = DirectoryHarness(root, 2, segment_bytes=500)
        again.start()
        found = finish(again)
        assert content(found) == expected
        again.worker.wait(60_000)
        assert len(again.partitions("a")) + len(again.partitions("b")) == 1
        again.crash()
        if not crash.failed:
            break
    assert changes > 10
    assert found.directory == f"{broker.paths[1]}/t-0"


def interrupted_swap(
    directory: DiskPath, marks: Callable[[DiskPath, DiskPath], None], batches: int = 1, **config: int
) -> DirectoryHarness:
    """Both directories have t-0, as after a crash between the two renames."""
    first = DirectoryHarness(directory, 2, **config)
    first.start()
    log = first.create(T0)
    for _ in range(batches):
        append(log, b"old")
        first.worker.run()
    first.stop()
    old, new = directory / "a" / "t-0", directory / "b" / "t-0"
    old.copy_to(new)
    marks(old, new)
    return DirectoryHarness(directory, 2, **config)


@pytest.mark.parametrize("marked", [0, 1])
def test_an_interrupted_swap_is_finished(directory: DiskPath, marked: int) -> None:
    broker = interrupted_swap(directory, lambda *paths: (paths[marked] / CURRENT_COPY).write_bytes(b""))
    log = broker.start().get(T0)
    assert log is not None
    assert log.directory == f"{broker.paths[marked]}/t-0"
    broker.worker.run()
    assert broker.partitions("ba"[marked]) == []


def test_a_copy_with_a_gap_does_not_replace_its_log(directory: DiskPath) -> None:
    """A loss of power took the end of a segment from the copy, and not the one after it, to which more was appended."""
    wanted = b""

    def lose(old: DiskPath, new: DiskPath) -> None:
        nonlocal wanted
        wanted = b"".join(path.read_bytes() for path in sorted(old.glob("*.log")))
        (new / CURRENT_COPY).write_bytes(b"")
        sorted(new.glob("*.log"))[1].truncate(0)

    broker = interrupted_swap(directory, lose, batches=20, segment_bytes=200)
    log = broker.start().get(T0)
    assert log is not None
    assert (log.directory, content(log)) == (f"{broker.paths[0]}/t-0", wanted)


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("operation", ["size", "names", "open", "pread"])
def test_a_disk_that_fails_while_two_logs_are_compared_ends_its_directory_only(directory: DiskPath, failing: int, operation: str) -> None:
    """Which of the two is complete is not known: neither is served, and the next start finds both."""
    broker = interrupted_swap(directory, lambda _, new: (new / CURRENT_COPY).write_bytes(b""))
    for number, name in enumerate("ab"):
        (directory / name / "t-0").copy_to(directory / name / f"other-{number}")
    broker.disk.fail(operation, path=f"{broker.paths[failing]}/t-0")
    directories = broker.start()
    assert directories.online() == [broker.paths[1 - failing]]
    assert list(directories.logs()) == [TopicPartition("other", 1 - failing)]
    with pytest.raises(StorageError, match="may be in"):
        broker.create(T0, is_new=False)
    broker.worker.run()
    broker.crash()
    again = DirectoryHarness(directory, 2).start()
    assert again.logs()[T0].directory == f"{broker.paths[1]}/t-0"
    assert len(again.logs()) == 3


def test_a_copy_is_kept_while_the_directory_of_its_log_is_offline(directory: DiskPath, small_steps: None) -> None:
    expected = crash_during_a_move(DirectoryHarness(directory, 2), 2, 0)
    without = DirectoryHarness(directory, 2)
    without.disk.fail(path=without.paths[0])
    assert without.start().logs() == {}
    without.worker.run()
    assert len(without.partitions("b")) == 1
    without.crash()
    again = DirectoryHarness(directory, 2)
    again.start()
    assert content(finish(again)) == expected


def test_a_copy_without_a_log_is_removed(directory: DiskPath, small_steps: None) -> None:
    crash_during_a_move(DirectoryHarness(directory, 2), 2, 0)
    (directory / "a" / "t-0").remove_tree()
    broker = DirectoryHarness(directory, 2)
    assert broker.start().logs() == {}
    broker.worker.run()
    assert broker.partitions("b") == []


def test_a_move_continues_after_a_restart(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2)
    broker.start()
    log = filled(broker)
    expected = content(log)
    broker.directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(3)
    broker.stop()
    broker.worker.run()
    assert broker.watcher.moved == {}
    again = DirectoryHarness(directory, 2)
    again.start()
    assert content(finish(again)) == expected
    assert again.watcher.moved


def test_a_log_that_cannot_be_copied_stays_in_its_directory(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    path = DiskPath(directory.disk, log.directory) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    directories.moves.begin(T0, broker.paths[1], NOW)
    assert finish(broker) is log
    assert f"t-0 stays in {broker.paths[0]}, because it cannot be moved to {broker.paths[1]}" in caplog.text
    assert directories.offline() == []
    broker.worker.wait(60_000)
    assert broker.partitions("b") == []


def test_the_targets_cleaner_checkpoint_of_an_older_log_is_removed(directory: DiskPath) -> None:
    """A kill after a deletion leaves such a line; it must not mark other records as clean."""
    broker = DirectoryHarness(directory, 2)
    broker.start()
    broker.stop()
    (directory / "b" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 15\n")
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    assert filled(broker).directory == f"{broker.paths[0]}/t-0"
    directories.moves.begin(T0, broker.paths[1], NOW)
    finish(broker)
    assert directories.cleaning.offset(T0) is None
    broker.worker.wait(60_000)
    assert "t 0" not in (directory / "b" / "cleaner-offset-checkpoint").read_text()
