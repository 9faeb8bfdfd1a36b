"""The tasks of a replay on executors: a partition for each record, and the records of each partition to the target, at a pace."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

from txbroker.spark.key_partitioners import PARTITIONERS
from txbroker.spark.partition_writer import PartitionWriter, Target
from txbroker.spark.replay_progress import Positions
from txbroker.wire.records import Record

RECORD = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
SLEEP_S_MIN = 0.01  # records that are due within less are sent in one batch


class Assign:
    """The target partition of a record: by the key, or for records without one by the partition of the source. For a UDF."""

    def __init__(self, function: str, count: int) -> None:
        self._function = function
        self._count = count

    def __call__(self, key: bytearray | None, partition: int) -> int:
        return partition % self._count if key is None else PARTITIONERS[self._function](bytes(key), self._count)


class Gap(NamedTuple):
    """A time without records, between the timestamps of two (ms), of which `cut_ms` are left out."""

    end: int
    cut_ms: int


class Pace(NamedTuple):
    """`speed`: 1 as it was, 2 twice as fast. `gaps`: in order."""

    speed: float
    gaps: Sequence[Gap] = ()


class WriteRecords:
    """Writes records that are sorted by target, and in their order for each. With a pace all tasks begin together.

    `ends`: by target partition, up to which offsets the source was read for it.
    """

    def __init__(self, target: Target, ends: Mapping[int, Positions], pace: Pace | None) -> None:
        self._target = target
        self._ends = ends
        self._pace = pace

    def __call__(self, records: Iterable[Any]) -> Iterator[tuple[int, int]]:
        """Target partition, and how many records were written to it."""
        rows: Iterator[_Row] = map(_row, records)
        clock = None
        if self._pace is not None:
            first = next(rows, None)
            clock = _Clock(self._pace, None if first is None else first[3])
            rows = rows if first is None else chain([first], rows)
        for target, of_target in groupby(rows, lambda row: row[0]):
            writer = PartitionWriter(self._target, target)
            try:
                latest = None
                for _, source, offset, timestamp, record in of_target:
                    if clock is not None:
                        latest = timestamp if latest is None else max(latest, timestamp)  # timestamps go back, time does not
                        clock.wait(latest, writer)
                    writer.add(source, offset, record)
                writer.finish(self._ends[target])
            finally:
                writer.close()
            yield target, writer.added


_Row = tuple[int, int, int, int, Record]


def _row(row: Any) -> _Row:
    """Target, source partition, offset, timestamp, and the record. Spark 4.0 has bytearrays, of which nothing may be kept."""
    headers = tuple((header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ())
    key, value = (None if content is None else bytes(content) for content in (row.key, row.value))
    return row.target, row.partition, row.offset, row.timestamp_ms, Record(row.offset, row.timestamp_ms, key, value, headers)


def finish_without_records(target: Target, partition: int, ends: Positions) -> None:
    """Commit that there is nothing to write to a partition up to these offsets of the source."""
    writer = PartitionWriter(target, partition)
    try:
        writer.finish(ends)
    finally:
        writer.close()


class _Clock:
    """Starts when all tasks are there, at the smallest of their first timestamps."""

    def __init__(self, pace: Pace, first: int | None) -> None:
        from pyspark import BarrierTaskContext

        firsts = [int(text) for text in BarrierTaskContext.get().allGather("" if first is None else str(first)) if text]
        self._first = min(firsts, default=0)
        self._speed = pace.speed
        self._ends = [gap.end for gap in pace.gaps]
        self._cut_ms = list(accumulate((gap.cut_ms for gap in pace.gaps), initial=0))
        self._start_s = time.monotonic()

    def wait(self, timestamp: int, writer: PartitionWriter) -> None:
        """Until a record is due; what was added before is written first."""
        cut_ms = self._cut_ms[bisect_right(self._ends, timestamp)] - self._cut_ms[bisect_right(self._ends, self._first)]
        due_s = self._start_s + (timestamp - self._first - cut_ms) / 1000 / self._speed
        if due_s - time.monotonic() > SLEEP_S_MIN:
            writer.flush()
            time.sleep(max(due_s - time.monotonic(), 0.0))
