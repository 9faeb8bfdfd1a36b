"""Log directories from start to stop: locks, identities, loading, checkpoints, deletion, and disks that fail."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from tests.log_directories.support import IDENTITY, NOW, T0, T1, TOPIC_ID, U0, DirectoryHarness, append, content, zero_watermark
from tests.support.fakes.disk_path import DiskPath, on_disk
from tests.support.fakes.faulty_disk import FaultyDisk
from tests.support.fakes.memory_disk import MemoryDisk
from txbroker.errors import ErrorCode, OutOfResources, StartError, StorageError
from txbroker.log.directories import one_by_one
from txbroker.log.directory import ROOM_BYTES
from txbroker.log.flush import FlushPlan
from txbroker.log.log_expiry import Expired
from txbroker.log.meta_properties import Identity
from txbroker.names import TopicPartition

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"

# Start


def test_a_first_start_creates_the_directories_and_their_meta_properties(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    assert broker.directories.open() == Identity(None, None)
    broker.directories.claim(IDENTITY)
    for path in broker.paths:
        properties = (DiskPath(directory.disk, path) / "meta.properties").read_text()
        assert properties == "version=0\nbroker.id=1\ncluster.id=lvr4NfIWTo6tu8cpVcm0iw\n"
        assert (DiskPath(directory.disk, path) / ".lock").exists()


def test_the_second_start_reads_the_identity_and_writes_nothing(directory: DiskPath) -> None:
    DirectoryHarness(directory).start()
    again = DirectoryHarness(directory)
    assert again.directories.open() == IDENTITY
    again.directories.claim(IDENTITY)
    assert again.disk.paths("replace") == []


@pytest.mark.parametrize(
    ("identity", "sentence"),
    [
        (Identity(1, "other"), "belongs to cluster lvr4NfIWTo6tu8cpVcm0iw, but this broker is in cluster other"),
        (Identity(2, IDENTITY.cluster_id), "belongs to broker 1, but broker.id is 2"),
    ],
)
def test_a_directory_of_another_broker_is_refused(directory: DiskPath, identity: Identity, sentence: str) -> None:
    DirectoryHarness(directory).start()
    again = DirectoryHarness(directory)
    again.directories.open()
    with pytest.raises(StartError, match=f"{directory}/a/meta.properties {sentence}"):
        again.directories.claim(identity)


def test_directories_with_different_identities_are_refused(directory: DiskPath) -> None:
    DirectoryHarness(directory / "x").start()
    DirectoryHarness(directory / "y").start(Identity(2, IDENTITY.cluster_id))
    (directory / "y" / "a").copy_to(directory / "x" / "b")
    with pytest.raises(StartError, match=r"x/a/meta.properties has broker.id=1 and .*x/b/meta.properties has broker.id=2"):
        DirectoryHarness(directory / "x", 2).directories.open()


def test_a_new_directory_gets_the_identity_of_the_others(directory: DiskPath) -> None:
    DirectoryHarness(directory).start()
    two = DirectoryHarness(directory, 2)
    assert two.directories.open() == IDENTITY
    two.directories.claim(IDENTITY)
    assert (directory / "b" / "meta.properties").read_bytes() == (directory / "a" / "meta.properties").read_bytes()


def test_a_locked_directory_is_refused_with_its_path(directory: DiskPath, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = DirectoryHarness(directory, 2)
    monkeypatch.setattr(broker.disk, "lock", lambda path: None)
    with pytest.raises(StartError, match=f"the log directory {directory}/a is in use by another broker"):
        broker.directories.open()


def test_one_directory_named_twice(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    twice = type(broker.directories)(broker.disk, broker.worker, str, ["/x", "/x"], config_for=lambda topic: broker.config)
    with pytest.raises(StartError, match="names a directory twice: /x, /x"):
        twice.open()


def test_a_start_without_any_usable_directory(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    for path in broker.paths:
        broker.disk.fail(path=path)
    with pytest.raises(StartError, match=f"none of the log directories can be used .*{directory}/b.*: Input/output error"):
        broker.directories.open()


def test_one_broken_directory_of_two_does_not_stop_the_start(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    broker = DirectoryHarness(directory, 2)
    broker.disk.fail(path=broker.paths[1])
    directories = broker.start()
    assert directories.offline() == [broker.paths[1]]
    assert f"the log directory {broker.paths[1]} is offline with its 0 logs" in caplog.text
    assert broker.create(T0).directory == f"{broker.paths[0]}/t-0"


def test_a_directory_that_cannot_be_read_while_loading_goes_offline(directory: DiskPath) -> None:
    first = DirectoryHarness(directory, 2)
    first.start()
    in_a, in_b = first.create(T0), first.create(U0)
    append(in_b, b"kept")
    first.stop()
    again = DirectoryHarness(directory, 2)
    again.disk.fail(path=in_a.directory)
    directories = again.start()
    assert directories.offline() == [again.paths[0]]
    assert set(directories.logs()) == {U0}


def test_when_all_directories_fail_while_loading_the_start_fails(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    first.start()
    log = first.create(T0)
    first.stop()
    again = DirectoryHarness(directory)
    again.disk.fail(path=log.directory)
    with pytest.raises(StartError, match="none of the log directories can be used"):
        again.start()


# Stop and start again


def test_logs_and_their_ids_survive_a_clean_stop(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    first.start()
    append(first.create(T0), b"one", b"two")
    append(first.create(U0), b"three")
    before = {topic_partition: content(log) for topic_partition, log in first.directories.logs().items()}
    first.stop()
    assert ".kafka_cleanshutdown" in first.names()
    assert first.checkpoint("recovery-point-offset-checkpoint") == ["t 0 2", "u 0 1"]

    again = DirectoryHarness(directory)
    directories = again.start()
    assert ".kafka_cleanshutdown" not in again.names()
    assert {topic_partition: content(log) for topic_partition, log in directories.logs().items()} == before
    log = directories.get(T0)
    assert log is not None
    assert (log.topic_id, log.log_end_offset, log.recovery_point) == (TOPIC_ID, 2, 2)
    assert again.progress[-1] == (again.paths[0], 2, 2)


def test_the_clean_shutdown_file_of_an_older_broker_is_empty(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    first = DirectoryHarness(directory)
    first.start()
    first.create(T0)
    first.stop()
    (directory / "a" / ".kafka_cleanshutdown").write_bytes(b"")
    caplog.set_level("INFO")
    DirectoryHarness(directory).start()
    assert "loading 1 logs from" in caplog.text


def test_a_crash_is_recovered_from_the_recovery_point_on(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    first = DirectoryHarness(directory, segment_bytes=1024)
    directories = first.start()
    log = first.create(T0)
    append(log, b"one")
    directories.flush(log)
    first.worker.run()
    directories.checkpoints.write_recovery_points()
    first.worker.run()
    append(log, b"two")
    first.crash()
    active = DiskPath(directory.disk, log.directory) / "00000000000000000000.log"
    active.write_bytes(active.read_bytes()[:-1])

    again = DirectoryHarness(directory).start()
    assert "recovering 1 logs of" in caplog.text
    found = again.get(T0)
    assert found is not None
    assert (found.log_end_offset, found.recovery_point) == (1, 1)


def test_a_recovery_point_above_the_end_is_corrected(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    first.start()
    append(first.create(T0), b"one")
    first.stop()
    (directory / "a" / ".kafka_cleanshutdown").unlink()
    (directory / "a" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1000\n")
    log = DirectoryHarness(directory).start().get(T0)
    assert log is not None
    assert log.log_end_offset == 1
    assert log.recovery_point <= 1


def test_the_log_start_offset_survives_a_restart(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    directories = first.start()
    log = first.create(T0)
    append(log, b"one", b"two", b"three")
    append(first.create(U0), b"one")
    log.advance_start(2)
    directories.checkpoints.write_log_start_offsets()
    first.worker.run()
    assert first.checkpoint("log-start-offset-checkpoint") == ["t 0 2"]
    first.crash()
    found = DirectoryHarness(directory).start().get(T0)
    assert found is not None
    assert found.log_start_offset == 2


def test_high_watermarks_are_loaded_for_the_replicas(directory: DiskPath) -> None:
    first = DirectoryHarness(directory, 2)
    directories = first.start()
    append(first.create(T0), b"one", b"two")
    append(first.create(U0), b"one")
    directories.checkpoints.write_high_watermarks({T0: 2, U0: 1, T1: 9})
    first.worker.run()
    assert first.checkpoint("replication-offset-checkpoint", "a") == ["t 0 2"]
    assert first.checkpoint("replication-offset-checkpoint", "b") == ["u 0 1"]
    first.crash()
    again = DirectoryHarness(directory, 2).start()
    assert [again.checkpoints.high_watermark(topic_partition) for topic_partition in (T0, U0, T1)] == [2, 1, 0]


def test_unchanged_checkpoints_are_not_written(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    directories = broker.start()
    broker.create(T0)
    directories.checkpoints.write_recovery_points()
    broker.worker.run()
    broker.disk.done.clear()
    directories.checkpoints.write_recovery_points()
    broker.worker.run()
    assert broker.disk.paths("replace") == []


def test_a_stop_before_loading_only_unlocks(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    broker.directories.open()
    broker.stop()
    assert broker.names() == []
    DirectoryHarness(directory).directories.open()


def test_a_directory_that_fails_at_the_stop_is_not_marked_clean(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    broker = DirectoryHarness(directory, 2)
    broker.start()
    broker.create(T0)
    broker.create(U0)
    broker.disk.fail(path=f"{broker.paths[0]}/recovery-point-offset-checkpoint")
    broker.stop()
    assert ".kafka_cleanshutdown" not in broker.names("a")
    assert ".kafka_cleanshutdown" in broker.names("b")
    assert f"{broker.paths[0]} was not closed cleanly" in caplog.text


def test_a_log_that_cannot_be_closed_prevents_the_clean_shutdown_file(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory)
    broker.start()
    log = broker.create(T0)
    append(log, b"one")
    broker.disk.fail(path=log.directory)
    broker.stop()
    assert ".kafka_cleanshutdown" not in broker.names()


# What else is in a directory


def test_other_directories_are_ignored(directory: DiskPath) -> None:
    for name in ("lost+found", "t-00", f"t-7.{'0' * 32}-stray", "metadata"):
        (directory / "a" / name).mkdir(parents=True)
    (directory / "a" / "u-3").write_text("a file")
    broker = DirectoryHarness(directory)
    assert broker.start().logs() == {}
    assert len(broker.partitions()) == 4


def test_an_interrupted_deletion_is_finished(directory: DiskPath) -> None:
    deleted = directory / "a" / f"t-0.{'0' * 32}-delete"
    deleted.mkdir(parents=True)
    (deleted / "00000000000000000000.log").write_bytes(b"x")
    broker = DirectoryHarness(directory)
    assert broker.start().logs() == {}
    assert deleted.exists()
    broker.worker.run()
    assert not deleted.exists()


def test_a_directory_that_kafka_wrote(directory: DiskPath) -> None:
    on_disk(GOLDEN).copy_to(directory / "a")
    broker = DirectoryHarness(directory)
    directories = broker.start()
    expected = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partition, offset in (line.split() for line in (GOLDEN / "replication-offset-checkpoint").read_text().splitlines()[2:])
    }
    assert {topic_partition: log.log_end_offset for topic_partition, log in directories.logs().items()} == expected
    assert {topic_partition: directories.checkpoints.high_watermark(topic_partition) for topic_partition in expected} == expected
    broker.stop()
    assert (directory / "a" / "cleaner-offset-checkpoint").read_text() == "0\n1\ns-compact 0 3329\n"
    assert sorted(parse for parse in broker.checkpoint("recovery-point-offset-checkpoint")) == sorted(
        f"{topic} {partition} {offset}" for (topic, partition), offset in expected.items()
    )


def test_a_partition_in_two_directories_refuses_the_start(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    first.start()
    first.create(T0)
    first.stop()
    (directory / "a" / "t-0").copy_to(directory / "b" / "t-0")
    with pytest.raises(StartError, match=f"t-0 is both in {directory}/a/t-0 and in {directory}/b/t-0"):
        DirectoryHarness(directory, 2).start()
    assert ".kafka_cleanshutdown" in first.names()  # no log is recovered before the refusal


# Creation


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


def test_a_deleted_log_is_removed_from_the_cleaner_checkpoint(directory: DiskPath) -> None:
    on_disk(GOLDEN).copy_to(directory / "a")
    broker = DirectoryHarness(directory)
    broker.start().delete(TopicPartition("s-compact", 0))
    broker.worker.run()
    assert (directory / "a" / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


# Failures


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
    memory.capacity = memory.used + 100_000
    assert directories.problems() == []
    disk.fail("replace", full, error=errno.ENOSPC)
    broker.create(T0)
    disk.repair()
    assert directories.problems() == [f"log directory {full} is full: free space there"]
    usable = memory.usage("/").usable
    memory.capacity += ROOM_BYTES // 2
    assert directories.problems() == [f"log directory {full} is full: free space there"]
    memory.capacity += ROOM_BYTES
    assert directories.problems() == []
    memory.capacity -= memory.usage("/").usable - usable
    assert directories.problems() == [], "no write was refused since then"
    directories.found_full(other)
    assert directories.problems() == [f"log directory {other} is full: free space there"]
    memory.capacity += 2 * ROOM_BYTES
    disk.fail("usage", other)
    assert directories.problems() == [f"log directory {other} is full: free space there"], "the free space cannot be read"


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
        for _ in range(5):
            append(log, bytes(50))
    broker.disk.fail(path=logs[0].directory)
    reported: dict[TopicPartition, Expired | None] = {}
    for log in logs:
        directories.expire(log.topic_partition, NOW, log.log_end_offset, partial(reported.__setitem__, log.topic_partition))
    broker.worker.run()
    # The last one is in the first directory too.
    assert reported == {T0: None, U0: Expired(4, 4, 4 * logs[1].size, 4), T1: None}
    assert directories.offline() == [broker.paths[0]]
    assert logs[1].log_start_offset == 4


# Flushes, configurations and descriptions


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
    directories.reconfigure("t")
    assert (t.config.retention_ms, u.config) == (5, old)


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
