"""What a benchmark is made of: figures that it yields, and a way to get ready, measure and clean up on one broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.support.server import Server

Sample = dict[str, float]
"""One measurement: by the keys of its `Figure`s."""


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark. `target` is what txbroker's is to be in terms of Kafka's; more is better unless `less`."""

    key: str
    unit: str
    less: bool = False
    target: float | None = None
    digits: int = 0

    def met(self, ratio: float) -> bool | None:
        """Whether a ratio reaches the target; None when there is none."""
        if self.target is None:
            return None
        return ratio <= self.target if self.less else ratio >= self.target


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how often."""

    seconds: float = 6.0
    warmup_s: float = 1.0
    first_warmup_s: float = 10.0
    """A JVM compiles what is hot for this long; before the first run of each load, on both brokers alike."""
    rounds: int = 3
    scale: float = 1.0
    """Of counts: messages, records, wake-ups."""


Measure = Callable[[], Sample]


@dataclass(frozen=True)
class Bench:
    """`ready(server, settings)` prepares and yields the measurement, which is then called once a round, and once to warm up."""

    name: str
    what: str
    figures: tuple[Figure, ...]
    ready: Callable[[Server, Settings], AbstractContextManager[Measure]]


@dataclass
class Outcome:
    """All samples of one benchmark, by broker."""

    bench: Bench
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def values(self, broker: str, figure: Figure) -> list[float]:
        return [sample[figure.key] for sample in self.samples.get(broker, []) if figure.key in sample]
