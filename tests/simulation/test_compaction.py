"""What the simulation requires of compacted logs: planted mistakes are found, and the log cleaner runs."""

from __future__ import annotations

import pytest

from simulation.invariants.batches import batches, batches_with_records
from simulation.invariants.compaction import CompactedTruth
from simulation.invariants.open_transactions import OpenTransactions
from simulation.memory_disk import MemoryDisk
from simulation.run import run_plan
from simulation.workloads import draw
from tests.log.support import NOW, marker, open_log
from tests.support.fakes.disk_path import DiskPath
from txbroker.log.log import Log
from txbroker.wire.records import Record, build

DAY_MS = 86_400_000
ALL = 1 << 30


def batch(offset: int, key: bytes, value: bytes | None, **options: object) -> bytes:
    return build([Record(offset, NOW, key, value)], base_offset=offset, **options)  # type: ignore[arg-type]


def log_of(name: str, batches: list[bytes], *, retention_ms: int = DAY_MS) -> Log:
    """A follower's log, which may have gaps."""
    directory = DiskPath(MemoryDisk(), f"/{name}").made()
    log = open_log(directory / "log", cleanup_policy=frozenset({"compact"}), delete_retention_ms=retention_ms)
    log.append_replicated(memoryview(bytearray(b"".join(batches))), now_ms=NOW)
    return log


def truth_of(batches: list[bytes]) -> CompactedTruth:
    truth = CompactedTruth()
    for header, records in batches_with_records(log_of("all", batches)):
        truth.committed(header, records)
    return truth


FIRST, OTHER, SECOND = batch(0, b"a", b"1"), batch(1, b"b", b"2"), batch(2, b"a", b"3")


def test_replaced_records_may_be_missing_and_the_latest_ones_may_not() -> None:
    truth = truth_of([FIRST, OTHER, SECOND])
    assert truth.missing(log_of("cleaned", [OTHER, SECOND]), ALL) is None
    lost = truth.missing(log_of("lost", [FIRST, SECOND]), ALL)
    assert lost == "the latest record of key b'b', at 1, is missing: it has no record of this key"
    old = log_of("old", [FIRST, OTHER])
    assert truth.missing(old, 2) is None, "the latest one is above this high watermark"
    assert truth.missing(old, 3) == "the latest record of key b'a', at 2, is missing: the first one in the log is at 0"


def test_a_tombstone_may_be_gone_after_its_time_with_all_older_records() -> None:
    end = batch(2, b"a", None)
    truth = truth_of([FIRST, OTHER, end])
    assert truth.missing(log_of("all of it", [FIRST, OTHER, end]), ALL) is None
    assert truth.missing(log_of("gone", [OTHER], retention_ms=0), ALL) is None
    assert "the latest tombstone of key b'a'" in (truth.missing(log_of("back", [FIRST, OTHER], retention_ms=0), ALL) or "")
    assert "the latest tombstone of key b'a'" in (truth.missing(log_of("early", [OTHER]), ALL) or "")


@pytest.mark.parametrize(("ended", "latest"), [(None, 0), (False, 0), (True, 1)])
def test_records_of_open_and_aborted_transactions_replace_nothing(ended: bool | None, latest: int) -> None:
    sent = batch(1, b"a", b"2", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    batches = [FIRST, sent]
    if ended is not None:
        end = bytearray(marker(7, committed=ended))
        end[:8] = (2).to_bytes(8, "big")
        batches.append(bytes(end))
    assert truth_of(batches).latest == {b"a": latest}


def test_the_last_stable_offset_may_pass_the_cleaned_start_of_a_transaction() -> None:
    """A replica that has lost its disk copies the log without the first batch, and not yet the marker."""
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    first, second = batch(0, b"a", b"1", base_sequence=0, **options), batch(1, b"a", b"2", base_sequence=1, **options)
    end = bytearray(marker(7, committed=True))
    end[:8] = (2).to_bytes(8, "big")
    truth = OpenTransactions()
    for header in batches(log_of("all", [first, second, bytes(end)])):
        truth.committed(header)
    assert truth.problem(log_of("cleaned", [second]), 1, 2, 3) is None
    assert "from offset 0 on ends with the marker at 2" in (truth.problem(log_of("whole", [first, second]), 1, 2, 3) or "")


def test_a_record_that_was_not_committed() -> None:
    truth = truth_of([FIRST, OTHER])
    ((_, records),) = batches_with_records(log_of("other", [batch(0, b"a", b"x")]))
    assert truth.difference(records) == "the record at 0 is b'a': b'x', and was committed as (b'a', b'1')"


def test_the_log_cleaner_runs() -> None:
    plan = next(plan for plan in map(draw, range(1, 100)) if plan.cleaning)
    result, _ = run_plan(plan)
    assert result.violation is None and result.counts["cleaned segments"] > 0, result
