"""Which clean segments the next pass rewrites, and whether a pass is due (`log.cleaner.schedule=generational`). Pure functions.

If the records of a segment become obsolete at a steady rate, it is best rewritten when its obsolete bytes, times how long they have been
obsolete, outweigh the bytes of I/O: then the same I/O leaves the fewest obsolete bytes, summed over time. So a pass has the value

    sum over the rewritten segments of  obsolete part x records appended since it was cleaned / records of the log x bytes
    - price x bytes of I/O

The I/O is reading for the map (all from the lowest `clean_end` of the rewritten segments on), reading again, and writing. A pass rewrites
the segments with the largest value, and is due when the value is not negative. The price follows from min.cleanable.dirty.ratio r: a log
whose records are all replaced equally often is cleaned when Kafka would clean it. With p = r / (1 - r), a pass of Kafka's cleaner over c
clean bytes has the value p^2 x c for (2 + 3p) x c bytes of I/O.

Rates from earlier passes may be outdated. So a pass is also due when a quarter of the log is new, or r of it if that is more.

At most `STALE_MAX` (or r, if that is more) of the records of all closed segments may be obsolete. When the next pass could leave more, or
when four times the records of the log were appended since the last pass that skipped no segment, the pass rewrites everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_history import History
from txbroker.log.cleaner.cleaning_job import SegmentSpan

STALE_MAX = 0.5
WHOLE_EVERY = 4
RATIO_MAX = 0.99
NEW_MAX = 0.25
# Neighbours that together fill at most this part of a segment are joined.
SMALL = 0.5


@lazy_dataclass(frozen=True, slots=True)
class Plan:
    """A pass. `rewrite`: base offsets of the clean segments to rewrite; None: all. The map is built from `first_dirty_offset` on."""

    first_dirty_offset: int
    rewrite: tuple[int, ...] | None


@lazy_dataclass(slots=True)
class _Candidate:
    """A clean segment. `value`: of rewriting it, without the I/O of reading for the map."""

    base_offset: int
    next_offset: int
    clean_end: int
    size: int
    value: float
    chosen: bool = False


def price(ratio: float) -> float:
    """The price of one byte of I/O. `ratio`: min.cleanable.dirty.ratio."""
    dirty = min(ratio, RATIO_MAX) / (1 - min(ratio, RATIO_MAX))
    return dirty * dirty / (2 + 3 * dirty)


def whole(history: History) -> Plan:
    """A pass that rewrites all segments."""
    return Plan(history.lowest_end, None)


def plan(history: History, spans: Sequence[SegmentSpan], end: int, ratio: float, segment_bytes: int) -> Plan | None:
    """The next pass over a log that can be cleaned up to `end`; None when none is due. `ratio`: min.cleanable.dirty.ratio."""
    known = history.of_all(spans)
    clean = [(span, one) for span, one in zip(spans, known, strict=True) if span.next_offset <= history.clean_end]
    dirty = [span for span in spans if span.next_offset > history.clean_end and span.base_offset < end]
    if not dirty:
        return None
    if not clean:
        return whole(history)
    records = sum(one.records for _, one in clean)
    new = end - history.clean_end
    if history.hidden + new > max(STALE_MAX, ratio) * (records + new) or end - history.whole_end >= WHOLE_EVERY * records:
        return whole(history)
    cost = price(ratio)
    candidates = [
        _candidate(span, one.clean_end, history.expected_yield(one.born, one.clean_end, end, records), end, records, cost)
        for span, one in clean
    ]
    value = sum(_value_of_new(history, span, end, records, cost) for span in dirty)
    value, start = _best_start(candidates, value, history.clean_end, cost)
    if value < 0 and new <= max(NEW_MAX, ratio) * (records + new):
        return None
    for candidate in candidates:
        candidate.chosen = candidate.clean_end >= start and candidate.value > 0
    _join_small(candidates, start, segment_bytes)
    chosen = [candidate for candidate in candidates if candidate.chosen]
    # Segments with missed keys are rewritten in any case, and the map must begin where they are clean.
    unfinished = [one.clean_end for _, one in clean if one.clean_end < one.next_offset]
    first = min([history.clean_end, *(candidate.clean_end for candidate in chosen), *unfinished])
    return Plan(first, tuple(candidate.base_offset for candidate in chosen))


def _candidate(span: SegmentSpan, clean_end: int, obsolete: float, end: int, records: int, cost: float) -> _Candidate:
    waited = (end - clean_end) / max(records, 1)
    value = span.size * (obsolete * waited - cost * (2 - obsolete))
    return _Candidate(span.base_offset, span.next_offset, clean_end, span.size, value)


def _value_of_new(history: History, span: SegmentSpan, end: int, records: int, cost: float) -> float:
    """The value of a dirty segment. It is read for the map in any case, and may have obsolete records itself."""
    born = (span.base_offset + min(span.next_offset, end)) // 2
    obsolete = history.expected_yield(born, span.base_offset, end, records) if history.rates else 0.0
    waited = (end - span.base_offset) / max(records, 1)
    return span.size * (obsolete * waited - cost * (3 - obsolete))


def _best_start(candidates: Sequence[_Candidate], value: float, clean_end: int, cost: float) -> tuple[float, int]:
    """The best value of a pass, and the first offset of its map. With a lower offset more segments can be rewritten, for more I/O."""
    best, best_start = value, clean_end
    by_end = sorted(candidates, key=lambda one: one.clean_end, reverse=True)
    by_place = sorted(candidates, key=lambda one: one.next_offset, reverse=True)
    gained = 0.0
    read = placed = 0
    for number, candidate in enumerate(by_end):
        gained += max(candidate.value, 0.0)
        start = candidate.clean_end
        if number + 1 < len(by_end) and by_end[number + 1].clean_end == start:
            continue
        while placed < len(by_place) and by_place[placed].next_offset > start:
            read += by_place[placed].size
            placed += 1
        if value + gained - cost * read > best:
            best, best_start = value + gained - cost * read, start
    return best, best_start


def _join_small(candidates: Sequence[_Candidate], start: int, segment_bytes: int) -> None:
    """Also rewrite small neighbours that fit into one segment: segments that are rewritten alone would become ever smaller."""
    for one, following in pairwise(candidates):
        fits = one.size + following.size <= SMALL * segment_bytes
        if fits and min(one.clean_end, following.clean_end) >= start and one.next_offset == following.base_offset:
            one.chosen = following.chosen = True
