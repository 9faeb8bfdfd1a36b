"""Which part of a log can be cleaned, whether a pass is due, and why not."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from txbroker.log.cleaner.cleanable import Cleanable, Limit, Why, assess, why_not
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log_config import LogConfig

NOW = 1_700_000_000_000
MINUTE = 60_000


class Part(NamedTuple):
    """A segment."""

    base_offset: int
    size: int = 100
    largest_timestamp_ms: int = NOW - 10 * MINUTE
    first_timestamp: int = NOW - 20 * MINUTE


PARTS = (Part(0), Part(10), Part(20), Part(30), Part(40))


def assessed(*parts: Part, config: LogConfig | None = None, **given: Any) -> Cleanable:
    offsets = {"checkpoint": None, "log_start_offset": 0, "log_end_offset": 45, "last_stable_offset": 45, **given}
    return assess(parts or PARTS, config or LogConfig(cleanup_policy=frozenset({"compact"})), now_ms=NOW, **offsets)


def limits(found: Cleanable) -> tuple[int, int, int, int, Limit]:
    return found.first_dirty_offset, found.first_uncleanable_offset, found.clean_bytes, found.cleanable_bytes, found.limit


def test_without_a_checkpoint_all_but_the_active_segment_is_dirty() -> None:
    found = assessed()
    assert limits(found) == (0, 40, 0, 400, Limit.ACTIVE)
    assert found.dirty_ratio == 1.0


@pytest.mark.parametrize(
    ("checkpoint", "clean", "cleanable", "end"),
    # A checkpoint within a segment: the segment is clean and dirty, as in Kafka.
    [(0, 0, 400, 40), (10, 100, 300, 40), (15, 200, 300, 40), (39, 400, 100, 40), (40, 400, 0, 40), (43, 400, 0, 43), (45, 400, 0, 45)],
)
def test_the_dirty_part_begins_at_the_checkpoint(checkpoint: int, clean: int, cleanable: int, end: int) -> None:
    found = assessed(checkpoint=checkpoint)
    assert limits(found) == (checkpoint, end, clean, cleanable, Limit.ACTIVE)
    assert found.dirty_ratio == cleanable / (clean + cleanable)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_last_record_alone_is_nothing_to_clean_with_the_other_strategies(strategy: Strategy) -> None:
    """A pass over a rolled log ends before the last record, and no further pass must follow."""
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), compaction_strategy=strategy, compaction_strategy_header="v", min_cleanable_dirty_ratio=0.1
    )
    by_offset = strategy is Strategy.OFFSET
    rolled = assessed(*PARTS[:4], Part(45, 0), checkpoint=44, config=config)
    assert (rolled.first_uncleanable_offset, rolled.cleanable_bytes) == ((45, 100) if by_offset else (44, 0))
    assert rolled.is_due(0.1) == by_offset
    reason = why_not(rolled, config, 45)
    assert (reason is None) == by_offset
    assert reason is None or reason.why is Why.NOTHING_DIRTY
    more = assessed(*PARTS[:4], Part(46, 0), checkpoint=44, log_end_offset=46, last_stable_offset=46, config=config)
    assert (more.first_uncleanable_offset, more.cleanable_bytes) == (46, 100)


def test_an_impossible_checkpoint_is_corrected() -> None:
    below = assessed(Part(20), Part(30), Part(40), checkpoint=5, log_start_offset=25)
    assert (below.first_dirty_offset, below.cleanable_bytes) == (25, 200)
    assert "below the log start offset 25" in below.correction
    expired = assessed(
        Part(20), Part(30), Part(40), checkpoint=5, log_start_offset=25, config=LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
    )
    assert (expired.first_dirty_offset, expired.correction) == (25, ""), "the normal effect of retention"
    above = assessed(checkpoint=46)
    assert (above.first_dirty_offset, above.cleanable_bytes) == (0, 400)
    assert "above the log end offset 45" in above.correction


@pytest.mark.parametrize(
    ("stable", "end", "cleanable"), [(44, 40, 400), (40, 40, 400), (39, 30, 300), (30, 30, 300), (29, 20, 200), (5, 0, 0)]
)
def test_open_transactions_limit_the_cleanable_part(stable: int, end: int, cleanable: int) -> None:
    found = assessed(last_stable_offset=stable)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (end, cleanable)
    assert (found.limit is Limit.UNSTABLE) == (stable < 40)


def test_segments_are_cleanable_after_min_compaction_lag() -> None:
    parts = (Part(0), Part(10), Part(20, 100, NOW - MINUTE), Part(30), Part(40))
    found = assessed(*parts, config=LogConfig(min_compaction_lag_ms=2 * MINUTE))
    assert limits(found) == (0, 20, 0, 200, Limit.LAG), "also an old one after a young one"
    assert limits(assessed(*parts, config=LogConfig(min_compaction_lag_ms=MINUTE))) == (0, 40, 0, 400, Limit.ACTIVE)
    # The age of clean segments does not matter.
    assert assessed(*parts, checkpoint=30, config=LogConfig(min_compaction_lag_ms=2 * MINUTE)).cleanable_bytes == 100


def test_the_oldest_dirty_record_forces_a_pass() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=15 * MINUTE, min_cleanable_dirty_ratio=1.0)
    found = assessed(config=config, checkpoint=30)
    assert (found.overdue_ms, found.is_due(1.0)) == (5 * MINUTE, True)
    young = assessed(*(part._replace(first_timestamp=NOW - 14 * MINUTE) for part in PARTS), config=config, checkpoint=30)
    assert (young.overdue_ms, young.is_due(1.0)) == (0, False)
    assert assessed(config=config, checkpoint=41).overdue_ms == 0, "the active segment is not dirty yet"
    assert assessed(*(part._replace(first_timestamp=-1) for part in PARTS), config=config).overdue_ms == 0, "no timestamps"


def test_a_pass_is_due_above_the_ratio_only() -> None:
    found = assessed(checkpoint=20)
    assert found.dirty_ratio == 0.5
    assert (found.is_due(0.5), found.is_due(0.49)) == (False, True)
    assert not assessed(checkpoint=40).is_due(0.0)


@pytest.mark.parametrize(
    ("given", "config", "why"),
    [
        ({"checkpoint": 20}, {}, Why.RATIO),
        ({"checkpoint": 45}, {}, Why.NOTHING_DIRTY),
        ({"checkpoint": 40}, {}, Why.ACTIVE_SEGMENT),
        ({"checkpoint": 0, "last_stable_offset": 3}, {}, Why.UNSTABLE),
        ({"checkpoint": 0}, {"min_compaction_lag_ms": 11 * MINUTE}, Why.LAG),
        ({"checkpoint": 10}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_reason_why_no_pass_is_due(given: dict[str, Any], config: dict[str, Any], why: Why | None) -> None:
    settings = LogConfig(**config)
    found = why_not(assessed(config=settings, **given), settings, 45)
    assert (None if found is None else found.why) == why


def test_a_new_log_has_nothing_to_clean() -> None:
    found = assessed(Part(0, 0), log_end_offset=0, last_stable_offset=0)
    assert (found.cleanable_bytes, found.dirty_ratio, found.is_due(0.0)) == (0, 0.0, False)
