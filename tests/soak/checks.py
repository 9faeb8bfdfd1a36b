"""Checks of the samples and of the broker's log: memory, descriptors and threads do not grow, and clients explain every warning.

The slope is the Theil-Sen estimator, the median of the slopes of all pairs, which a burst does not change. The first half of the time is
for warming up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.sampling import Sample

# The growth allowed in the second half: per hour, plus a constant, because warming up may still go on.
MEMORY_KIB_PER_HOUR = 3 * 1024
MEMORY_KIB = 6 * 1024
DESCRIPTORS_PER_HOUR = 4
DESCRIPTORS = 12
THREADS = 3
# Thread pools grow to their sizes in the first minutes: 16, 10 and 1, plus the main thread.
WARM_S = 600
THREADS_MAX = 28
PAIRS_POINTS_MAX = 200

# A warning that a misbehaving connection explains.
_CLIENT = re.compile(r"(?:closing the connection of|client) [\d.]+:(\d+)\b.*")
_LINE = re.compile(r"^\[[^]]+\] (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)")


@dataclass(frozen=True)
class Trend:
    """The growth of something in the second half, by its slope, and the growth allowed."""

    what: str
    unit: str
    growth: float
    allowed: float

    @property
    def flat(self) -> bool:
        return self.growth <= self.allowed

    def __str__(self) -> str:
        return f"{self.what}: {self.growth:+,.1f} {self.unit} in the second half, {self.allowed:,.1f} allowed"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The Theil-Sen slope; of many points a regular selection is used."""
    some = points[:: len(points) // PAIRS_POINTS_MAX + 1]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(some) for x2, y2 in some[i + 1 :] if x2 > x1]
    return median(slopes) if slopes else 0.0


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """The growth in the second half of the samples."""
    middle = samples[-1].elapsed_s / 2
    half = [sample for sample in samples if sample.elapsed_s >= middle]
    seconds = half[-1].elapsed_s - half[0].elapsed_s

    def growth(value: Callable[[Sample], float]) -> float:
        return slope([(sample.elapsed_s, value(sample)) for sample in half]) * seconds

    hours = seconds / 3600
    threads = THREADS if half[0].elapsed_s >= WARM_S else max(THREADS, THREADS_MAX - half[0].threads)
    return [
        Trend("memory", "KiB", growth(lambda sample: sample.anonymous_kib), MEMORY_KIB + MEMORY_KIB_PER_HOUR * hours),
        # Each segment has one; their number depends on what is produced and deleted.
        Trend("descriptors without segments", "", growth(lambda sample: sample.descriptors - sample.segments),
              DESCRIPTORS + DESCRIPTORS_PER_HOUR * hours),
        Trend("threads", "", growth(lambda sample: sample.threads), threads),
    ]


def log_problems(lines: Iterable[str], suspects: set[int]) -> list[str]:
    """Lines of the broker's log that no client explains. `suspects`: local ports of connections that misbehaved."""
    problems = []
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            if line.strip():
                problems.append(line)  # part of a traceback, or a print
            continue
        level, message = found.groups()
        client = _CLIENT.match(message)
        explained = level == "WARNING" and client is not None and int(client[1]) in suspects
        if level not in ("DEBUG", "INFO") and not explained:
            problems.append(line)
    return [problem.rstrip("\n")[:500] for problem in problems]
