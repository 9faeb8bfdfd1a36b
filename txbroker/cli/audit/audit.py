"""One audit: reads every partition of a topic, in several passes if the memory demands it, and yields pages of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from txbroker.cli.audit.latest_versions import HASH_END, Delivered, Hashes, Ints, Latest, MemoryExceeded, Rows
from txbroker.cli.audit.record_rows import Bounds, Decoder, TopicSource
from txbroker.console.failures import CommandFailed
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder

PAGE_KEYS = 32 * 1024

OnRead = Callable[[int, int, float], None]
"""Called after each read with its bytes and records, and with the fraction of the work that is done."""


class Selection(NamedTuple):
    """Which keys: those with a hash below `hash_end`, a sample that is the same each time, or only `keys`."""

    hash_end: int = HASH_END
    keys: tuple[bytes, ...] = ()


class Question(NamedTuple):
    """What to find out.

    `committed`: the offsets of each group, by partition. `unseen`: only keys whose latest value some group has not seen. `header`: the
    record header with versions, if any. `order`: which record of a key is the latest.
    """

    selection: Selection
    committed: Mapping[str, Mapping[int, int]]
    unseen: bool
    header: str | None
    bytes_max: int
    order: CompactionOrder = CompactionOrder()


class Page(NamedTuple):
    """Some keys of a partition: `latest` are indexes of `rows`, and so are those of each group in `delivered`, where -1 is none."""

    partition: int
    rows: Rows
    latest: Ints
    delivered: Mapping[str, Delivered]


@dataclass(slots=True)
class GroupSummary:
    """Counts of keys: `unseen`, `never` (nothing delivered). `oldest_ms`: the smallest timestamp among the unseen latest values."""

    unseen: int = 0
    never: int = 0
    oldest_ms: int | None = None


@dataclass(slots=True)
class Summary:
    """Totals of all partitions. `passes`: the maximum number of passes of a partition."""

    keys: int = 0
    records: int = 0
    keyless: int = 0
    passes: int = 0
    groups: dict[str, GroupSummary] = field(default_factory=dict)
    missing: list[bytes] = field(default_factory=list)


class Audit:
    """Iterate `pages`, then read `summary`."""

    def __init__(self, source: TopicSource, question: Question, on_read: OnRead) -> None:
        self.summary = Summary(groups={group: GroupSummary() for group in question.committed})
        self._source = source
        self._question = question
        self._on_read = on_read
        self._decoder = Decoder(question.header)
        self._missing = set(question.selection.keys)
        self._offsets = self._offsets_done = 0

    def pages(self, bounds: Mapping[int, Bounds]) -> Iterator[Page]:
        """All keys, partition after partition, in each pass in the order in which their latest records were written. CommandFailed."""
        ranges = {partition: self._range(partition, bound) for partition, bound in bounds.items()}
        self._offsets = max(sum(bound.end - bound.start for bound in ranges.values()), 1)
        for partition, bound in ranges.items():
            committed = {group: offsets.get(partition, 0) for group, offsets in self._question.committed.items()}
            low, width, number = 0, self._question.selection.hash_end, 1
            while low < self._question.selection.hash_end:
                # What fitted into the memory once will fit again.
                high = min(low + width, self._question.selection.hash_end)
                table = self._read(partition, bound, committed, low, high, number)
                low, width, number = table.high, table.high - low, number + 1
                yield from self._answers(partition, table, committed)
            self._offsets_done += bound.end - bound.start
        self.summary.missing = sorted(self._missing)

    def _range(self, partition: int, bound: Bounds) -> Bounds:
        """The offsets to read. A record that a group has not passed is all that matters for `unseen`, if the last record is the latest."""
        if not self._question.unseen or self._question.order.strategy is not Strategy.OFFSET:
            return bound
        passed = min((offsets.get(partition, 0) for offsets in self._question.committed.values()), default=bound.end)
        return Bounds(min(max(bound.start, passed), bound.end), bound.end)

    def _read(self, partition: int, bound: Bounds, committed: Mapping[str, int], low: int, high: int, number: int) -> Latest:
        borders = [offset for offset in committed.values() if bound.start < offset < bound.end]
        table = Latest(self._question.order, borders, low, high, self._question.bytes_max)
        named = self._question.selection.keys
        only = self._decoder.hashes(named)[0] if named else None

        def chosen(high: Hashes) -> npt.NDArray[np.bool_]:
            in_range = table.chosen(high)
            return in_range if only is None else in_range & np.isin(high, only)

        offset = bound.start
        self.summary.passes = max(self.summary.passes, number)
        while offset < bound.end:
            chunk = self._source.read(partition, offset, bound.end)
            if chunk is None:
                break
            try:
                found = self._decoder.rows(chunk, bound.end, chosen)
                table.add(found.rows)
            except MemoryExceeded:
                raise _too_small(self._question.bytes_max) from None
            if found.next_offset <= offset:
                what = f"partition {partition} of {self._source.name} cannot be read at offset {offset}"
                raise CommandFailed(f"{what}; look at its files with `txbroker dump-log`")
            offset = found.next_offset
            self.summary.records += found.records if low == 0 else 0
            self.summary.keyless += found.keyless if low == 0 else 0
            self._on_read(len(chunk.data), found.records, self._fraction(bound, offset, table))
        try:
            table.finish()
        except MemoryExceeded:
            raise _too_small(self._question.bytes_max) from None
        return table

    def _fraction(self, bound: Bounds, offset: int, table: Latest) -> float:
        """The fraction that is done: of the offsets of all partitions, and of this partition's keys, which several passes may share."""
        offsets = bound.end - bound.start
        hashes = table.low + (table.high - table.low) * (offset - bound.start) / offsets
        return (self._offsets_done + offsets * hashes / self._question.selection.hash_end) / self._offsets

    def _answers(self, partition: int, table: Latest, committed: Mapping[str, int]) -> Iterator[Page]:
        starts = table.starts()
        latest = table.latest(starts)
        rows = table.rows
        delivered = {group: table.delivered(starts, offset) for group, offset in committed.items()}
        self.summary.keys += len(starts)
        for group, given in delivered.items():
            self._count(self.summary.groups[group], given, rows.timestamp[latest])
        order = np.argsort(rows.offset[latest], kind="stable")
        if self._question.unseen:
            some: npt.NDArray[np.bool_] = np.zeros(len(starts), np.bool_)
            for given in delivered.values():
                some |= given.unseen
            order = order[some[order]]
        if self._missing:
            self._missing -= {rows.key(int(index)) for index in latest}
        for at in range(0, len(order), PAGE_KEYS):
            part = order[at : at + PAGE_KEYS]
            some_of = {group: Delivered(given.row[part], given.unseen[part]) for group, given in delivered.items()}
            yield Page(partition, rows, latest[part], some_of)

    @staticmethod
    def _count(group: GroupSummary, given: Delivered, latest_ms: Ints) -> None:
        group.unseen += int(given.unseen.sum())
        group.never += int((given.row < 0).sum())
        unseen_ms: npt.NDArray[Any] = latest_ms[given.unseen]
        unseen_ms = unseen_ms[unseen_ms >= 0]  # -1: records of old formats have no timestamp
        if len(unseen_ms):
            oldest = int(unseen_ms.min())
            group.oldest_ms = oldest if group.oldest_ms is None else min(group.oldest_ms, oldest)


def _too_small(bytes_max: int) -> CommandFailed:
    return CommandFailed(f"{bytes_max} bytes are too few for even a small part of the keys; raise --memory")
