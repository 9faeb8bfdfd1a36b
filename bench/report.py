"""What is shown of a run: a table with ratios and bars, on the terminal and in RESULTS.md, and every sample as a line of JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

import txbroker
from bench.brokers import KAFKA, TXBROKER
from bench.measures import Bench, Figure, Outcome, Settings
from bench.plots import Bar, bars
from tests.support.cache import KAFKA_NEW

BAR_WIDTH = 24  # of a bar for eight times better, or more
BAR_RATIO_MAX = 8.0
GENERATOR = "generator"
OTHERS = "others"


def _versions() -> dict[str, str]:
    return {
        "txbroker": txbroker.__version__,
        "Apache Kafka": KAFKA_NEW.removeprefix("kafka-"),
        "Python": platform.python_version(),
        "Twisted": version("twisted"),
    }


def _machine() -> dict[str, str]:
    """Facts that matter to speed; none that tell whose machine it is."""
    with open("/proc/meminfo") as file:
        memory_kb = int(file.readline().split()[1])
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine())
    return {
        "cores": str(os.cpu_count()),
        "processor": model,
        "memory": f"{memory_kb / 1e6:.0f} GB",
        "kernel": ".".join(platform.release().split(".")[:2]),
    }


def facts() -> str:
    """Versions and machine, as a paragraph."""
    versions = ", ".join(f"{name} {text}" for name, text in _versions().items())
    machine = ", ".join(f"{name} {text}" for name, text in _machine().items())
    return f"{versions}. Machine: {machine}; brokers and load generators share the cores."


def json_lines(outcome: Outcome) -> Iterable[str]:
    """One line a sample."""
    for broker, samples in outcome.samples.items():
        for number, sample in enumerate(samples):
            rounded = {key: round(value, 4) for key, value in sample.items()}
            yield json.dumps({"bench": outcome.bench.name, "broker": broker, "round": number, **rounded})


class Row:
    """One figure of one benchmark, both brokers side by side. `ratio` is txbroker's median in terms of Kafka's."""

    def __init__(self, outcome: Outcome, figure: Figure) -> None:
        self.name = outcome.bench.name
        self.figure = figure
        self.ours = outcome.values(TXBROKER, figure)
        self.theirs = outcome.values(KAFKA, figure)
        self.ratio = median(self.ours) / median(self.theirs) if self.ours and self.theirs and median(self.theirs) > 0 else None

    def cells(self) -> list[str]:
        figure = self.figure
        target = "" if figure.target is None else f"{'<=' if figure.less else '>='} {figure.target:g}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return [self.name, figure.key, self._text(self.ours), self._text(self.theirs), ratio, target, self._verdict()]

    def _text(self, values: Sequence[float]) -> str:
        return f"{median(values):,.{self.figure.digits}f} {self.figure.unit}" if values else "-"

    def _verdict(self) -> str:
        met = None if self.ratio is None else self.figure.met(self.ratio)
        return {None: "", True: "yes", False: "no"}[met]

    @property
    def plotted(self) -> Bar | None:
        """How many times better than Kafka, and is to be; None where that cannot be said."""
        if not self.ratio:
            return None
        target, less = self.figure.target, self.figure.less
        better = 1 / self.ratio if less else self.ratio
        return Bar(f"{self.name} {self.figure.key}", better, 1 / target if target and less else target)

    def bar(self) -> str:
        """How many times better than Kafka, on a logarithmic scale; worse goes to the left."""
        if self.plotted is None:
            return ""
        better = self.plotted.better
        length = round(min(abs(math.log(better)) / math.log(BAR_RATIO_MAX), 1.0) * BAR_WIDTH)
        side = BAR_WIDTH // 2
        left = "#" * min(length, side) if better < 1 else ""
        return f"{left:>{side}}|{'#' * length if better >= 1 else '':<{BAR_WIDTH}} {better:5.2f} x"


HEADER = ["load", "figure", "txbroker", "Kafka", "ratio", "target", "met"]


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """A row for every figure that was measured."""
    made = [Row(outcome, figure) for outcome in outcomes for figure in outcome.bench.figures]
    return [row for row in made if row.ours or row.theirs]


def table(shown: Sequence[Row]) -> str:
    """For a terminal: columns in line."""
    lines = [HEADER, *(row.cells() for row in shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(_aligned(cell, width, column) for column, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def chart(shown: Sequence[Row]) -> str:
    """Bars: how many times better than Kafka each figure is."""
    names = [f"{row.name} {row.figure.key}" for row in shown]
    width = max(map(len, names), default=0)
    return "\n".join(f"{name:<{width}} {row.bar()}" for name, row in zip(names, shown, strict=True) if row.ratio)


def markdown(outcomes: Sequence[Outcome], settings: Settings) -> str:
    """RESULTS.md."""
    shown = rows(outcomes)
    lines = [
        "# txbroker beside Apache Kafka",
        "",
        facts(),
        "",
        f"Made by `make bench`: both brokers run at once, the load goes to one and then to the other, medians of {settings.rounds}; "
        f"before each load both were warmed up. The ratio is txbroker's figure in terms of Kafka's. One process of txbroker uses one core, "
        "and Kafka uses all it finds.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
        *("| " + " | ".join(row.cells()) + " |" for row in shown),
        "",
        "A machine that others use too is harder on one busy thread than on many: below, each load says how many cores others took.",
        "",
        "How many times better than Kafka, on a logarithmic scale:",
        "",
        "![how many times better than Kafka](RESULTS.svg)",
        "",
        "[LIMITS.md](LIMITS.md) says what holds the figures back that are not where they should be, and what was tried.",
        "",
        "The loads:",
        "",
        *(f"- `{outcome.bench.name}`: {outcome.bench.what} ({conditions(outcome) or 'asked once'})" for outcome in outcomes),
        "",
    ]
    return "\n".join(lines)


def draw(outcomes: Iterable[Outcome], path: Path) -> None:
    """RESULTS.svg."""
    found = [row.plotted for row in rows(outcomes)]
    bars([bar for bar in found if bar is not None], "txbroker beside Apache Kafka", path)


def read(path: Path, benches: Iterable[Bench]) -> list[Outcome]:
    """What `json_lines` made, by benchmark."""
    outcomes = {bench.name: Outcome(bench) for bench in benches}
    for line in path.read_text().splitlines():
        sample = json.loads(line)
        del sample["round"]
        outcomes[sample.pop("bench")].samples.setdefault(sample.pop("broker"), []).append(sample)
    return [outcome for outcome in outcomes.values() if outcome.samples]


def conditions(outcome: Outcome) -> str:
    """How far a load's figures can be trusted: a generator near one core was measured itself, and others should use nothing."""
    shares = [f"{broker} {median(values):.2f}" for broker, values in _by_broker(outcome, GENERATOR).items()]
    others = [value for values in _by_broker(outcome, OTHERS).values() for value in values]
    generator = f"generator's share of a core: {', '.join(shares)}; " if shares else ""
    return f"{generator}cores used by others: {median(others):.2f}" if others else generator


def _by_broker(outcome: Outcome, key: str) -> dict[str, list[float]]:
    found = {broker: [sample[key] for sample in samples if key in sample] for broker, samples in outcome.samples.items()}
    return {broker: values for broker, values in found.items() if values}
