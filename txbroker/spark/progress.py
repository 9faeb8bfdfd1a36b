"""Progress of a Spark job on standard error: a line that changes on a terminal, a line for every tenth of the work elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from txbroker.console.texts import duration

EVERY_S = 1.0
LOG_STEPS = 10


class OffsetProgress:
    """Text for a number of offsets of which a fraction is done. `elapsed_s` of the work so far."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._total = total
        self._terminal = stream.isatty()
        self._steps_shown = 0

    def show(self, fraction: float, elapsed_s: float) -> None:
        """Show it, if there is something new."""
        if self._terminal:
            self._stream.write(f"\r{self.text(fraction, elapsed_s)}\x1b[K")
            self._stream.flush()
        elif int(fraction * LOG_STEPS) > self._steps_shown:
            self._steps_shown = int(fraction * LOG_STEPS)
            self._stream.write(f"{self.text(fraction, elapsed_s)}\n")
            self._stream.flush()

    def finish(self, elapsed_s: float, *, failed: bool) -> None:
        """The last line."""
        if not failed:
            self.show(1.0, elapsed_s)
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def text(self, fraction: float, elapsed_s: float) -> str:
        """`120,000 of 300,000 offsets (40 %), 30,000/s, 6 s left`."""
        done = int(self._total * fraction)
        text = f"{done:,} of {self._total:,} offsets ({100 * fraction:.0f} %), {done / max(elapsed_s, 0.001):,.0f}/s"
        if 0 < fraction < 1:
            text += f", {duration(max(round(elapsed_s / fraction * (1 - fraction)), 1) * 1000)} left"
        return text


@contextmanager
def watched(spark: Any, total: int, stream: TextIO | None) -> Iterator[None]:
    """Show how much of `total` offsets is done while the block runs one Spark job. Spark counts finished tasks, so this is an estimate."""
    if stream is None:
        yield
        return
    progress = OffsetProgress(stream, total)
    started_s = time.monotonic()
    ended = threading.Event()
    context = spark.sparkContext

    def watch() -> None:
        while not ended.wait(EVERY_S):
            progress.show(_fraction(context.statusTracker()), time.monotonic() - started_s)

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        ended.set()
        watcher.join()
        progress.finish(time.monotonic() - started_s, failed=failed)


def _fraction(tracker: Any) -> float:
    """The finished part of the active stage that has the most tasks."""
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    largest = max(stages, key=lambda stage: stage.numTasks, default=None)
    return 0.0 if largest is None or not largest.numTasks else float(largest.numCompletedTasks / largest.numTasks)
