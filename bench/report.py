"""The results of a run: a table with ratios and bars, on the terminal and in RESULTS.md, and every sample as a line of JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

import txbroker
from bench.brokers import KAFKA, TXBROKER
from bench.measures import ERRORS, GENERATOR, OTHERS, RETRIES, Figure, Outcome, Settings, Work
from bench.plots import Bar, bars
from tests.support.cache import KAFKA_NEW

BAR_WIDTH = 24  # characters, for eight times better or more
BAR_RATIO_MAX = 8.0


def _versions() -> dict[str, str]:
    return {
        "txbroker": txbroker.__version__,
        "Apache Kafka": KAFKA_NEW.removeprefix("kafka-"),
        "Python": platform.python_version(),
        "Twisted": version("twisted"),
    }


def machine() -> str:
    """Facts about the machine that affect speed; none that identify it."""
    with open("/proc/meminfo") as file:
        memory_kb = int(file.readline().split()[1])
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine())
    kernel = ".".join(platform.release().split(".")[:2])
    return f"cores {os.cpu_count()}, processor {model}, memory {memory_kb / 1e6:.0f} GB, kernel {kernel}"


def facts(measured_on: str = "") -> str:
    """Versions and machine, by default this one, as one paragraph."""
    versions = ", ".join(f"{name} {text}" for name, text in _versions().items())
    return f"{versions}. Machine: {measured_on or machine()}; brokers and load generators share the cores."


def json_lines(outcome: Outcome) -> Iterable[str]:
    """One line per sample."""
    for broker, samples in outcome.samples.items():
        for number, sample in enumerate(samples):
            rounded = {key: round(value, 4) for key, value in sample.items()}
            yield json.dumps({"bench": outcome.bench.name, "broker": broker, "round": number, "machine": outcome.machine, **rounded})


class Row:
    """One figure of one benchmark, for txbroker and a Kafka. `ratio` is txbroker's median divided by Kafka's."""

    def __init__(self, outcome: Outcome, figure: Figure, other: str = KAFKA) -> None:
        self.name = outcome.bench.name
        self.figure = figure
        self.ours = outcome.values(TXBROKER, figure)
        self.theirs = outcome.values(other, figure)
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
        """How many times better than Kafka, with the target; None without a ratio."""
        if not self.ratio:
            return None
        target, less = self.figure.target, self.figure.less
        better = 1 / self.ratio if less else self.ratio
        return Bar(f"{self.name} {self.figure.key}", better, 1 / target if target and less else target)

    def bar(self) -> str:
        """How many times better than Kafka, on a logarithmic scale: to the left is worse."""
        if self.plotted is None:
            return ""
        better = self.plotted.better
        length = round(min(abs(math.log(better)) / math.log(BAR_RATIO_MAX), 1.0) * BAR_WIDTH)
        side = BAR_WIDTH // 2
        left = "#" * min(length, side) if better < 1 else ""
        return f"{left:>{side}}|{'#' * length if better >= 1 else '':<{BAR_WIDTH}} {better:5.2f} x"


HEADER = ["load", "figure", "txbroker", "Kafka", "ratio", "target", "met"]


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """One row for each figure that was measured."""
    made = [Row(outcome, figure) for outcome in outcomes for figure in outcome.bench.figures]
    return [row for row in made if row.ours or row.theirs]


def table(shown: Sequence[Row]) -> str:
    """The table for a terminal, in aligned columns."""
    lines = [HEADER, *(row.cells() for row in shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(_aligned(cell, width, column) for column, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def chart(shown: Sequence[Row]) -> str:
    """A bar for each figure: how many times better than Kafka."""
    names = [f"{row.name} {row.figure.key}" for row in shown]
    width = max(map(len, names), default=0)
    return "\n".join(f"{name:<{width}} {row.bar()}" for name, row in zip(names, shown, strict=True) if row.ratio)


def _markdown_table(outcomes: Iterable[Outcome]) -> list[str]:
    shown = ["| " + " | ".join(row.cells()) + " |" for row in rows(outcomes)]
    return ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER), *shown]


def by_machine(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Those that were measured on the same machine as the first one, and all others."""
    here = [outcome for outcome in outcomes if outcome.machine == outcomes[0].machine]
    return here, [outcome for outcome in outcomes if outcome.machine != outcomes[0].machine]


def _elsewhere(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    machines = sorted({outcome.machine for outcome in outcomes})
    return ["## Measured earlier, on another machine", "", f"Machine: {'; '.join(machines)}.", "", *_markdown_table(outcomes), ""]


def markdown(outcomes: Sequence[Outcome], settings: Settings, real: Collection[str]) -> str:
    """RESULTS.md. `real`: the names of the loads of real clients, which come first."""
    here, elsewhere = by_machine(outcomes)
    first = [outcome for outcome in here if outcome.bench.name in real]
    rest = [outcome for outcome in here if outcome.bench.name not in real]
    lines = [
        "# Results: txbroker and Apache Kafka",
        "",
        facts(here[0].machine if here else ""),
        "",
        "Generated by `make bench`. Both brokers run at the same time with their defaults; each load is put on one and then on the other. "
        f"Figures are medians of several measurements, after {settings.first_warmup_s:g} s of each load on both brokers; the list of loads "
        "says of how many. The ratio is txbroker's figure divided by Kafka's. txbroker serves requests on one core, Kafka on all cores. "
        "CPU is that of all processes of a broker.",
        "",
        "## Real clients",
        "",
        "Clients with their default settings: idempotent producers with acks=all, except for librdkafka's, which are not idempotent by "
        "default, and consumers in groups.",
        "",
        *_markdown_table(first),
        "",
        "## Start, memory and single requests",
        "",
        "The loads of these figures are requests that are prepared before the measurement, without compression and producer ids; most "
        "have acks=1. They show what a part of the broker costs, not what an application gets.",
        "",
        *_markdown_table(rest),
        "",
        *_elsewhere(elsewhere),
        "Other processes on the machine slow txbroker's one thread down more than Kafka's many: the list of loads says how many cores "
        "others used. In the cleaner's loads these are txbroker's own worker.",
        "",
        "How many times better than Kafka, on a logarithmic scale:",
        "",
        "![How many times better than Kafka](RESULTS.svg)",
        "",
        "[LIMITS.md](LIMITS.md) explains the figures that miss their targets, and lists what was tried.",
        "",
        "## Loads",
        "",
        *(f"- `{outcome.bench.name}`: {outcome.bench.what} ({conditions(outcome) or 'measured once'})" for outcome in outcomes),
        "",
    ]
    return "\n".join(lines)


def draw(outcomes: Iterable[Outcome], path: Path) -> None:
    """RESULTS.svg."""
    found = [row.plotted for row in rows(outcomes)]
    bars([bar for bar in found if bar is not None], "txbroker and Apache Kafka", path)


def read(path: Path, benches: Iterable[Work]) -> list[Outcome]:
    """The samples that `json_lines` wrote, by benchmark, without those of benchmarks that are not among `benches`."""
    outcomes = {bench.name: Outcome(bench) for bench in benches}
    for line in path.read_text().splitlines():
        sample = json.loads(line)
        del sample["round"]
        name, broker, where = sample.pop("bench"), sample.pop("broker"), sample.pop("machine", "")
        if name in outcomes:
            outcomes[name].machine = where
            outcomes[name].samples.setdefault(broker, []).append(sample)
    return [outcome for outcome in outcomes.values() if outcome.samples]


def conditions(outcome: Outcome) -> str:
    """What limits the trust in a load's figures: near 1.0 core the load generator was the bottleneck, and others should use nothing."""
    counted = max(map(len, outcome.samples.values()), default=0)
    shares = [f"{broker} {median(values):.2f}" for broker, values in _by_broker(outcome, GENERATOR).items()]
    others = [value for values in _by_broker(outcome, OTHERS).values() for value in values]
    found = [f"{counted} measurements"] if counted > 1 else []
    found += [f"cores used by the load generator: {', '.join(shares)}"] if shares else []
    counts = {key: {broker: sum(values) for broker, values in _by_broker(outcome, key).items()} for key in (ERRORS, RETRIES)}
    if any(counts.values()) and not any(count for by_broker in counts.values() for count in by_broker.values()):
        found.append("no errors and no retries of clients")
    else:
        for key, by_broker in counts.items():
            parts = [f"{broker} {count:.0f}" for broker, count in by_broker.items()]
            found += [f"clients' {key}: {', '.join(parts)}"] if parts else []
    found += [f"cores used by others: {median(others):.2f}"] if others else []
    return "; ".join(found)


def _by_broker(outcome: Outcome, key: str) -> dict[str, list[float]]:
    found = {broker: [sample[key] for sample in samples if key in sample] for broker, samples in outcome.samples.items()}
    return {broker: values for broker, values in found.items() if values}
