"""What is shown of the sweeps: tables on the terminal, SCALE.md with plots beside it, and every sample as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench import plots
from bench.brokers import KAFKA, TXBROKER
from bench.measures import Settings
from bench.report import facts
from bench.scale.sweep import Curve, Grown, Sweep

OTHERS = "others"
BROKERS = (TXBROKER, KAFKA)


def _text(value: float | None, curve: Curve) -> str:
    return "-" if value is None else f"{value:,.{curve.digits}f}"


def size_table(grown: Grown, size: int) -> str:
    """One size, for the terminal."""
    lines = [["figure", *BROKERS, "unit"]]
    lines += [[c.key, *(_text(grown.value(broker, size, c.key), c) for broker in BROKERS), c.unit] for c in grown.sweep.curves]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in lines)


def _rows(grown: Grown) -> Iterable[list[str]]:
    for curve in grown.sweep.curves:
        for broker in BROKERS:
            sizes = grown.sizes(broker)
            if sizes:
                values = [_text(grown.value(broker, size, curve.key), curve) for size in sizes]
                growth = grown.growth(broker, curve.key)
                grew = "-" if growth is None else f"{growth:.2f}"
                yield [f"{curve.key}, {curve.unit}", broker, *values, grew, _target(grown, curve, broker)]


def _target(grown: Grown, curve: Curve, broker: str) -> str:
    growth = grown.growth(broker, curve.key)
    if broker != TXBROKER or curve.growth_max is None or growth is None:
        return ""
    return f"<= {curve.growth_max:g}: {'yes' if growth <= curve.growth_max else 'no'}"


def _section(grown: Grown) -> list[str]:
    sweep = grown.sweep
    sizes = grown.sizes(TXBROKER) or grown.sizes(KAFKA)
    header = ["figure", "broker", *(f"{size:,}" for size in sizes), "growth", "target"]
    others = [value for broker in BROKERS for size in sizes if (value := grown.value(broker, size, OTHERS)) is not None]
    return [
        f"## {sweep.name.capitalize()}",
        "",
        f"{sweep.what}. Others on the machine used {min(others, default=0):.1f} to {max(others, default=0):.1f} cores meanwhile.",
        "",
        f"![{sweep.name}](scale-{sweep.name}.svg)",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * 2 + "--:|" * (len(header) - 2),
        *("| " + " | ".join(row) + " |" for row in _rows(grown)),
        "",
    ]


def markdown(done: Sequence[Grown], settings: Settings) -> str:
    """SCALE.md."""
    lines = [
        "# How the cost of txbroker and Apache Kafka grows",
        "",
        facts(),
        "",
        f"Made by `make bench ARGS=scale`: both brokers at once, each with what it comes with, grown size by size and measured turn about; "
        f"medians of {settings.rounds}. Growth is the figure at the largest size in terms of the smallest; of what a request costs it is "
        "to be at most 1.3. `CPU` is the broker's own, which says more than rates on a machine that is shared.",
        "",
        *(line for grown in done for line in _section(grown)),
    ]
    return "\n".join(lines)


def _panels(grown: Grown) -> list[plots.Panel]:
    panels = []
    for curve in grown.sweep.curves:
        lines = {
            broker: [(size, value) for size in grown.sizes(broker) if (value := grown.value(broker, size, curve.key)) is not None]
            for broker in BROKERS
        }
        panels.append(plots.Panel(curve.key, curve.unit, {broker: points for broker, points in lines.items() if points}))
    return panels


def read(directory: Path, sweeps: Iterable[Sweep]) -> list[Grown]:
    """What `write` left in scale.jsonl."""
    done = {sweep.name: Grown(sweep) for sweep in sweeps}
    for line in (directory / "scale.jsonl").read_text().splitlines():
        sample = json.loads(line)
        done[sample.pop("sweep")].add(sample.pop("broker"), sample.pop("size"), sample)
    return [grown for grown in done.values() if grown.samples]


def write(directory: Path, done: Sequence[Grown], settings: Settings) -> None:
    """SCALE.md, scale.jsonl and a plot for each sweep."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SCALE.md").write_text(markdown(done, settings))
    with (directory / "scale.jsonl").open("w") as file:
        for grown in done:
            for broker, sizes in grown.samples.items():
                for size, samples in sizes.items():
                    for sample in samples:
                        rounded = {key: round(value, 4) for key, value in sample.items()}
                        file.write(json.dumps({"sweep": grown.sweep.name, "broker": broker, "size": size, **rounded}) + "\n")
    for grown in done:
        path = directory / f"scale-{grown.sweep.name}.svg"
        plots.curves(_panels(grown), grown.sweep.what, grown.sweep.unit, path)
