"""Keyed traces replayed with the real log cleaner under both schedules: `python -m bench cleaner-schedule`.

Each trace is appended to a log segment by segment. After each segment the cleaner's loop decides whether a pass is due, and real passes
run in this process. The parameter is min.cleanable.dirty.ratio: the smaller it is, the fewer records are stale and the more is rewritten.
After the first third of the trace, when the log has reached its size, bytes written and read are counted, and after each segment the
obsolete records that remain.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from twisted.internet.task import Clock

from bench import plots
from tests.cleaner.workers import CleanerWorkers
from tests.log_directories.support import NOW, T0, DirectoryHarness
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.log.log_results import Origin
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.wire.records import Record, build

HERE = Path(__file__).resolve().parent
SCHEDULES = ("kafka", "generational")
RATIOS = (0.05, 0.1, 0.2, 0.35, 0.5)
RECORDS, KEYS = 160_000, 30_000
SEGMENT_RECORDS, BATCH_RECORDS, VALUE_BYTES = 2_000, 100, 80
STALE_SHOWN_MIN = 0.02  # per cent: the smallest value on the logarithmic axis
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def traces(records: int, keys: int) -> Iterator[tuple[str, Ints]]:
    """The name of each trace and its keys, in the order in which they are written."""
    chance = np.random.default_rng(1)

    def zipf(exponent: float) -> Ints:
        weights = 1 / np.arange(1, keys + 1) ** exponent
        ranks = np.searchsorted(np.cumsum(weights / weights.sum()), chance.random(records)).clip(0, keys - 1)
        found: Ints = chance.permutation(keys)[ranks].astype(np.int64)
        return found

    yield "uniform", chance.integers(0, keys, records)
    yield "Zipf 0.9", zipf(0.9)
    yield "Zipf 1.2", zipf(1.2)
    new = chance.random(records // 2) < 0.9
    known = np.cumsum(new)
    yield "append-mostly", np.where(new, known, (chance.random(records // 2) * known).astype(np.int64))
    place = (np.arange(records) / records * keys).astype(np.int64)
    hot = chance.random(records) < 0.9
    yield "hot set that moves", np.where(hot, place + chance.integers(0, keys // 20, records), chance.integers(0, keys, records))


@dataclass(frozen=True, slots=True)
class Point:
    """One replay. `stale`, `stale_most`: the obsolete part of the log's records, mean and maximum, in per cent.

    `written`, `io`: bytes that passes wrote, or read and wrote, per byte appended. `seconds`: duration of all passes.
    """

    trace: str
    schedule: str
    ratio: float
    stale: float
    stale_most: float
    written: float
    io: float
    passes: int
    segments_most: int
    seconds: float


class Replay:
    """One trace under one schedule."""

    def __init__(self, root: Path, schedule: str, ratio: float) -> None:
        config: dict[str, Any] = {
            "cleanup_policy": frozenset({"compact"}), "file_delete_delay_ms": 0, "min_cleanable_dirty_ratio": ratio,
            "segment_bytes": SEGMENT_RECORDS * (VALUE_BYTES + 30),
        }  # fmt: skip
        self._broker = DirectoryHarness(root, 1, **config)
        self._directories = self._broker.start()
        self._log = self._broker.create(T0)
        self._workers = CleanerWorkers()
        self._clock = Clock()
        self._seed = 0
        settings = load_broker_config(parse_overrides([f"log.cleaner.schedule={schedule}"], {}))
        clock: Any = self._clock
        self._cleaning = LogCleaner(clock, settings, self._directories, lambda _: self._log.log_end_offset, lambda: NOW, self._next,
                                  self._workers)  # fmt: skip
        self._cleaning.start()
        self._name = schedule, ratio

    def _next(self) -> int:
        self._seed += 1
        return self._seed

    def run(self, trace: str, keys: Ints, batches: Sequence[bytes]) -> Point:
        """Append the trace, with cleaning after each segment."""
        counted = self._cleaning.counts
        first_of = np.zeros(len(keys), np.bool_)
        first_of[np.unique(keys, return_index=True)[1]] = True
        distinct = np.cumsum(first_of)
        begin = len(keys) // 3 // SEGMENT_RECORDS * SEGMENT_RECORDS
        before, begun_bytes, appended_bytes, seconds = counted.totals, 0, 0, 0.0
        stale: list[float] = []
        segments = 0
        for end in range(SEGMENT_RECORDS, len(keys) + 1, SEGMENT_RECORDS):
            for batch in batches[(end - SEGMENT_RECORDS) // BATCH_RECORDS : end // BATCH_RECORDS]:
                self._log.append(memoryview(bytearray(batch)), leader_epoch=0, now_ms=NOW, origin=Origin.CLIENT)
                appended_bytes += len(batch)
            self._log.roll(NOW)
            seconds += self._look()
            totals = counted.totals
            if end <= begin:
                before, begun_bytes, seconds = totals, appended_bytes, 0.0
                continue
            kept = end - (totals.records_before - totals.records_after)
            stale.append(100 * (kept - int(distinct[end - 1])) / kept)
            segments = max(segments, len(self._log.segments))
        totals, appended = counted.totals, appended_bytes - begun_bytes
        written = totals.bytes_written - before.bytes_written
        read = totals.bytes_read - before.bytes_read
        return Point(trace, *self._name, sum(stale) / len(stale), max(stale), written / appended, (written + read) / appended,
                     totals.passes - before.passes, segments, seconds)  # fmt: skip

    def _look(self) -> float:
        started = time.perf_counter()
        self._clock.advance(15)
        while self._workers.work(self._broker.disk):
            self._broker.worker.run()
            self._clock.advance(0)
        self._broker.worker.run()
        return time.perf_counter() - started


def batches_of(keys: Ints) -> list[bytes]:
    """The trace as a producer sends it."""
    chance = np.random.default_rng(2)
    values = chance.bytes(VALUE_BYTES * BATCH_RECORDS)
    made = []
    for at in range(0, len(keys), BATCH_RECORDS):
        some = keys[at : at + BATCH_RECORDS].tolist()
        records = [Record(i, NOW, b"%010d" % key, values[i * VALUE_BYTES : (i + 1) * VALUE_BYTES]) for i, key in enumerate(some)]
        made.append(build(records))
    return made


def measure(records: int, keys: int, ratios: Sequence[float], directory: Path, tell: Callable[[str], None]) -> list[Point]:
    """All replays."""
    points = []
    for name, trace in traces(records, keys):
        trace = trace[: len(trace) // SEGMENT_RECORDS * SEGMENT_RECORDS]
        batches = batches_of(trace)
        for schedule in SCHEDULES:
            for ratio in ratios:
                root = Path(tempfile.mkdtemp(dir=directory))
                points.append(Replay(root, schedule, ratio).run(name, trace, batches))
                shutil.rmtree(root)
                point = points[-1]
                tell(f"{name}, {schedule} {ratio:g}: {point.stale:.1f} % stale, {point.written:.2f} written, {point.io:.2f} I/O")
    return points


def of_kafka(points: Sequence[Point], point: Point, cost: str) -> float | None:
    """The cost of Kafka's schedule at the same part of stale records, interpolated between its ratios; None outside its range."""
    curve = sorted((one.stale, getattr(one, cost)) for one in points if one.trace == point.trace and one.schedule == SCHEDULES[0])
    for (low, dear), (high, cheap) in pairwise(curve):
        if low <= point.stale <= high and low > 0 and high > low:
            part = math.log(point.stale / low) / math.log(high / low)
            return math.exp((1 - part) * math.log(dear) + part * math.log(cheap))
    return None


def table(points: Sequence[Point]) -> str:
    """One row per replay."""
    lines = [
        "| trace | schedule | dirty ratio | stale %, mean | most | written | x Kafka's | I/O | x Kafka's | passes | segments |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for point in points:
        against = []
        for cost in ("written", "io"):
            kafka = None if point.schedule == SCHEDULES[0] else of_kafka(points, point, cost)
            against.append("" if kafka is None else f"{getattr(point, cost) / kafka:.2f}")
        lines.append(
            f"| {point.trace} | {point.schedule} | {point.ratio:g} | {point.stale:.1f} | {point.stale_most:.1f} | {point.written:.2f} "
            f"| {against[0]} | {point.io:.2f} | {against[1]} | {point.passes} | {point.segments_most} |"
        )
    return "\n".join(lines)


def summary(points: Sequence[Point]) -> str:
    """The geometric mean of the ratios to Kafka's schedule, by trace."""
    lines = ["| trace | written, x Kafka's at equal stale bytes | I/O |", "|---|---|---|"]
    for trace in dict.fromkeys(point.trace for point in points):
        mine = [point for point in points if point.trace == trace and point.schedule == SCHEDULES[1]]
        cells = []
        for cost in ("written", "io"):
            pairs = [(getattr(point, cost), of_kafka(points, point, cost)) for point in mine]
            logs = [math.log(value / kafka) for value, kafka in pairs if kafka]
            cells.append(f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else "")
        lines.append(f"| {trace} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(points: Sequence[Point], path: Path) -> None:
    """One panel per trace and cost: bytes over stale records."""
    panels = []
    for cost, unit in (("written", "bytes rewritten per byte appended"), ("io", "bytes read and written per byte appended")):
        for trace in dict.fromkeys(point.trace for point in points):
            lines: dict[str, Sequence[tuple[float, float]]] = {}
            for schedule in SCHEDULES:
                mine = [one for one in points if (one.trace, one.schedule) == (trace, schedule)]
                lines[schedule] = sorted((max(one.stale, STALE_SHOWN_MIN), float(getattr(one, cost))) for one in mine)
            panels.append(plots.Panel(trace, unit, lines))
    plots.curves(panels, "Both schedules of the log cleaner: lower and further left is better", "stale records, % of the log", path)


HEAD = """\
# The log cleaner's two schedules

Generated by `python -m bench cleaner-schedule`: {records} records of {value} bytes over {keys} keys, in segments of {segment} records,
replayed with the real log cleaner for each `min.cleanable.dirty.ratio`. *Stale* is the part of obsolete records in the log, after each
segment. *Written* and *I/O* are the bytes that passes wrote, or read and wrote, per byte appended. *x Kafka's* is the cost of the
generational schedule divided by that of Kafka's schedule at the same part of stale records, interpolated between its ratios; below 1 is
better. The first third of each trace is not counted.

"""


def write(points: Sequence[Point], where: Path, head: str) -> None:
    """Write the tables, the plot and the samples."""
    (where / "cleaner-schedule.jsonl").write_text("".join(f"{json.dumps(asdict(point))}\n" for point in points))
    text = f"{head}{summary(points)}\n\n![Bytes written over stale records](cleaner-schedule.svg)\n\n{table(points)}\n"
    (where / "CLEANER_SCHEDULE.md").write_text(text)
    draw(points, where / "cleaner-schedule.svg")


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench cleaner-schedule", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--ratios", type=lambda text: [float(part) for part in text.split(",")], default=list(RATIOS))
    parser.add_argument("--results", type=Path, help="directory for CLEANER_SCHEDULE.md and its plot; default: bench/ after a full run")
    parser.add_argument("--directory", type=Path, help="directory for the logs; default: a temporary one")
    parser.add_argument("--redraw", action="store_true", help="measure nothing: write the results again from cleaner-schedule.jsonl")
    options = parser.parse_args(arguments)
    where = options.results or HERE
    head = HEAD.format(records=options.records, value=VALUE_BYTES, keys=options.keys, segment=SEGMENT_RECORDS)
    if options.redraw:
        points = [Point(**json.loads(line)) for line in (where / "cleaner-schedule.jsonl").read_text().splitlines()]
    else:
        with tempfile.TemporaryDirectory(prefix="txbroker-bench-", dir=options.directory) as directory:
            points = measure(options.records, options.keys, options.ratios, Path(directory), lambda line: print(line, file=sys.stderr))
    print(f"{summary(points)}\n\n{table(points)}")
    if options.results or options.redraw or (options.records, options.keys) == (RECORDS, KEYS):
        write(points, where, head)
    return 0
