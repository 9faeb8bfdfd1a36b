"""One audit: every partition of a topic read as often as the memory demands, and a page of answers for each part of its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from txbroker.cli.audit.latest_versions import HASH_END, Delivered, Hashes, Ints, Latest, MemoryExceeded, Rows
from txbroker.cli.audit.record_rows import Bounds, Decoder, TopicSource
from txbroker.cli.failures import CommandFailed

PAGE_KEYS = 32 * 1024

Counted = Callable[[int, int], None]
"""Told bytes and records that were read."""


class Selection(NamedTuple):
    """Which keys are meant: those with a hash below `hash_end`, a sample that is the same whenever it is taken, or `keys` alone."""

    hash_end: int = HASH_END
    keys: tuple[bytes, ...] = ()


class Wanted(NamedTuple):
    """What is asked. `committed`: of each group, its offsets by partition. `unseen`: only keys whose latest value a group has not seen."""

    selection: Selection
    committed: Mapping[str, Mapping[int, int]]
    unseen: bool
    header: str | None
    bytes_max: int


class Page(NamedTuple):
    """Some keys of a partition: `latest` are indexes of `rows`, and so are those of each group in `delivered`, where -1 is nothing."""

    partition: int
    rows: Rows
    latest: Ints
    delivered: Mapping[str, Delivered]


@dataclass(slots=True)
class GroupSummary:
    """How a group stands. `oldest_ms`: the smallest timestamp among the latest values that it has not seen."""

    unseen: int = 0
    never: int = 0
    oldest_ms: int | None = None


@dataclass(slots=True)
class Summary:
    """What was found in all."""

    keys: int = 0
    records: int = 0
    keyless: int = 0
    passes: int = 0
    groups: dict[str, GroupSummary] = field(default_factory=dict)
    missing: list[bytes] = field(default_factory=list)


class Audit:
    """Answers what is wanted of a topic. Iterate `pages`, then see `summary`."""

    def __init__(self, source: TopicSource, wanted: Wanted, counted: Counted) -> None:
        self.summary = Summary(groups={group: GroupSummary() for group in wanted.committed})
        self._source = source
        self._wanted = wanted
        self._counted = counted
        self._decoder = Decoder(wanted.header)
        self._missing = set(wanted.selection.keys)

    def pages(self, bounds: Mapping[int, Bounds]) -> Iterator[Page]:
        """All keys, partition after partition, in each part in the order in which they were last written."""
        for partition, bound in bounds.items():
            committed = {group: offsets.get(partition, 0) for group, offsets in self._wanted.committed.items()}
            if self._wanted.unseen:
                bound = Bounds(max(bound.start, min(committed.values(), default=bound.end)), bound.end)
            low, width, number = 0, self._wanted.selection.hash_end, 1
            while low < self._wanted.selection.hash_end:
                # What has fitted into the memory once will fit again.
                high = min(low + width, self._wanted.selection.hash_end)
                table = self._read(partition, bound, committed, low, high, number)
                low, width, number = table.high, table.high - low, number + 1
                yield from self._answers(partition, table, committed)
        self.summary.missing = sorted(self._missing)

    def _read(self, partition: int, bound: Bounds, committed: Mapping[str, int], low: int, high: int, number: int) -> Latest:
        borders = [offset for offset in committed.values() if bound.start < offset < bound.end]
        table = Latest(borders, low, high, self._wanted.bytes_max)
        named = self._wanted.selection.keys
        only = self._decoder.hashes(named)[0] if named else None

        def chosen(high: Hashes) -> npt.NDArray[np.bool_]:
            wanted = table.chosen(high)
            return wanted if only is None else wanted & np.isin(high, only)

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
                raise _too_small(self._wanted.bytes_max) from None
            if found.next_offset <= offset:
                what = f"partition {partition} of {self._source.name} cannot be read at offset {offset}"
                raise CommandFailed(f"{what}; look at its files with `txbroker dump-log`")
            offset = found.next_offset
            self._counted(len(chunk.data), found.records)
            self.summary.records += found.records if low == 0 else 0
            self.summary.keyless += found.keyless if low == 0 else 0
        try:
            table.finish()
        except MemoryExceeded:
            raise _too_small(self._wanted.bytes_max) from None
        return table

    def _answers(self, partition: int, table: Latest, committed: Mapping[str, int]) -> Iterator[Page]:
        starts = table.starts()
        latest = table.last(starts)
        rows = table.rows
        delivered = {group: table.delivered(starts, offset) for group, offset in committed.items()}
        self.summary.keys += len(starts)
        for group, given in delivered.items():
            self._sum_up(self.summary.groups[group], given, rows.timestamp[latest])
        order = np.argsort(rows.offset[latest], kind="stable")
        if self._wanted.unseen:
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
    def _sum_up(group: GroupSummary, given: Delivered, latest_ms: Ints) -> None:
        group.unseen += int(given.unseen.sum())
        group.never += int((given.row < 0).sum())
        waiting: npt.NDArray[Any] = latest_ms[given.unseen]
        waiting = waiting[waiting >= 0]  # -1: records of old formats have no timestamp
        if len(waiting):
            oldest = int(waiting.min())
            group.oldest_ms = oldest if group.oldest_ms is None else min(group.oldest_ms, oldest)


def _too_small(bytes_max: int) -> CommandFailed:
    return CommandFailed(f"{bytes_max} bytes do not hold a single part of the keys; raise --memory")
