"""Which clean segments a pass is to rewrite, and whether it is worth a pass at all (`log.cleaner.schedule=generational`). Pure functions.

A segment whose records become obsolete at a steady rate is best left until its obsolete bytes, times the time for which they have lain
there, are worth the bytes of I/O: that way the same I/O leaves the least behind, summed over time. So a pass has a value,

    sum over what it rewrites of  part obsolete x appended since it was cleaned / records of the log x bytes   -   price x bytes of I/O

where I/O is reading for the map (all from the lowest `clean_end` of what is rewritten on), reading again and writing. The segments
that make it largest are rewritten, and the pass is due once it is not negative. The price follows from min.cleanable.dirty.ratio r in
such a way that a log whose records are all replaced as often is cleaned when Kafka would: with p = r / (1 - r), a pass of Kafka's
over c clean bytes has p^2 x c for (2 + 3p) x c bytes of I/O.

What passes have shown may be true no longer: when a quarter of the log (or r of it, if that is more) is new, a pass is due in any case,
if only over that.

The bound: of the records of all closed segments, at most the larger of `STALE_MAX` and r may be obsolete. When the next pass might leave
more, or four times as much has been appended as the log keeps since nothing was left alone last, everything is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from txbroker.log.cleaner.cleaning_history import History
from txbroker.log.cleaner.cleaning_job import SegmentSpan

STALE_MAX = 0.5
WHOLE_EVERY = 4
RATIO_MAX = 0.99
NEW_MAX = 0.25
# Neighbours that fill no more than this of a segment together become one.
SMALL = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass. `rewrite`: base offsets of the clean segments to rewrite, None for all; the map is built from `first_dirty_offset` on."""

    first_dirty_offset: int
    rewrite: tuple[int, ...] | None


@dataclass(slots=True)
class _Candidate:
    """A clean segment, with what rewriting it is worth, without the reading for the map."""

    base_offset: int
    next_offset: int
    clean_end: int
    size: int
    value: float
    chosen: bool = False


def price(ratio: float) -> float:
    """Of a byte of I/O, by min.cleanable.dirty.ratio."""
    dirty = min(ratio, RATIO_MAX) / (1 - min(ratio, RATIO_MAX))
    return dirty * dirty / (2 + 3 * dirty)


def whole(history: History) -> Plan:
    """A pass that leaves nothing alone."""
    return Plan(history.lowest_end, None)


def plan(history: History, spans: Sequence[SegmentSpan], end: int, ratio: float, segment_bytes: int) -> Plan | None:
    """The next pass over a log that can be cleaned up to `end`; None: none is due yet. `ratio`: min.cleanable.dirty.ratio."""
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
    # What lost keys in the map is rewritten in any case, and must be looked for from where it is clean.
    unfinished = [one.clean_end for _, one in clean if one.clean_end < one.next_offset]
    first = min([history.clean_end, *(candidate.clean_end for candidate in chosen), *unfinished])
    return Plan(first, tuple(candidate.base_offset for candidate in chosen))


def _candidate(span: SegmentSpan, clean_end: int, obsolete: float, end: int, records: int, cost: float) -> _Candidate:
    waited = (end - clean_end) / max(records, 1)
    value = span.size * (obsolete * waited - cost * (2 - obsolete))
    return _Candidate(span.base_offset, span.next_offset, clean_end, span.size, value)


def _value_of_new(history: History, span: SegmentSpan, end: int, records: int, cost: float) -> float:
    """What has never been cleaned: it is read for the map in any case, and has obsolete records of its own."""
    born = (span.base_offset + min(span.next_offset, end)) // 2
    obsolete = history.expected_yield(born, span.base_offset, end, records) if history.rates else 0.0
    waited = (end - span.base_offset) / max(records, 1)
    return span.size * (obsolete * waited - cost * (3 - obsolete))


def _best_start(candidates: Sequence[_Candidate], value: float, clean_end: int, cost: float) -> tuple[float, int]:
    """From where the map is best built, and what the pass is worth then: the further back, the more segments can be rewritten."""
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
    """Segments that were rewritten alone shrink and shrink: neighbours that have room in one are rewritten together."""
    for one, following in pairwise(candidates):
        fits = one.size + following.size <= SMALL * segment_bytes
        if fits and min(one.clean_end, following.clean_end) >= start and one.next_offset == following.base_offset:
            one.chosen = following.chosen = True
