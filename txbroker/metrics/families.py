"""Metric families, cut into pieces that are small enough to be made between two turns of the reactor.

prometheus-client makes what formats differ in: the heads of families. The lines, which are the same in all, are made here: 5,000
partitions have 85,000 of them, which take it 0.7 s of the processor, and 0.1 s in this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client.core import Metric

T = TypeVar("T")

PIECE_LINES = 200
# As the JMX exporter's rules write them: Kafka's percentiles are attributes named 50thPercentile ... 999thPercentile.
QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}

Sample = tuple[str, float]  # the labels, as `labels` makes them, and the value


class Piece(NamedTuple):
    """A family's head, where it begins, and some of its lines."""

    head: Metric | None
    lines: str


def labels(**pairs: str) -> str:
    """Labels as they stand in a line."""
    inside = ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs.items()])
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def gathered(rows: Iterable[T], into: list[T]) -> Iterator[Piece]:
    """Fill a list, in steps between which others have their turn; there is nothing to tell yet."""
    for row in rows:
        into.append(row)
        if len(into) % PIECE_LINES == 0:
            yield Piece(None, "")


def gauges(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Values that go up and down. A family without samples still has its head, so that every scrape lists all families."""
    return _family("gauge", name, name, documentation, samples)


def counters(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Counts since the start; `name` comes without the `_total` that is put after it."""
    return _family("counter", name, f"{name}_total", documentation, samples)


def gauge(name: str, documentation: str, value: float) -> Iterator[Piece]:
    """One value without labels."""
    return gauges(name, documentation, [("", value)])


def counter(name: str, documentation: str, value: float) -> Iterator[Piece]:
    """One count without labels."""
    return counters(name, documentation, [("", value)])


def untyped(name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    """Counts whose names, given by others, do not end as OpenMetrics has it."""
    return _family("unknown", name, name, documentation, samples)


def _family(kind: str, name: str, sample_name: str, documentation: str, samples: Iterable[Sample]) -> Iterator[Piece]:
    head: Metric | None = Metric(name, documentation, kind)
    lines: list[str] = []
    for text, value in samples:
        lines.append(f"{sample_name}{text} {+value}\n")  # + makes numbers of truth values
        if len(lines) == PIECE_LINES:
            yield Piece(head, "".join(lines))
            head, lines = None, []
    if lines or head is not None:
        yield Piece(head, "".join(lines))


def quantiles(values: Iterable[float], scale: float, which: Mapping[str, float] = QUANTILES, **others: str) -> list[Sample]:
    """The quantiles of these values, times `scale`, with other labels beside; none of no values."""
    ordered: Sequence[float] = sorted(values)
    last = len(ordered) - 1
    return [(labels(**others, quantile=name), ordered[round(part * last)] * scale) for name, part in which.items()] if ordered else []
