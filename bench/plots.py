"""Plots of results as SVG files; the same figures give the same bytes. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = 3
COLOURS = {"txbroker": "tab:blue", "kafka": "tab:orange"}
BETTER, WORSE = COLOURS["txbroker"], COLOURS["kafka"]  # also distinct for readers who cannot tell red from green
TARGETS = "times better than Apache Kafka; the black mark is the target, orange bars do not reach it"


class NoPlots(Exception):
    """matplotlib is not installed; the message says what to do."""


@dataclass(frozen=True)
class Panel:
    """One figure over all sizes: (size, value) points by broker."""

    title: str
    unit: str
    lines: dict[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Bar:
    """How many times better than Kafka a figure is; `target` is how many times better it should be."""

    name: str
    better: float
    target: float | None


def _figure(width: float, height: float) -> Any:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlots("matplotlib is not installed: run `make bench`, or pip install matplotlib") from error
    matplotlib.rcParams["svg.hashsalt"] = "txbroker"  # otherwise ids in the file differ in each run
    matplotlib.rcParams["svg.fonttype"] = "none"  # text, not outlines of letters
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def curves(panels: Sequence[Panel], title: str, unit: str, path: Path) -> None:
    """One panel for each figure over the sizes, with logarithmic axes where sizes and values allow it."""
    rows = math.ceil(len(panels) / COLUMNS)
    figure = _figure(4.2 * COLUMNS, 2.9 * rows)
    axes = figure.subplots(rows, COLUMNS, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        values = [value for points in panel.lines.values() for _, value in points]
        for broker, points in panel.lines.items():
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=broker, color=COLOURS.get(broker))
        sizes = sorted({size for points in panel.lines.values() for size, _ in points})
        if sizes and sizes[-1] < 10 * sizes[0]:
            axis.set_xticks(sizes)  # a logarithmic axis would have no label between two powers of ten
        else:
            axis.set_xscale("log")
        if values and min(values) > 0 and max(values) > 20 * min(values):
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set_title(f"{panel.title}, {panel.unit}", fontsize="medium")
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(panels) :]:
        axis.axis("off")
    for axis in axes[-1]:
        axis.set_xlabel(unit)
    axes.flat[0].legend(fontsize="small")
    figure.suptitle(title)
    _save(figure, path)


def bars(shown: Sequence[Bar], title: str, path: Path, label: str = TARGETS) -> None:
    """One bar for each figure, to the right where txbroker is better, with a mark for the target."""
    figure = _figure(10, 1.2 + 0.22 * len(shown))
    axis = figure.subplots()
    places = range(len(shown))
    reached = [bar.better >= (1.0 if bar.target is None else bar.target) for bar in shown]
    axis.barh(places, [bar.better - 1 for bar in shown], left=1, height=0.6, color=[BETTER if ok else WORSE for ok in reached])
    for place, bar in zip(places, shown, strict=True):
        if bar.target is not None:
            axis.plot([bar.target] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1.5)
        axis.annotate(f" {bar.better:.2f}", (max(bar.better, 1), place), va="center", fontsize="small")
    axis.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(places, [bar.name for bar in shown], fontsize="small")
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.axvline(1, color="grey", linewidth=1)
    axis.grid(alpha=0.3, axis="x")
    axis.set_xlabel(label)
    axis.set_title(title)
    _save(figure, path)
