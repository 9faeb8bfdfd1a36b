"""The short form of `make soak`: 20 seconds of it; and that its checks can fail."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.checks import MEMORY_KIB, log_problems, slope, trends
from tests.soak.ledgers import Ledgers, PartitionLedger
from tests.soak.plan import Plan
from tests.soak.sampling import Sample
from tests.soak.soak import Soak


@pytest.mark.process
def test_a_short_soak(tmp_path: Path) -> None:
    plan = Plan(20.0, secrets.token_hex(4))
    print(f"to run this again: python -m tests.soak --hours 1/180 --seed {plan.seed}")
    verdict = Soak(tmp_path / "soak", plan).run()
    print(verdict)
    assert not verdict.faults


def taken(elapsed_s: float, kib: float, descriptors: int = 50) -> Sample:
    return Sample(elapsed_s, int(kib), int(kib), 5, descriptors, 10, 30, 0, 20, 0.0, 0, 0)


def test_one_outlier_does_not_change_the_slope() -> None:
    points = [(float(x), 3.0 * x) for x in range(2000)]
    points[1500] = (1500.0, 1e9)
    assert slope(points) == pytest.approx(3.0)


@pytest.mark.parametrize(("kib_per_s", "flat"), [(0.0, True), (-1.0, True), (1.0, True), (10.0, False)])
def test_growing_memory_in_the_second_half_is_found(kib_per_s: float, flat: bool) -> None:
    hour = [taken(x, 30_000 + kib_per_s * x) for x in range(0, 7200, 5)]
    assert trends(hour)[0].flat is flat


def test_memory_may_grow_at_first() -> None:
    assert all(trend.flat for trend in trends([taken(x, min(x, 3000) * MEMORY_KIB) for x in range(0, 7200, 5)]))


def test_threads_may_grow_to_the_pool_sizes_in_the_first_minutes_only() -> None:
    def growing(seconds: int, least: int, most: int) -> list[str]:
        samples = [replace(taken(x, 1), threads=least + (most - least) * x // seconds) for x in range(seconds)]
        return [trend.what for trend in trends(samples) if not trend.flat]

    assert growing(120, 6, 20) == []
    assert growing(120, 6, 100) == ["threads"]
    assert growing(7200, 6, 20) == ["threads"]


def test_growing_descriptors_are_found() -> None:
    found = trends([taken(x, 1, 50 + x // 100) for x in range(7200)])
    assert [trend.what for trend in found if not trend.flat] == ["descriptors without segments"]


def test_unexplained_lines_of_the_log_are_found() -> None:
    lines = [
        "[2026-01-01 00:00:00,000] INFO group visitor-1: generation 1 has 1 members (txbroker.groups)",
        "[2026-01-01 00:00:00,000] WARNING closing the connection of 127.0.0.1:4711: there is no request 999 (txbroker.connection)",
    ]
    assert log_problems(lines, {4711}) == []
    assert log_problems(lines, {4712}) == [lines[1]]
    bad = ["[2026-01-01 00:00:00,000] ERROR a step failed (txbroker.controller)", "Traceback (most recent call last):"]
    assert log_problems(bad, {4711}) == bad


def ledger() -> tuple[PartitionLedger, list[str]]:
    ledgers = Ledgers([("t", 0)])
    partition = ledgers.partitions["t", 0]
    partition.expect("p", idempotent=True)
    return partition, ledgers.faults.sentences


def read(partition: PartitionLedger, *records: tuple[int, int]) -> None:
    for offset, number in records:
        partition.read(offset, b"p %d padding" % number)


def test_the_books_of_a_partition() -> None:
    partition, faults = ledger()
    partition.acknowledged(1, "p", 2)
    read(partition, (0, 1), (1, 2))
    partition.acknowledged(0, "p", 1)
    partition.skipped_to(10)
    read(partition, (10, 9))
    partition.promised("p", 9)
    partition.check_promises()
    assert faults == []


@pytest.mark.parametrize("records", [
    pytest.param([(0, 1), (1, 3)], id="lost"),
    pytest.param([(0, 1), (1, 1)], id="repeated"),
    pytest.param([(0, 1), (2, 2)], id="an offset is missing"),
    pytest.param([(0, 2)], id="the first is lost"),
])
def test_faults_of_a_partition_are_found(records: list[tuple[int, int]]) -> None:
    partition, faults = ledger()
    read(partition, *records)
    assert len(faults) == 1


def test_acknowledged_records_that_were_not_read_are_found() -> None:
    partition, faults = ledger()
    read(partition, (0, 1), (1, 2))
    partition.acknowledged(0, "p", 2)
    partition.acknowledged(5, "p", 3)
    partition.promised("p", 3)
    partition.check_promises()
    assert len(faults) == 3


def test_the_books_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers = Ledgers([("t", 0)])
    for first, last in ((0, 9), (20, 29), (5, 19)):
        ledgers.given("g", ("t", 0), first, last)
    group = ledgers.groups["g", ("t", 0)]
    assert group.end == 30
    ledgers.partitions["t", 0].log_start = 40
    ledgers.given("g", ("t", 0), 40, 49)
    assert (group.end, group.skipped) == (50, 10)
    ledgers.given("g", ("t", 0), 60, 69)
    assert group.end == 50
    monkeypatch.setattr("tests.soak.ledgers.SETTLED_WITHIN_S", -1.0)
    ledgers.settle()
    assert group.end == 70 and len(ledgers.faults.sentences) == 1
