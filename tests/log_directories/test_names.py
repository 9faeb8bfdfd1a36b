"""What is synced survives a loss of power, whichever of the names survive that were not: files, partitions and log directories."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log.support import append as log_append
from tests.log.support import batch, open_log, values
from tests.log_directories.support import NOW, T0, DirectoryHarness, append, content
from tests.support.examples import quarter
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import CHANGES, FaultyDisk, Killed
from txbroker.errors import StorageError
from txbroker.log.directory import make_directory
from txbroker.log.log import Log

SEEDS = range(20)


def started(storage: MemoryDisk, count: int = 1, **config: Any) -> DirectoryHarness:
    broker = DirectoryHarness(DiskPath(storage, "/srv/logs"), count, **config)
    broker.start()
    return broker


def found(storage: MemoryDisk, count: int = 1) -> dict[object, Log]:
    broker = started(storage, count)
    return dict(broker.directories.logs())


@pytest.mark.parametrize("killed", [False, True])
def test_a_flushed_partition_in_a_new_log_directory_survives(killed: bool) -> None:
    for seed in SEEDS:
        storage = MemoryDisk()
        broker = started(storage)
        log = broker.create(T0)
        append(log, b"acknowledged")
        if killed:  # the page cache keeps the names, and no process has synced them
            storage.end_process()
            broker = started(storage)
            log = broker.directories.logs()[T0]
        log.flush()
        wanted = content(log)
        storage.power_cut(Random(seed))
        assert content(found(storage)[T0]) == wanted


def test_flushed_segments_survive() -> None:
    for seed in SEEDS:
        storage = MemoryDisk()
        broker = started(storage, segment_bytes=200)
        log = broker.create(T0)
        for number in range(9):
            append(log, b"%d" % number * 30)
            log.flush()
        assert len(log.segments) > 3
        wanted = content(log)
        storage.power_cut(Random(seed))
        assert content(found(storage)[T0]) == wanted


def test_segments_that_were_not_flushed_leave_no_gap() -> None:
    ends: set[int] = set()
    for seed in range(60):
        storage, chance = MemoryDisk(), Random(seed)
        broker = started(storage, segment_bytes=200)
        log = broker.create(T0)
        for number in range(20):
            append(log, b"%d" % number * 30)
            broker.worker.run(chance.randrange(2))
        wanted = content(log)
        storage.power_cut(chance)
        again = found(storage).get(T0)
        if again is not None:
            ends.add(again.log_end_offset)
            assert again.log_start_offset == 0
            assert content(again) == wanted[: len(content(again))]
    assert len(ends) > 5


def test_retention_keeps_what_is_synced_until_the_newest_name_is_durable() -> None:
    """The sync after a roll waits in one worker, and another one runs the pass of retention meanwhile."""
    left: set[int] = set()
    for seed in range(60):
        storage = MemoryDisk()
        broker = started(storage, segment_bytes=400, retention_bytes=1)
        log = broker.create(T0)
        for number in range(3):
            append(log, b"%d" % number * 30)
        broker.worker.run()
        log.flush()
        append(log, b"in the next segment" * 5)
        synced, of_the_roll = log.recovery_point, broker.worker.waiting
        broker.worker.waiting = []
        broker.directories.expire(T0, NOW, synced, lambda _: None)
        while len(log.segments) > 1:
            assert broker.worker.run(1) == 1
        assert of_the_roll and [segment.base_offset for segment in log.segments] == [3]
        storage.power_cut(Random(seed))
        again = found(storage)[T0]
        left.add(again.log_start_offset)
        assert again.log_end_offset >= synced == 3
    assert left == {0, 3}


@pytest.mark.parametrize("skipped", [0, 5])
def test_a_roll_waits_for_the_name_that_a_busy_worker_is_to_sync(skipped: int) -> None:
    for seed in range(60):
        storage = MemoryDisk()
        broker = started(storage, segment_bytes=400)
        log = broker.create(T0)
        for number in range(3):
            append(log, b"%d" % number * 30)
        broker.worker.run()
        log.flush()
        append(log, b"in the next segment" * 5)
        assert broker.worker.waiting
        log.skip_to(log.log_end_offset + skipped, NOW) if skipped else log.roll(NOW)
        assert len(log.segments) == 3
        storage.power_cut(Random(seed))
        bases = [segment.base_offset for segment in found(storage)[T0].segments]
        assert bases in ([0, 3], [0, 3, 4 + skipped])


@pytest.mark.parametrize("earlier", ["compacted", "a follower"])
def test_a_log_that_has_gaps_gets_no_others_by_a_loss_of_power(earlier: str) -> None:
    """Its configuration does not show that it has gaps, its batches do: a segment that is lost would leave one more."""
    for seed in range(60):
        storage = MemoryDisk()
        broker = started(storage, segment_bytes=400, cleanup_policy=frozenset({"compact" if earlier == "compacted" else "delete"}))
        log = broker.create(T0)
        append(log, b"first" * 40)
        log.flush()
        if earlier == "compacted":
            log.reconfigure(replace(log.config, cleanup_policy=frozenset({"delete"})))
        log.append_replicated(batch(b"after a gap" * 20, base_offset=5), now_ms=NOW)
        log.flush()
        for number in range(4):
            log.append_replicated(batch(b"%d" % number * 250, base_offset=6 + number), now_ms=NOW)
        storage.power_cut(Random(seed))
        bases = [segment.base_offset for segment in found(storage)[T0].segments]
        assert bases == [0, 1, 6, 7, 8, 9][: len(bases)]


@pytest.mark.parametrize("policy", quarter(["delete", "compact"]))
def test_a_move_continues_without_a_gap_after_a_loss_of_power(policy: str) -> None:
    """The copy may have lost the end of a segment, and not the one after it."""
    config: dict[str, Any] = {"segment_bytes": 200, "cleanup_policy": frozenset({policy})}
    moved = 0
    for seed in range(80):
        storage, chance = MemoryDisk(), Random(seed)
        broker = started(storage, 2, **config)
        log = broker.create(T0)
        for number in range(30):
            append(log, b"%02d" % number * 15)
            broker.worker.run()
        log.flush()
        broker.worker.run()
        wanted = content(log)
        source = log.directory.rpartition("/")[0]
        target = next(path for path in broker.paths if path != source)
        broker.directories.moves.begin(T0, target, 0)
        for _ in range(chance.randrange(40)):
            due = [job for job in broker.worker.waiting if job.due_ms <= broker.worker.now_ms]
            if not due or broker.watcher.moved:
                break
            job = chance.choice(due)  # workers are several threads
            broker.worker.waiting.remove(job)
            job.work()
            if job.done is not None:
                job.done()
        moved += bool(broker.watcher.moved)
        storage.power_cut(chance)
        again = started(storage, 2, **config)
        again.worker.run()
        again.worker.wait(60_000)
        assert content(again.directories.logs()[T0]) == wanted, seed
    assert 0 < moved < 80


def test_a_deleted_partition_does_not_come_back_without_files() -> None:
    for seed in SEEDS:
        storage = MemoryDisk()
        broker = started(storage, file_delete_delay_ms=0)
        log = broker.create(T0)
        append(log, b"deleted")
        log.flush()
        broker.directories.delete(T0)
        broker.worker.waiting.reverse()  # the removal before the sync
        broker.worker.run(1)
        storage.power_cut(Random(seed))
        assert T0 not in found(storage)


def test_a_moved_log_survives_a_flush() -> None:
    """Its directory has another name, which is not synced when it is put in use; the old log stays until then."""
    where: set[str] = set()
    for seed in range(40):
        storage, chance = MemoryDisk(), Random(seed)
        broker = started(storage, 2)
        log = broker.create(T0)
        append(log, b"before")
        log.flush()
        source = log.directory.rpartition("/")[0]
        target = next(path for path in broker.paths if path != source)
        broker.directories.moves.begin(T0, target, 0)
        while not broker.watcher.moved:
            assert broker.worker.run(1) == 1
        moved = broker.watcher.moved[T0]
        append(moved, b"after")
        if chance.random() < 0.5:
            moved.flush()
        broker.worker.run(chance.randrange(3))
        wanted, flushed = content(moved), moved.recovery_point == 2
        storage.power_cut(chance)
        again = found(storage, 2)[T0]
        where.add(again.directory.rpartition("/")[0])
        assert content(again) == wanted or not flushed
        assert content(again) == wanted[: len(content(again))]
        assert again.log_end_offset >= 1, "it was flushed before the move"
    assert where == set(broker.paths)


def test_what_waited_for_a_sync_when_a_directory_is_renamed_is_synced_under_its_new_name() -> None:
    for seed in SEEDS:
        storage = MemoryDisk()
        disk = DiskPath(storage, "/srv/logs")
        storage.make_directory("/srv/logs")
        storage.sync("/srv")
        storage.sync("/")
        log = open_log(disk / "before", segment_bytes=200)
        for number in range(9):
            log_append(log, b"%d" % number * 30)
        plan = log.flush_plan()
        assert plan is not None
        log.rename_directory("/srv/logs/after")
        plan.sync()
        log.flushed(plan)
        assert log.recovery_point < 9, "the names of its files are not durable"
        following = log.flush_plan()
        assert following is not None and not any("before" in path for path in following.paths)
        following.sync()
        log.flushed(following)
        assert log.recovery_point == 9
        wanted = values(log)
        storage.power_cut(Random(seed))
        assert storage.is_directory("/srv/logs/after")
        assert values(open_log(disk / "after", clean=False, recovery_point=9)) == wanted


@pytest.mark.parametrize("gone", ["index", "timeindex", "snapshot"])
def test_a_file_that_is_gone_before_its_sync_takes_the_directory_offline(gone: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = started(MemoryDisk(), 2, segment_bytes=200)
    log = broker.create(T0)
    for number in range(9):
        append(log, b"%d" % number * 30)
    path = f"{log.directory}/{log.segments[1].base_offset:020d}.{gone}"
    broker.disk.remove(path)
    broker.worker.run()
    assert broker.watcher.failed
    assert broker.directories.missing_files == 1
    assert f"cannot sync {path}: it is gone" in caplog.text
    assert len(broker.directories.online()) == 1


def test_files_that_retention_has_removed_before_their_sync_are_no_error() -> None:
    broker = started(MemoryDisk(), segment_bytes=200, retention_ms=-1, file_delete_delay_ms=0)
    log = broker.create(T0)
    for number in range(9):
        append(log, b"%d" % number * 30)
    plan = log.flush_plan()
    assert plan is not None
    log.advance_start(8)
    assert log.delete_expired(NOW, 9) > 3
    plan.sync()
    assert plan.absent
    log.flushed(plan)
    broker.worker.run()
    assert broker.directories.online() == broker.paths


@pytest.mark.parametrize("flush_messages", [1, 2**63 - 1])
def test_nothing_is_synced_in_the_reactor_thread_at_the_end_of_a_move(flush_messages: int) -> None:
    broker = started(MemoryDisk(), 2, flush_messages=flush_messages)
    log = broker.create(T0)
    append(log, b"x")
    target = next(path for path in broker.paths if not log.directory.startswith(path))
    broker.directories.moves.begin(T0, target, 0)
    while not broker.watcher.moved:
        syncs = len(broker.disk.paths("sync"))
        job = broker.worker.waiting.pop(0)
        job.work()
        worked = len(broker.disk.paths("sync"))
        append(log, b"copied by the thread of the logs")
        if job.done is not None:
            job.done()
        assert len(broker.disk.paths("sync")) == worked >= syncs


def test_a_move_back_waits_until_the_old_log_is_gone() -> None:
    broker = started(MemoryDisk(), 2)
    log = broker.create(T0)
    append(log, b"x")
    wanted = content(log)
    source = log.directory.rpartition("/")[0]
    target = next(path for path in broker.paths if path != source)
    broker.directories.moves.begin(T0, target, 0)
    while not broker.watcher.moved:
        broker.worker.run(1)
    broker.directories.moves.begin(T0, source, 0)
    broker.worker.run()
    assert broker.directories.logs()[T0].directory.startswith(source)
    assert content(broker.directories.logs()[T0]) == wanted


def test_a_partition_that_is_deleted_at_the_end_of_a_move_is_deleted_in_both_directories() -> None:
    storage = MemoryDisk()
    broker = started(storage, 2)
    log = broker.create(T0)
    append(log, b"x")
    target = next(path for path in broker.paths if not log.directory.startswith(path))
    broker.directories.moves.begin(T0, target, 0)
    while not broker.watcher.moved:
        broker.worker.run(1)
    broker.directories.delete(T0)
    storage.end_process()
    assert found(storage, 2) == {}


def test_a_log_directory_in_a_parent_that_cannot_be_read() -> None:
    """It cannot be synced either. An operator who has such a parent has made the directory, some time ago."""
    disk = FaultyDisk(MemoryDisk())
    disk.fail("sync", path="/srv", error=errno.EACCES)
    make_directory(disk, "/srv/logs")
    assert disk.is_directory("/srv/logs")
    disk.repair()
    disk.fail("sync", path="/srv", error=errno.EIO)
    with pytest.raises(StorageError):
        make_directory(disk, "/srv/others")


@pytest.mark.parametrize("done", range(6))
def test_directories_that_an_interrupted_start_has_made_are_durable(done: int) -> None:
    for seed in SEEDS:
        storage = MemoryDisk()
        disk = FaultyDisk(storage)
        disk.fail(CHANGES | {"sync"}, after=done, error=Killed)
        with pytest.raises(Killed):
            make_directory(disk, "/a/b/c")
            disk.create("/a/b/c/.lock")
        make_directory(storage, "/a/b/c")
        storage.power_cut(Random(seed))
        assert storage.is_directory("/a/b/c")


def test_each_made_directory_is_durable() -> None:
    for seed in SEEDS:
        disk = MemoryDisk()
        make_directory(disk, "/a/b/c")
        disk.power_cut(Random(seed))
        assert disk.is_directory("/a/b/c")
