"""Metric families, cut into pieces that are small enough to be made between two turns of the reactor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import Metric

PIECE_SAMPLES = 50
# As the JMX exporter's rules write them: Kafka's percentiles are attributes named 50thPercentile ... 999thPercentile.
QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}

Sample = tuple[dict[str, str], float]


class Piece(NamedTuple):
    """Some samples of a family; `first` has the family's head."""

    metric: Metric
    first: bool


def gauges(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Values that go up and down; nothing where there is none."""
    return _family("gauge", name, name, documentation, samples)


def counters(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Counts since the start; `name` comes without the `_total` that is put after it."""
    return _family("counter", name, f"{name}_total", documentation, samples)


def gauge(name: str, documentation: str, value: float) -> Iterator[Piece]:
    """One value without labels."""
    return gauges(name, documentation, [({}, value)])


def counter(name: str, documentation: str, value: float) -> Iterator[Piece]:
    """One count without labels."""
    return counters(name, documentation, [({}, value)])


def untyped(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Counts whose names, given by others, do not end as OpenMetrics has it."""
    return _family("unknown", name, name, documentation, samples)


def _family(kind: str, name: str, sample_name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    first = True
    metric = Metric(name, documentation, kind)
    for labels, value in samples:
        metric.add_sample(sample_name, labels, value)
        if len(metric.samples) == PIECE_SAMPLES:
            yield Piece(metric, first)
            first = False
            metric = Metric(name, documentation, kind)
    if metric.samples:
        yield Piece(metric, first)


def quantiles(values: Iterable[float], scale: float, labels: Mapping[str, str], which: Mapping[str, float] = QUANTILES) -> list[Sample]:
    """The quantiles of these values, times `scale`; none of no values."""
    ordered: Sequence[float] = sorted(values)
    last = len(ordered) - 1
    return [({**labels, "quantile": name}, ordered[round(part * last)] * scale) for name, part in which.items()] if ordered else []
