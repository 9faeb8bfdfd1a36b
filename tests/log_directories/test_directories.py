"""Log directories while the broker runs: creation and deletion of logs, flushes, configurations, descriptions."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.workers import one_by_one
from tests.log_directories.support import IDENTITY, NOW, T0, T1, TOPIC_ID, U0, DirectoryHarness, append, zero_watermark
from tests.support.fakes.disk_path import DiskPath, on_disk
from txbroker.errors import ErrorCode, OutOfResources, StorageError
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.names import TopicPartition

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"


def test_a_new_log_is_created_in_the_directory_with_the_fewest(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 3)
    broker.start()
    homes = [broker.create(TopicPartition("t", partition)).directory for partition in range(6)]
    assert [DiskPath(directory.disk, home).parent.name for home in homes] == ["a", "b", "c", "a", "b", "c"]
    broker.directories.delete(TopicPartition("t", 1))
    assert broker.create(U0).directory == f"{broker.paths[1]}/u-0"


def test_a_directory_that_fails_at_a_creation_is_skipped(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    broker.start()
    broker.disk.fail(path=f"{broker.paths[0]}/t-0")
    assert broker.create(T0).directory == f"{broker.paths[1]}/t-0"
    assert broker.watcher.failed == [(broker.paths[0], [])]
    with pytest.raises(StorageError, match=f"the log of t-1 may be in {broker.paths[0]}, which is offline"):
        broker.create(T1, is_new=False)
    broker.disk.fail(path=broker.paths[1])
    with pytest.raises(StorageError, match="the log of t-1 could not be created"):
        broker.create(T1)


def test_the_names_of_new_logs_are_made_durable_together(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    broker.start()
    for partition in range(50):
        broker.create(TopicPartition("t", partition))
    assert broker.worker.run() == 2


# Deletion


def test_a_deleted_log_is_renamed_at_once_and_removed_later(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, file_delete_delay_ms=60_000)
    directories = broker.start()
    append(broker.create(T0), b"one")
    broker.create(U0)
    directories.delete(T0)
    assert directories.get(T0) is None
    assert broker.partitions() == [f"t-0.{1:032x}-delete", "u-0"]
    broker.worker.run()
    assert broker.checkpoint("recovery-point-offset-checkpoint") == ["u 0 0"]
    broker.create(T0)  # the topic is created again
    broker.worker.wait(59_999)
    assert len(broker.partitions()) == 3
    broker.worker.wait(1)
    assert broker.partitions() == ["t-0", "u-0"]


def test_deleting_a_missing_log(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    directories.delete(T0)
    log = broker.create(U0)
    directories.fail(log, StorageError("broken"))
    with pytest.raises(StorageError, match="may be in"):
        directories.delete(T0)


def test_a_failed_deletion(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = broker.create(T0)
    broker.disk.fail(path=log.directory)
    with pytest.raises(StorageError, match="could not be deleted"):
        directories.delete(T0)
    assert directories.offline() == [broker.paths[0]]


def test_a_log_is_in_use_until_a_full_disk_lets_it_be_deleted(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"deleted")
    broker.disk.fail("rename", error=errno.ENOSPC)
    with pytest.raises(OutOfResources):
        directories.delete(T0)
    assert directories.get(T0) is log and directories.online() == broker.paths
    broker.disk.repair()
    directories.delete(T0)
    assert directories.get(T0) is None and "t-0" not in broker.partitions()
    again = directories.create(T0, bytes(reversed(TOPIC_ID)), is_new=True, now_ms=NOW)
    assert (again.log_end_offset, again.topic_id) == (0, bytes(reversed(TOPIC_ID)))
    broker.worker.run()
    broker.crash()
    assert list(DirectoryHarness(directory).start().logs()) == [T0]


def test_a_deleted_log_is_removed_from_the_checkpoints(directory: DiskPath) -> None:
    on_disk(GOLDEN).copy_to(directory / "a")
    broker = DirectoryHarness(directory)
    broker.start().delete(TopicPartition("s-compact", 0))
    broker.worker.run()
    assert (directory / "a" / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    high_watermarks = (directory / "a" / "replication-offset-checkpoint").read_text()
    assert "s-compact 0" not in high_watermarks and "s-" in high_watermarks






def test_logs_are_flushed_when_flush_ms_is_over(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, flush_ms=1000)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"one")
    directories.flush_due(5.0)
    broker.worker.run()
    assert log.recovery_point == 1
    append(log, b"two")
    directories.flush_due(5.875)
    broker.worker.run()
    assert log.recovery_point == 1
    directories.flush_due(6.0)
    broker.worker.run()
    assert log.recovery_point == 2


def test_a_flush_of_durable_records_completes_at_once(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    directories = broker.start()
    log = broker.create(T0)
    append(log, b"one")
    done: list[int] = []
    directories.flush(log, lambda: done.append(1))
    broker.worker.run()
    directories.flush(log, lambda: done.append(2))
    assert done == [1, 2]


def test_changed_configurations_apply_to_the_logs_of_the_topic(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    directories = broker.start()
    t, u = broker.create(T0), broker.create(U0)
    old = broker.config
    broker.config = type(old)(retention_ms=5)
    directories.reconfigure([])
    assert t.config is u.config is old
    directories.reconfigure(["t"])
    assert (t.config.retention_ms, u.config) == (5, old)
    directories.reconfigure(None)
    assert (t.config.retention_ms, u.config.retention_ms) == (5, 5)


def test_a_topic_whose_settings_fail_does_not_keep_them_from_the_others(directory: DiskPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised in the end: the change is then reported again."""
    broker = DirectoryHarness(directory)
    directories = broker.start()
    t, u = broker.create(T0), broker.create(U0)
    broker.config = type(broker.config)(retention_ms=5)
    with monkeypatch.context() as patch:
        patch.setattr(type(t), "reconfigure", _fails_for(t, type(t).reconfigure))
        with pytest.raises(KeyError):
            directories.reconfigure(None)
    assert t.config.retention_ms != u.config.retention_ms == 5


def _fails_for(failing: Log, reconfigure: Callable[[Log, LogConfig], None]) -> Callable[[Log, LogConfig], None]:
    def reconfigured(log: Log, config: LogConfig) -> None:
        if log is failing:
            raise KeyError(log.directory)
        reconfigure(log, config)

    return reconfigured


def test_descriptions(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log, other = broker.create(T0), broker.create(U0)
    append(log, b"one", b"two")
    directories.fail(other, StorageError("gone"))
    a, b = directories.describe(lambda topic_partition: 5)
    assert (a.directory, a.error) == (broker.paths[0], ErrorCode.NONE)
    assert 0 < a.usable_bytes <= a.total_bytes
    assert a.replicas == [(T0, log.size, 3, False)]
    assert b == (broker.paths[1], ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, [])
    broker.disk.fail(path=broker.paths[0])
    assert directories.describe(zero_watermark)[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.watcher.all_failed == 1


def test_directories_are_loaded_in_parallel(directory: DiskPath) -> None:
    first = DirectoryHarness(directory, 2)
    first.start()
    for partition in range(6):
        first.create(TopicPartition("t", partition))
    first.stop()
    again = DirectoryHarness(directory, 2)
    again.directories.open()
    again.directories.claim(IDENTITY)
    given: dict[str, int] = {}

    def run_all(jobs: object, *, at_once: int | None = None) -> None:
        assert at_once is None, "num.recovery.threads.per.data.dir of each directory"
        assert isinstance(jobs, dict)
        given.update({directory: len(of_directory) for directory, of_directory in jobs.items()})
        one_by_one({directory: list(reversed(of_directory)) for directory, of_directory in jobs.items()})

    again.directories.load(NOW, run_all, lambda *progress: again.progress.append(progress))
    assert given == {again.paths[0]: 3, again.paths[1]: 3}
    assert sorted(again.progress) == [(path, 3, 3) for path in again.paths]


def test_recovery_reports_its_progress(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    first.start()
    for partition in range(20):
        first.create(TopicPartition("t", partition))
    first.crash()
    again = DirectoryHarness(directory)
    again.start()
    assert again.progress == [(again.paths[0], done, 20) for done in range(2, 22, 2)]
