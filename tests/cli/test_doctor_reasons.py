"""The doctor's reasons about expiry and compaction, by cases, and the facts that it reads from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbroker.cli.doctor import compaction_checks, expiry_checks, segment_files
from txbroker.cli.doctor.facts import CleaningFacts, Configs, PartitionFacts, SegmentFacts
from txbroker.cli.doctor.findings import Finding, named
from txbroker.console.texts import duration, moment
from txbroker.log.checkpoints import CLEANER_OFFSETS
from txbroker.log.cleaner.cleanable import Why

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def explain(topic: dict[str, str], *partitions: PartitionFacts) -> list[Finding]:
    return list(expiry_checks.explain(Configs(topic, {}), partitions, NOW_MS))


def partition(oldest_ms: int | None, newest_ms: int | None, size: int = 1000, *segments: SegmentFacts) -> PartitionFacts:
    return PartitionFacts(0, 0, 10, oldest_ms, newest_ms, size, list(segments))


def segment(base: int, first_ms: int, largest_ms: int, *, active: bool, size: int = 500) -> SegmentFacts:
    return SegmentFacts(base, size, first_ms, largest_ms, NOW_MS, active)


def test_topics_whose_configuration_prevents_expiry() -> None:
    old = partition(NOW_MS - 9 * DAY_MS, NOW_MS)
    (finding,) = explain({"cleanup.policy": "compact"}, old)
    assert finding.outcome == "ok"
    assert "cleanup.policy is compact" in finding.found
    (finding,) = explain({"retention.ms": "-1", "retention.bytes": "-1"}, old)
    assert finding.found.startswith("records never expire")


@pytest.mark.parametrize(
    ("oldest_ms", "words"),
    [
        (NOW_MS - HOUR_MS, "1 h ago"),
        (NOW_MS - 7 * DAY_MS - 1000, "due at the next check (log.retention.check.interval.ms=300000)"),
        (None, "the records have no timestamps"),
    ],
)
def test_records_that_are_not_overdue(oldest_ms: int | None, words: str) -> None:
    (finding,) = explain({}, partition(oldest_ms, NOW_MS))
    assert finding.outcome == "ok"
    assert words in finding.found


def test_an_active_segment_that_grows_keeps_old_records() -> None:
    (finding,) = explain({"retention.ms": str(HOUR_MS)}, partition(NOW_MS - 2 * DAY_MS, NOW_MS - 1000))
    assert finding.outcome == "warning"
    assert "all of it may be in the active segment, which the first record after 2023-11-19 22:13:20 UTC rolls" in finding.found
    assert "without new records, it is deleted after 2023-11-14 23:13:19 UTC" in finding.found
    exact = partition(NOW_MS - 2 * DAY_MS, NOW_MS, 500, segment(0, NOW_MS - 2 * DAY_MS, NOW_MS, active=True))
    (finding,) = explain({"retention.ms": str(HOUR_MS), "segment.ms": str(DAY_MS)}, exact)
    assert "the active one), holds records from 2023-11-12 22:13:20 UTC to 2023-11-14 22:13:20 UTC" in finding.found
    assert "the next record rolls it (segment.ms=86400000, 1 d)" in finding.found


def test_a_closed_segment_expires_by_its_largest_timestamp() -> None:
    pinned = partition(
        NOW_MS - 9 * DAY_MS, NOW_MS, 1000,
        segment(0, NOW_MS - 9 * DAY_MS, NOW_MS - HOUR_MS, active=False), segment(5, NOW_MS, NOW_MS, active=True),
    )  # fmt: skip
    (finding,) = explain({}, pinned)
    assert "it is deleted after 2023-11-21 21:13:20 UTC" in finding.found
    assert "the active one" not in finding.found
    late = partition(
        NOW_MS - 9 * DAY_MS, NOW_MS, 1000,
        segment(0, NOW_MS - 9 * DAY_MS, NOW_MS - 8 * DAY_MS, active=False), segment(5, NOW_MS, NOW_MS, active=True),
    )  # fmt: skip
    (finding,) = explain({}, late)
    assert "has been due since 2023-11-13 22:13:20 UTC" in finding.found


def test_timestamps_in_the_future() -> None:
    ahead = partition(NOW_MS, NOW_MS * 1000)
    future, other = explain({}, ahead)
    assert (future.outcome, other.outcome) == ("warning", "ok")
    assert "microseconds" in future.advice or "micro-" in future.advice
    (clocks, _) = explain({"message.timestamp.type": "LogAppendTime"}, partition(NOW_MS, NOW_MS + HOUR_MS))
    assert clocks.check == "clocks"
    assert explain({}, partition(NOW_MS, NOW_MS + 1000))[0].outcome == "ok", "one second in the future is tolerated"


def test_with_precise_retention_records_expire_one_by_one() -> None:
    precise = {"retention.ms": str(HOUR_MS), "retention.precise": "true"}
    (finding,) = explain(precise, partition(NOW_MS - HOUR_MS - 1000, NOW_MS))
    assert "due at the next check" in finding.found
    (finding,) = explain(precise, partition(NOW_MS - DAY_MS, NOW_MS), partition(NOW_MS - 2 * DAY_MS, NOW_MS))
    assert finding.outcome == "warning"
    assert "one by one (retention.precise=true); the first record is 2 d old" in finding.found
    assert "segment" not in finding.found
    (finding,) = explain({"retention.ms": str(HOUR_MS)}, partition(NOW_MS - DAY_MS, NOW_MS))
    assert "retention.precise=true" in finding.advice
    future, *_ = explain(precise, partition(NOW_MS + DAY_MS, NOW_MS + DAY_MS))
    assert "they, and all records after them, are kept until" in future.found


def test_by_size() -> None:
    limits = {"retention.ms": "-1", "retention.bytes": "1000", "segment.bytes": "500"}
    assert [finding.outcome for finding in explain(limits, partition(NOW_MS, NOW_MS, 1500))] == ["ok"]
    (finding,) = explain(limits, partition(NOW_MS, NOW_MS, 1501))
    assert finding.outcome == "warning"
    assert "partition 0 are larger, up to 1.5 kB" in finding.found


def test_compaction() -> None:
    configs = Configs({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}, {})
    active = segment(9, NOW_MS, NOW_MS, active=True)
    closed = [segment(0, NOW_MS, NOW_MS, active=False, size=700), segment(5, NOW_MS, NOW_MS, active=False, size=300)]
    part = partition(NOW_MS, NOW_MS, 1500, *closed, active)
    part.first_dirty_offset = 5
    (finding,) = compaction_checks.explain(configs, [part])
    assert (finding.outcome, finding.found.partition(": a dirty")[2]) == ("ok", " ratio of 0.30, below min.cleanable.dirty.ratio=0.5")
    part.first_dirty_offset = None
    (finding,) = compaction_checks.explain(configs, [part])
    assert (finding.outcome, "it is due" in finding.found) == ("warning", True)
    (finding,) = compaction_checks.explain(configs, [partition(NOW_MS, NOW_MS, 500, active)])
    assert finding.found.startswith("partition 0 has only the active segment")
    (finding,) = compaction_checks.explain(Configs({"cleanup.policy": "compact"}, {"log.cleaner.enable": "false"}), [part])
    assert "log.cleaner.enable is false" in finding.found


def test_reasons_of_the_broker_are_shown() -> None:
    configs = Configs({"cleanup.policy": "compact"}, {})

    def reported(index: int, why: str, sentence: str) -> PartitionFacts:
        return PartitionFacts(index, cleaning=CleaningFacts("idle", 0.25, why, sentence))

    ratio = [reported(0, "dirty-ratio", "0.25 of it is dirty"), reported(2, "dirty-ratio", "0.30 of it is dirty")]
    facts = [*ratio, reported(1, "uncleanable", "it is uncleanable: a bad batch"), reported(3, "", "")]
    first, second, third = compaction_checks.explain(configs, facts)
    assert (first.outcome, first.found) == ("ok", "partition 0: 0.25 of it is dirty; the same for partition 2")
    assert (second.outcome, second.found) == ("failed", "partition 1: it is uncleanable: a bad batch")
    assert (third.outcome, third.found) == ("ok", "partition 3: its dirty ratio is 0.25, and it is about to be compacted")
    assert all(finding.advice for finding in (first, second))
    (off,) = compaction_checks.explain(Configs({"cleanup.policy": "delete"}, {}), ratio)
    assert "has no compact" in off.found


def test_every_reason_of_the_broker_has_advice_or_needs_none() -> None:
    fine = {"nothing-dirty", "min-compaction-lag", "no-free-thread", "cleaning", "backoff", "moving", "not-compacted"}
    assert compaction_checks.ADVICE.keys() | fine == {why.value for why in Why}


def test_preallocated_time_indexes_and_incomplete_logs(tmp_path: Path) -> None:
    """As in the files of a running Kafka: zeros after the entries, an incomplete batch."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(bytes(30))
    (directory / f"{0:020}.timeindex").write_bytes((5).to_bytes(8, "big") + bytes(4) + (7).to_bytes(8, "big") + bytes(4) + bytes(1200))
    (directory / f"{9:020}.log").write_bytes(b"")
    (directory / f"{9:020}.log.deleted").write_bytes(b"x")
    (part,) = segment_files.read_segments(tmp_path, "t", [PartitionFacts(0), PartitionFacts(1)])
    assert [(found.base_offset, found.first_ms, found.largest_ms, found.active) for found in part.segments] == [
        (0, None, 7, False),
        (9, None, None, True),
    ]
    (tmp_path / CLEANER_OFFSETS).write_bytes(b"nonsense")
    assert segment_files.read_segments(tmp_path, "t", [PartitionFacts(0)])[0].first_dirty_offset is None
    (tmp_path / CLEANER_OFFSETS).write_bytes(b"0\n1\nt 0 9\n")
    assert segment_files.read_segments(tmp_path, "t", [PartitionFacts(0)])[0].first_dirty_offset == 9


def test_texts() -> None:
    times_ms = (5, 1000, 90_000, HOUR_MS, 26 * HOUR_MS, 30 * DAY_MS)
    assert [duration(ms) for ms in times_ms] == ["5 ms", "1 s", "1 min 30 s", "1 h", "1 d 2 h", "30 d"]
    assert moment(NOW_MS) == "2023-11-14 22:13:20 UTC"
    assert "292278994" in moment(2**63 - 1) or moment(2**63 - 1) == "9223372036854775807 ms after 1970"
    assert named(list("abcdefg")) == "a, b, c, d, e and 2 more"
