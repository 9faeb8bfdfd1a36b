"""The cleaning history of a log: how far each segment has been cleaned, and how fast records become obsolete, by their age.

The generational schedule rewrites only those clean segments where enough records are expected to be obsolete. A segment that a pass has
skipped is clean up to an older offset than the others: its `clean_end`. Time and ages are counted in offsets, that is, in appended records.

`hidden` is an upper bound of the obsolete records in skipped segments. Each of them was replaced by a later record of its key. A pass
that finds n keys in the new part can have made n more records obsolete, and the records that it removes are no longer hidden:
hidden' <= hidden + keys of the new part - removed records. It is never more than the number of records in skipped segments.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_job import GroupCleaned, SegmentSpan, SegmentYield

NEW_RATE_WEIGHT = 0.3  # of a new pass in a rate; the earlier rate has the rest
YIELD_MAX = 0.999  # a segment where all records are obsolete would have an infinite rate


@lazy_dataclass(frozen=True, slots=True)
class CleanSegment:
    """A segment [base_offset, next_offset) that has been cleaned up to `clean_end`; `born`: the middle of its records' offsets."""

    base_offset: int
    next_offset: int
    clean_end: int
    born: int
    records: int


def age_class(age: int) -> int:
    """The class of an age in offsets: two classes for each power of two."""
    return int(2 * math.log2(age + 1)) if age > 0 else 0


@lazy_dataclass(frozen=True, slots=True)
class History:
    """`clean_end`: everything below it has been cleaned at least once. `whole_end`: the end of the last pass that skipped no segment.

    `rates`: by age class, the part of the records that becomes obsolete for each record that is appended to the log.
    """

    clean_end: int
    whole_end: int
    hidden: int
    segments: tuple[CleanSegment, ...] = ()
    rates: dict[int, float] = field(default_factory=dict)

    @property
    def lowest_end(self) -> int:
        """Every segment is clean up to this offset: the cleaner checkpoint, which Kafka reads too."""
        return min((segment.clean_end for segment in self.segments), default=self.clean_end)

    def of_all(self, spans: Iterable[SegmentSpan]) -> list[CleanSegment]:
        """The history of the current segments. Unknown ones, such as after an interrupted swap, are clean up to `lowest_end` only."""
        lowest_end = self.lowest_end
        return [self._of(span, lowest_end) for span in spans]

    def _of(self, span: SegmentSpan, lowest_end: int) -> CleanSegment:
        first = bisect_right(self.segments, span.base_offset, key=lambda one: one.next_offset)
        parts = self.segments[first : bisect_left(self.segments, span.next_offset, key=lambda one: one.base_offset)]
        covered = bool(parts) and parts[0].base_offset <= span.base_offset and parts[-1].next_offset >= span.next_offset
        end = min([one.clean_end for one in parts] + ([] if covered else [lowest_end]))
        records = sum(one.records for one in parts) if covered else span.next_offset - span.base_offset
        born = sum(one.born * one.records for one in parts) // max(records, 1) if covered else 0
        return CleanSegment(span.base_offset, span.next_offset, end, born or (span.base_offset + span.next_offset) // 2, max(records, 0))

    def rate(self, age: int) -> float | None:
        """How fast records of an age become obsolete, by their class or the nearest known one, a younger one if possible; None: unknown."""
        class_ = age_class(age)
        if class_ in self.rates:
            return self.rates[class_]
        younger = [known for known in self.rates if known < class_]
        if younger:
            return self.rates[max(younger)]
        return self.rates[min(self.rates)] if self.rates else None

    def expected_yield(self, born: int, since: int, until: int, records: int) -> float:
        """The expected part of a segment's records that became obsolete while offsets from `since` to `until` were appended.

        Without a known rate, all `records` of the log are assumed to be replaced equally often.
        """
        appended = max(until - since, 0)
        rate = self.rate((since + until) // 2 - born)
        return 1 - math.exp(-appended * (1 / max(records, 1) if rate is None else rate))


def begun(checkpoint: int, spans: Iterable[SegmentSpan]) -> History:
    """The history of a log that has been cleaned up to `checkpoint`, by any broker."""
    segments = tuple(
        CleanSegment(span.base_offset, span.next_offset, checkpoint, (span.base_offset + span.next_offset) // 2,
                     span.next_offset - span.base_offset)
        for span in spans
        if span.next_offset <= checkpoint
    )  # fmt: skip
    return History(checkpoint, checkpoint, 0, segments)


def raised(history: History, checkpoint: int) -> History:
    """The history after another broker or schedule has cleaned the whole log up to `checkpoint`."""
    if checkpoint <= history.lowest_end:
        return history
    segments = tuple(replace(one, clean_end=max(one.clean_end, checkpoint)) for one in history.segments)
    return replace(history, clean_end=max(history.clean_end, checkpoint), segments=segments)


def after_pass(
    history: History, spans: Sequence[SegmentSpan], groups: Sequence[GroupCleaned], *, end_offset: int, keys: int, missed_keys: int
) -> History:
    """The history after a pass. `spans`: the segments of the job; `groups`: what the pass wrote; `keys`: of its map up to `end_offset`.

    With `missed_keys` the rewritten segments keep their `clean_end`: a later pass must find the keys that had no place in the map.
    """
    before = {known.base_offset: known for known in history.of_all(spans)}
    yields = {one.base_offset: one for group in groups for one in group.yields}
    clean_end = max(history.clean_end, end_offset)
    made = [_made(group, before, yields, end_offset, missed_keys > 0) for group in groups]
    skipped = [before[span.base_offset] for span in spans if span.base_offset not in yields and span.next_offset <= clean_end]
    removed = sum(yields[base].obsolete for base, one in before.items() if base in yields and one.next_offset <= history.clean_end)
    new = min(keys + missed_keys, max(end_offset - history.clean_end, 0))
    left = sum(one.records for one in (*made, *skipped) if one.clean_end < clean_end)
    whole = not missed_keys and all(one.clean_end >= clean_end for one in skipped) and end_offset >= clean_end
    return History(
        clean_end=clean_end,
        whole_end=end_offset if whole else history.whole_end,
        hidden=min(max(history.hidden + new - (0 if missed_keys else removed), 0), left),
        segments=tuple(sorted((*made, *skipped), key=lambda one: one.base_offset)),
        rates=_learned(history, before, yields, end_offset),
    )


def _made(
    group: GroupCleaned, before: dict[int, CleanSegment], yields: dict[int, SegmentYield], end_offset: int, missed: bool
) -> CleanSegment:
    old = [before[base] for base in group.old_base_offsets]
    counts = [yields[one.base_offset].records_after for one in old]
    records = sum(counts)
    born = sum(one.born * count for one, count in zip(old, counts, strict=True)) // records if records else old[0].born
    clean_end = min(one.clean_end for one in old) if missed else end_offset
    return CleanSegment(group.new_base_offset, old[-1].next_offset, clean_end, born, records)


def _learned(history: History, before: dict[int, CleanSegment], yields: dict[int, SegmentYield], end_offset: int) -> dict[int, float]:
    """The rates, updated with this pass: by age class, because single segments vary too much."""
    found: dict[int, list[float]] = {}
    for base, won in yields.items():
        segment = before[base]
        since = segment.clean_end if segment.next_offset <= history.clean_end else base
        if won.records_before and since < end_offset:
            part = min(won.obsolete / won.records_before, YIELD_MAX)
            rate = -math.log1p(-part) / (end_offset - since)
            sums = found.setdefault(age_class((since + end_offset) // 2 - segment.born), [0.0, 0.0])
            sums[0] += rate * won.records_before
            sums[1] += won.records_before
    rates = dict(history.rates)
    for known, (total, weight) in found.items():
        new = total / weight
        rates[known] = new if known not in rates else (1 - NEW_RATE_WEIGHT) * rates[known] + NEW_RATE_WEIGHT * new
    return rates
