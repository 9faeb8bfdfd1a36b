"""Log directories at start and stop: locks, identities, loading, recovery, and other content of a directory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from simulation.workers import one_by_one
from tests.log_directories.support import IDENTITY, T0, T1, TOPIC_ID, U0, DirectoryHarness, append, content
from tests.support.fakes.disk_path import DiskPath, on_disk
from txbroker.errors import StartError
from txbroker.log.meta_properties import Identity
from txbroker.names import TopicPartition

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"


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


def test_a_sync_that_fails_while_the_directories_close_leaves_no_clean_mark(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    log = first.start() and first.create(T0)
    append(log, b"one")
    first.worker.run()
    first.directories.flush(log)
    first.directories.stop()
    first.directories.hold()
    first.disk.fail("sync", times=1)
    (flush,) = first.worker.waiting
    flush.work()  # the logs' thread has not seen its end
    first.directories.close(one_by_one)
    assert ".kafka_cleanshutdown" not in first.names()
    assert DirectoryHarness(directory).start().logs().keys() == {T0}


def test_a_flush_that_ends_while_the_directories_close_changes_no_log(directory: DiskPath) -> None:
    first = DirectoryHarness(directory)
    log = first.start() and first.create(T0)
    append(log, b"one")
    first.directories.flush(log)
    first.directories.hold()
    first.worker.run()
    assert log.recovery_point == 0, "a worker may be closing the log now"
    first.directories.close(one_by_one)
    assert first.checkpoint("recovery-point-offset-checkpoint") == ["t 0 1"]


def test_the_clean_shutdown_file_of_an_older_broker_is_empty(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    first = DirectoryHarness(directory)
    first.start()
    first.create(T0)
    first.stop()
    (directory / "a" / ".kafka_cleanshutdown").write_bytes(b"")
    caplog.set_level("INFO")
    DirectoryHarness(directory).start()
    assert "loading 1 log from" in caplog.text


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
    assert "recovering 1 log of" in caplog.text
    found = again.get(T0)
    assert found is not None
    assert (found.log_end_offset, found.recovery_point) == (1, 0), "the rest of that segment may be another one than was synced"


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


def test_a_clean_stop_writes_the_checkpoints_that_a_worker_found_no_space_for(directory: DiskPath) -> None:
    """Else deleted records would come back: after a clean stop the checkpoints are believed."""
    broker = DirectoryHarness(directory)
    broker.start()
    log = broker.create(T0)
    append(log, b"deleted")
    append(log, b"kept")
    broker.worker.run()
    log.advance_start(1)
    broker.disk.fail("replace", f"{broker.paths[0]}/log-start-offset-checkpoint", error=errno.ENOSPC)
    broker.directories.checkpoints.write_log_start_offsets()
    broker.worker.run()
    broker.disk.repair()
    broker.stop()
    again = DirectoryHarness(directory).start()
    assert again.logs()[T0].log_start_offset == 1
