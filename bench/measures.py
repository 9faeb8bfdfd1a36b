"""A benchmark: the figures it yields, and how to prepare, measure and clean up on one broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.support.server import Server

Sample = dict[str, float]
"""One measurement: values by the keys of the benchmark's figures, and of these conditions."""

GENERATOR = "generator"  # cores that the load generator used
OTHERS = "others"  # cores that other processes used
ERRORS, RETRIES = "errors", "retries"  # that real clients have reported


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark. `target` is the ratio to Kafka's figure to reach; a larger figure is better unless `less`."""

    key: str
    unit: str
    less: bool = False
    target: float | None = None
    digits: int = 0

    def met(self, ratio: float) -> bool | None:
        """Whether a ratio reaches the target; None without a target."""
        if self.target is None:
            return None
        return ratio <= self.target if self.less else ratio >= self.target


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Durations and numbers of measurements."""

    seconds: float = 6.0
    warmup_s: float = 1.0
    first_warmup_s: float = 15.0
    """Before the first measurement of each load, on both brokers: a JVM needs this long to compile the hot code."""
    rounds: int = 5
    scale: float = 1.0
    """Factor for counts of messages, records and wake-ups."""


Measure = Callable[[], Sample]


@dataclass(frozen=True)
class Work:
    """What is measured, and its figures."""

    name: str
    what: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Bench(Work):
    """`ready(server, settings)` prepares a broker and yields the measurement, which is called once to warm up and then once per round."""

    ready: Callable[[Server, Settings], AbstractContextManager[Measure]]


@dataclass
class Outcome:
    """All samples of one benchmark, by broker. `machine`: facts about the one that they were measured on."""

    bench: Work
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    machine: str = ""

    def values(self, broker: str, figure: Figure) -> list[float]:
        return [sample[figure.key] for sample in self.samples.get(broker, []) if figure.key in sample]
