"""A sweep over sizes: its figures, and a subject (one broker) that grows and is measured at each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from bench.measures import Sample, Settings
from tests.support.server import Server


@dataclass(frozen=True)
class Curve:
    """One figure over all sizes. `growth_max`: the largest ratio of txbroker's figure at the largest size to that at the smallest."""

    key: str
    unit: str
    digits: int = 1
    growth_max: float | None = None


class Subject(Protocol):
    """One broker under one sweep."""

    def grow(self, size: int) -> None:
        """Grow to this size, and warm up."""

    def measure(self) -> Sample:
        """Called once per round."""

    def afterwards(self) -> Sample:
        """Called once per round, after `measure` for all rounds: measurements after which the broker is not warm."""


@dataclass(frozen=True)
class Sweep:
    """What grows, through which sizes, and the figures at each."""

    name: str
    what: str
    unit: str
    sizes: tuple[int, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class ServerSweep(Sweep):
    """`subject(server, settings)` gets a server that was started for this sweep on an empty directory."""

    subject: Callable[[Server, Settings], AbstractContextManager[Subject]]


@dataclass
class Grown:
    """All samples of one sweep, by broker and size."""

    sweep: Sweep
    samples: dict[str, dict[int, list[Sample]]] = field(default_factory=dict)

    def add(self, broker: str, size: int, sample: Sample) -> None:
        self.samples.setdefault(broker, {}).setdefault(size, []).append(sample)

    def sizes(self, broker: str) -> Sequence[int]:
        return sorted(self.samples.get(broker, {}))

    def value(self, broker: str, size: int, key: str) -> float | None:
        """The median; None if it was not measured."""
        values = [sample[key] for sample in self.samples.get(broker, {}).get(size, []) if key in sample]
        return median(values) if values else None

    def growth(self, broker: str, key: str) -> float | None:
        """The figure at the largest size divided by that at the smallest."""
        found = [value for size in self.sizes(broker) if (value := self.value(broker, size, key)) is not None]
        return found[-1] / found[0] if len(found) > 1 and found[0] > 0 else None
