"""Log directories that fail, are full, or lack descriptors."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log_directories.support import NOW, T0, T1, U0, DirectoryHarness, append
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.errors import OutOfResources, StorageError
from txbroker.log.directory import ROOM_BYTES
from txbroker.log.flush import FlushPlan
from txbroker.log.log_expiry import Expired
from txbroker.names import TopicPartition

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"


def test_a_failed_directory_takes_its_logs_offline_and_no_others(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    a, b, a1 = broker.create(T0), broker.create(U0), broker.create(T1)
    directories.fail(a, StorageError("the disk is gone"))
    directories.fail(a1, StorageError("the disk is gone"))
    assert broker.watcher.failed == [(broker.paths[0], [T0, T1])]
    assert (directories.get(T0), directories.get(U0)) == (None, b)
    assert (directories.offline(), directories.online()) == ([broker.paths[0]], [broker.paths[1]])
    assert broker.watcher.all_failed == 0
    append(b, b"one")
    directories.fail(b, StorageError("gone too"))
    assert broker.watcher.all_failed == 1


def test_a_lack_of_descriptors_takes_no_directory_offline(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    broker = DirectoryHarness(directory, disk=disk)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"one")
    broker.worker.run()
    disk.fail(error=errno.EMFILE)
    with pytest.raises(StorageError):
        broker.create(T1)
    directories.fail(log, OutOfResources("cannot open a file: Too many open files"))
    directories.checkpoints.write_recovery_points()
    broker.worker.run()
    assert broker.watcher.failed == []
    disk.repair()
    disk.done.clear()
    broker.worker.wait(1000)
    assert any("recovery-point" in path for path in disk.paths("replace")), "failed work is done later"
    append(broker.create(T1), b"two")
    append(log, b"three")


def test_a_log_is_created_elsewhere_when_a_directory_is_full(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    broker = DirectoryHarness(directory, 2, disk=disk)
    directories = broker.start()
    disk.fail("replace", broker.paths[0], error=errno.ENOSPC)
    log = broker.create(T0)
    assert log.directory.startswith(broker.paths[1])
    append(log, b"one")
    assert (broker.partitions("a"), broker.partitions("b")) == ([], ["t-0"])
    assert (directories.online(), directories.space_failures) == (broker.paths, 1)
    disk.repair()
    append(broker.create(T1), b"two")
    assert broker.partitions("a") == ["t-1"]
    broker.stop()
    again = DirectoryHarness(directory, 2)
    assert sorted(again.start().logs()) == [T0, T1]


def test_a_directory_is_reported_full_until_it_has_space(directory: DiskPath) -> None:
    memory = directory.disk
    assert isinstance(memory, MemoryDisk)
    disk = FaultyDisk(memory)
    broker = DirectoryHarness(directory, 2, disk=disk)
    directories = broker.start()
    full, other = broker.paths
    memory.capacity = memory.used + 2 * ROOM_BYTES
    assert directories.problems() == []
    disk.fail("replace", full, error=errno.ENOSPC)  # a quota
    broker.create(T0)
    disk.repair()
    assert directories.problems() == [f"log directory {full} is full: free space there"]
    memory.capacity += ROOM_BYTES // 2
    assert directories.problems() == [f"log directory {full} is full: free space there"]
    memory.capacity += ROOM_BYTES
    assert directories.problems() == []
    memory.capacity -= ROOM_BYTES
    assert directories.problems() == [], "no write was refused since then"
    directories.found_full(other)
    assert directories.problems() == [f"log directory {other} is full: free space there"]
    memory.capacity += 2 * ROOM_BYTES
    disk.fail("usage", other)
    assert directories.problems() == [f"log directory {other} is full: free space there"], "the free space cannot be read"


def test_a_directory_is_reported_full_before_a_write_is_refused(directory: DiskPath) -> None:
    memory = directory.disk
    assert isinstance(memory, MemoryDisk)
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    memory.capacity = memory.used + ROOM_BYTES
    assert directories.problems() == []
    memory.capacity -= 1
    assert directories.problems() == [f"log directory {path} is full: free space there" for path in broker.paths]
    broker.disk.fail("usage", broker.paths[0])
    assert directories.problems() == [f"log directory {broker.paths[1]} is full: free space there"], "unknown is not full"


def test_a_failed_directory_is_reported_as_a_problem(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = broker.create(T0)
    directories.fail(log, StorageError("cannot write /x: Input/output error"))
    (failed,) = directories.offline()
    assert directories.problems() == [
        f"log directory {failed} is offline (cannot write /x: Input/output error): repair it and restart the broker"
    ]


def test_a_failure_in_a_worker_takes_the_directory_offline(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"one")
    flushed: list[bool] = []
    broker.worker.run()
    broker.disk.fail(path=broker.paths[0])
    directories.flush(log, lambda: flushed.append(True))
    directories.checkpoints.write_recovery_points()
    broker.worker.run()
    assert broker.watcher.failed == [(broker.paths[0], [T0])]
    assert flushed == []


def test_an_unexpected_error_in_a_worker_takes_the_directory_offline(
    directory: DiskPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"one")
    broker.worker.run()
    monkeypatch.setattr(FlushPlan, "sync", lambda plan: [][0])
    flushed: list[bool] = []
    directories.flush(log, lambda: flushed.append(True))
    broker.worker.run()
    assert broker.watcher.failed == [(broker.paths[0], [T0])]
    assert flushed == []
    assert "list index out of range" in caplog.text


def test_jobs_of_a_failed_directory_are_dropped(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = broker.create(T0)
    directories.checkpoints.write_recovery_points()
    directories.fail(log, StorageError("gone"))
    broker.worker.run()
    assert "recovery-point-offset-checkpoint" not in broker.names()


def test_expiry_on_a_failed_disk_reports_the_failure_and_other_logs_are_not_affected(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=130, retention_bytes=100)
    directories = broker.start()
    logs = [broker.create(topic_partition) for topic_partition in (T0, U0, T1)]
    for log in logs:
        log.flush()
        for _ in range(5):
            append(log, bytes(50))
            broker.worker.run()
    broker.disk.fail(path=logs[0].directory)
    reported: dict[TopicPartition, Expired | None] = {}
    for log in logs:
        directories.expire(log.topic_partition, NOW, log.log_end_offset, partial(reported.__setitem__, log.topic_partition))
    broker.worker.run()
    # The last one is in the first directory too.
    assert reported == {T0: None, U0: Expired(4, 4, 4 * logs[1].size, 4), T1: None}
    assert directories.offline() == [broker.paths[0]]
    assert logs[1].log_start_offset == 4
