"""A full file system: the write fails, the log is unchanged, and writes succeed again when there is space."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.support import NOW, append, end_transaction, open_log, rows
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from txbroker.errors import NoSpace, OutOfResources, StorageError
from txbroker.log.log import Log
from txbroker.log.os_disk import OsDisk
from txbroker.platform import system

HOUR = 3_600_000


Step = Callable[[Log], object]


def steps() -> list[Step]:
    """The operations of a log's life; each can be repeated after a failure."""
    found: list[Step] = []
    for number in range(12):
        options = {"timestamp": NOW + number * HOUR, "now_ms": NOW + number * HOUR, "leader_epoch": number // 3}
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        content = [b"%d" % number, bytes(60)] if number % 2 else [b"%d" % number]
        if number % 2:
            found.append(lambda log, content=content, options=options: append(log, *content, **options))  # type: ignore[misc]
        else:
            sent = {**options, **producer, "base_sequence": number // 2}
            found.append(lambda log, content=content, sent=sent: append(log, *content, **sent))  # type: ignore[misc]
        if number == 4:
            found.append(lambda log: log.roll(NOW))
        if number == 7:
            found.append(lambda log: log.advance_start(4))
            found.append(lambda log: log.delete_expired(NOW + 8 * HOUR, log.log_end_offset))
        if number == 8:
            found.append(lambda log: log.flush())
            found.append(lambda log: log.assign_topic_id(b"0123456789abcdef"))
    # All records expire; only the last append remains.
    found.append(lambda log: log.delete_expired(NOW + 99 * HOUR, log.log_end_offset))
    found.append(lambda log: append(log, b"last", leader_epoch=9))
    return found


OPTIONS = {"segment_bytes": 400, "index_interval_bytes": 0, "retention_ms": 5 * HOUR, "file_delete_delay_ms": 0}


def live(path: DiskPath, disk: FaultyDisk, upto: int) -> tuple[Log, int]:
    """The log after the first `upto` steps, each repeated until it succeeds; and the number of failures."""
    log = open_log(path, disk=disk, **OPTIONS)  # type: ignore[arg-type]
    failures = 0
    for step in steps()[:upto]:
        before = rows(log), log.log_end_offset
        while True:
            try:
                step(log)
            except NoSpace:
                failures += 1
                assert (rows(log), log.log_end_offset) == before or log.log_start_offset > before[0][0][0]
                assert log.log_end_offset == before[1]
                continue
            break
    return log, failures


@pytest.mark.parametrize("upto", [9, 14, len(steps())])
@pytest.mark.parametrize("times", [1, 3])
def test_the_disk_may_be_full_at_any_write(directory: DiskPath, upto: int, times: int) -> None:
    disk = FaultyDisk(directory.disk)
    open_log(directory / "only opened", disk=disk, **OPTIONS)  # type: ignore[arg-type]
    opened = len(disk.paths(WRITES))
    log, _ = live(directory / "never", disk, upto)
    expected, ends, writes = rows(log), (log.log_start_offset, log.log_end_offset), len(disk.paths(WRITES)) - opened
    failures = 0
    for full_at in range(opened, writes):
        full = FaultyDisk(directory.disk)
        full.fail(WRITES, after=full_at, times=times, error=errno.ENOSPC, torn=True)
        path = directory / f"{full_at}"
        log, failed = live(path, full, upto)
        failures += failed
        assert rows(log) == expected
        assert (log.log_start_offset, log.log_end_offset) == ends
        producers = sorted((state.producer_id, state.epoch, state.last_sequence) for state in log.producers)
        epochs = list(log.leader_epochs)
        again = open_log(path, clean=False, log_start_offset=ends[0], **OPTIONS)  # type: ignore[arg-type]
        assert rows(again) == expected
        assert (again.log_start_offset, again.log_end_offset) == ends
        assert list(again.leader_epochs) == epochs
        if upto < len(steps()):
            assert sorted((state.producer_id, state.epoch, state.last_sequence) for state in again.producers) == producers
        again.close()
        again = open_log(path, log_start_offset=ends[0], **OPTIONS)  # type: ignore[arg-type]
        assert rows(again) == expected
    assert failures > (writes - opened) * 0.7


def test_closed_segments_expire_on_a_full_disk_although_the_active_one_cannot_be_rolled(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, **OPTIONS)  # type: ignore[arg-type]
    for number in range(3):
        append(log, b"x", timestamp=NOW)
        if number < 2:
            log.roll(NOW)
    disk.fail(WRITES, error=errno.ENOSPC, torn=True)
    with pytest.raises(NoSpace):
        log.delete_expired(NOW + 99 * HOUR, 3)
    assert (len(log.segments), log.log_start_offset) == (1, 2)
    disk.repair()
    assert log.delete_expired(NOW + 99 * HOUR, 3) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (3, 3, 0)


def test_a_failed_write_to_the_transaction_index_is_a_storage_error(directory: DiskPath) -> None:
    """Its marker is written already, so only recovery can make the index complete."""
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    append(log, b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    disk.fail(WRITES, after=1, times=1, error=errno.ENOSPC, torn=True)
    with pytest.raises(StorageError) as caught:
        end_transaction(log, 7, committed=False)
    assert not isinstance(caught.value, OutOfResources)
    log = open_log(directory, clean=False)
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, 9)] == [7]


def test_what_a_failed_append_leaves_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it is written, and cannot be removed at once. Recovery would remove the segments after one with such a part behind it."""
    path = DiskPath(OsDisk(), str(tmp_path / "t-0"))
    log = open_log(path)
    append(log, b"first", leader_epoch=0)
    pwrite = system.pwrite

    def half(fd: int, data: memoryview, position: int) -> int:
        if len(data) < 500:
            raise OSError(errno.ENOSPC, "no space")
        return pwrite(fd, data[:500], position)

    def refused(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(system, "pwrite", half)
        patch.setattr(os, "ftruncate", refused)
        with pytest.raises(NoSpace):
            append(log, bytes(700), leader_epoch=0)
        with pytest.raises(StorageError):
            log.roll(NOW)
        with pytest.raises(StorageError):
            append(log, b"second", leader_epoch=0)
    log.roll(NOW)  # removes it
    append(log, b"second", leader_epoch=0)
    append(log, b"third", leader_epoch=0)
    recovered = open_log(path, clean=False)
    assert recovered.log_end_offset == 3
    assert [row[-1] for row in rows(recovered)] == [row[-1] for row in rows(log)]
