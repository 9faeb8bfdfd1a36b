"""A dry pass that is planned from the files, compared with the open log."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.log.support import NOW, PARTITION, append, end_transaction, open_log
from tests.support.fakes.disk_path import DiskPath
from txbroker.log.cleaner.cleanable import Limit, assess
from txbroker.log.cleaner.cleaning_job import CleaningSettings, LastRecord
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Origin
from txbroker.logtools.compaction_plan import Planned, plan

COMPACT = frozenset({"compact"})
SETTINGS = CleaningSettings(
    segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=4096, delete_retention_ms=0, max_message_bytes=1 << 20,
    map_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=1 << 16, io_bytes_per_second=float("inf"),
)  # fmt: skip


def planned(
    disk: Disk, log: Log, *, checkpoint: int | None = None, start: int = 0, roll: bool = False, now_ms: int = NOW,
    config: LogConfig | None = None,
) -> Planned:
    found = plan(
        disk, log.directory, PARTITION, config or log.config, SETTINGS, checkpoint=checkpoint, log_start_offset=start, roll=roll,
        now_ms=now_ms, seed=1,
    )  # fmt: skip
    assert found is not None
    return found


def same_as_of(disk: Disk, log: Log, checkpoint: int | None, *, roll: bool, now_ms: int) -> None:
    """Plan from the files and compare the job with the open log."""
    found = planned(disk, log, checkpoint=checkpoint, start=log.log_start_offset, roll=roll, now_ms=now_ms)
    if roll:
        log.roll(now_ms)
    stable = log.last_stable_offset(log.log_end_offset)
    assert (found.log_start_offset, found.log_end_offset, found.last_stable_offset) == (log.log_start_offset, log.log_end_offset, stable)
    wanted = assess(
        log.segments, log.config, checkpoint=checkpoint, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset,
        last_stable_offset=stable, now_ms=now_ms,
    )  # fmt: skip
    assert found.cleanable == wanted
    if found.job is None:
        assert wanted.first_uncleanable_offset == wanted.first_dirty_offset
        return
    spans = [(span.base_offset, span.next_offset, span.size) for span in found.job.segments]
    limit = wanted.first_uncleanable_offset
    closed = [(one.base_offset, next_.base_offset, one.size) for one, next_ in pairwise(log.segments)]
    assert spans == [span for span in closed if span[0] < limit]
    producers = {LastRecord(state.producer_id, state.epoch, state.last_offset) for state in log.producers}
    assert set(found.job.producers) == producers
    assert found.job.dry


def test_an_empty_directory(directory: DiskPath) -> None:
    assert plan(
        directory.disk, str(directory), PARTITION, LogConfig(), SETTINGS, checkpoint=None, log_start_offset=0, roll=False, now_ms=NOW,
        seed=1,
    ) is None  # fmt: skip


def test_the_active_segment_is_cleaned_only_with_roll(directory: DiskPath) -> None:
    with_one = open_log(directory, cleanup_policy=COMPACT)
    append(with_one, b"a", b"b")
    found = planned(directory.disk, with_one)
    assert (found.job, found.cleanable.limit) == (None, Limit.ACTIVE)
    job = planned(directory.disk, with_one, roll=True).job
    assert job is not None
    assert (job.first_dirty_offset, job.first_uncleanable_offset, job.log_end_offset) == (0, 2, 2)
    assert planned(directory.disk, with_one, checkpoint=2, roll=True).job is None
    assert not (directory / f"{2:020}.log").exists(), "no file is created"


@pytest.mark.parametrize("seed", range(12))
def test_any_log(directory: DiskPath, seed: int) -> None:
    """Rolls, producers, open, committed and aborted transactions, and lags."""
    random = Random(seed)
    lag_ms = random.choice([0, 5000])
    log = open_log(directory, cleanup_policy=COMPACT, min_compaction_lag_ms=lag_ms)
    sequences: dict[int, int] = {}
    in_transaction: set[int] = set()
    now_ms = NOW
    for _ in range(60):
        now_ms += 500
        match random.randrange(6):
            case 0:
                log.roll(now_ms)
            case 1 if in_transaction:
                producer = random.choice(sorted(in_transaction))
                in_transaction.discard(producer)
                end_transaction(log, producer, committed=random.random() < 0.5)
            case 2:
                producer = random.randrange(20, 23)
                sequence = sequences.get(producer, 0)
                append(log, b"x", b"y", timestamp=now_ms, now_ms=now_ms, producer_id=producer, producer_epoch=0, base_sequence=sequence,
                       transactional=True, origin=Origin.CLIENT)  # fmt: skip
                sequences[producer] = sequence + 2
                in_transaction.add(producer)
            case 3:
                producer = random.randrange(10, 13)
                sequence = sequences.get(producer, 0)
                append(log, b"z", timestamp=now_ms, now_ms=now_ms, producer_id=producer, producer_epoch=0, base_sequence=sequence)
                sequences[producer] = sequence + 1
            case _:
                append(log, b"v", timestamp=now_ms, now_ms=now_ms)
    checkpoint = random.choice([None, 0, log.segments[len(log.segments) // 2].base_offset, log.log_end_offset + 5])
    same_as_of(directory.disk, log, checkpoint, roll=False, now_ms=now_ms)
    log.flush()
    same_as_of(directory.disk, log, checkpoint, roll=True, now_ms=now_ms)


def test_damage_at_the_end_and_invalid_snapshots_are_ignored(directory: DiskPath) -> None:
    log = open_log(directory, cleanup_policy=COMPACT)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(NOW)
    append(log, b"b", producer_id=8, producer_epoch=0, base_sequence=0)
    log.roll(NOW)
    append(log, b"c")
    before = planned(directory.disk, log)
    (directory / f"{2:020}.snapshot").write_bytes(b"nonsense")
    directory.disk.append(f"{directory}/{2:020}.log", bytes(40))
    after = planned(directory.disk, log)
    assert after == before
    assert after.log_end_offset == 3
    assert after.job is not None
    assert {last.producer_id for last in after.job.producers} == {7, 8}
