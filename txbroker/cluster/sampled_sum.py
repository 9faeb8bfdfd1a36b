"""A sum over the last samples of a rate, as Kafka's metrics count it (SampledStat)."""

from __future__ import annotations

from collections import deque


class SampledSum:
    """What was recorded in the last `sample_count` samples of `sample_s` seconds each."""

    __slots__ = ("_sample_count", "_sample_s", "_samples")

    def __init__(self, sample_count: int, sample_s: float) -> None:
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._samples: deque[list[float]] = deque(maxlen=sample_count)  # their beginnings, and sums

    def __bool__(self) -> bool:
        """Whether there may be any samples now."""
        return bool(self._samples)

    def record(self, amount: float, now_s: float) -> None:
        """Add to the current sample; a negative amount takes back one that was recorded."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= self._sample_s:
            samples.append([now_s, 0.0])
        samples[-1][1] += amount

    def measure_window(self, now_s: float) -> tuple[float, float]:
        """The sum of the samples that still count, and the seconds over which they are averaged: a new rate has a whole window, too."""
        total, age_s = self.measure(now_s)
        missing = self._sample_count - 1 - age_s // self._sample_s
        return total, max(age_s + max(missing, 0) * self._sample_s, self._sample_s)

    def measure(self, now_s: float) -> tuple[float, float]:
        """The sum of the samples that still count, and the age of the oldest in seconds; 0.0 for both without any."""
        samples = self._samples
        while samples and now_s - samples[0][0] >= self._sample_count * self._sample_s:
            samples.popleft()
        return (sum(amount for _, amount in samples), now_s - samples[0][0]) if samples else (0.0, 0.0)
