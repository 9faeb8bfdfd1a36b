"""`--processes 2` beside one process and Apache Kafka, in turn: `python -m bench processes [--quick] [PART ...]`.

The load generator has the same two cores. All brokers run on the cores of this machine, and each measurement has one of them busy.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import javaperf, parts, plots, real, throughput
from bench.brokers import DEFAULTS, KAFKA, MeasuredKafka, MeasuredTxbroker
from bench.measures import Bench, Figure, Outcome, Settings, Work
from bench.process_tree import rss_mb
from bench.report import conditions, facts, json_lines, read
from bench.turns import in_turn
from tests.support.cache import Missing
from tests.support.processes import Processes
from tests.support.server import Server, free_port

ONE, TWO = "one process", "two processes"
KINDS = (ONE, TWO, KAFKA)
APPLICATIONS = {ONE: 1.0, KAFKA: 1.1}
RATE_TARGETS: Mapping[str, Mapping[str, float]] = {
    "records/s": APPLICATIONS,
    "MB/s": APPLICATIONS,
    "requests/s": {ONE: 1.3, KAFKA: 2.5},
}
CPU: Mapping[str, str] = {"CPU per record": "records/s", "CPU per request": "requests/s"}  # and what a core serves in a second
CPU_TARGET = 1.1  # of two processes' CPU to one's
MEMORY = Work("memory", "resident memory of all processes after the loads", (Figure("memory", "MB", less=True),))
RAW = ("produce-small", "fetch-small")
LOADS: Mapping[str, Bench] = {
    **{bench.name: bench for bench in (*real.BENCHES, *javaperf.BENCHES)},
    **{bench.name: bench for bench in throughput.BENCHES if bench.name in RAW},
}
WORKS: tuple[Work, ...] = (*LOADS.values(), MEMORY)
CALCULATED_CORES = (16, 64)
HERE = Path(__file__).resolve().parent
PAGE, SAMPLES, PLOT = "PROCESSES.md", "processes.jsonl", "processes.svg"
TITLE = "Two processes on two cores, which the load generator shares"
LABEL = "times better than one process, or than Apache Kafka; the black mark is the target, orange bars do not reach it"
SETTINGS = Settings()
QUICK = Settings(seconds=1.0, warmup_s=0.5, first_warmup_s=1.0, rounds=1)


def servers(directory: Path) -> dict[str, Server]:
    """The brokers, not started yet."""
    two = Processes(directory / "two", DEFAULTS)
    two.port = free_port()
    return {ONE: MeasuredTxbroker(directory / "one"), TWO: two, KAFKA: MeasuredKafka(directory / "kafka")}


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench processes", description=__doc__)
    parts.add_flags(parser, LOADS, SETTINGS.rounds, PAGE, SAMPLES)
    parser.add_argument("--seconds", type=float, default=SETTINGS.seconds, help="duration of a measurement (%(default)g)")
    parser.add_argument(
        "--warm", type=float, default=SETTINGS.first_warmup_s, help="seconds of each load before its first measurement (%(default)g)"
    )
    parser.add_argument("--only", action="append", choices=KINDS, help="measure only these")
    options = parts.parse(parser, arguments, LOADS)
    settings = QUICK if options.quick else replace(SETTINGS, rounds=options.rounds, seconds=options.seconds, first_warmup_s=options.warm)
    results = options.results or (None if options.quick or options.parts or options.only else HERE)
    directory = Path(tempfile.mkdtemp(prefix="txbroker-processes-", dir=options.directory))
    running: Mapping[str, Server] = {}
    try:
        running = {name: server for name, server in servers(directory).items() if not options.only or name in options.only}
        outcomes = _run([bench for name, bench in LOADS.items() if not options.parts or name in options.parts], running, settings)
    except (Missing, real.ClientFailed) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for server in running.values():
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    print("\n".join(table(outcomes)))
    if results is not None:
        write(results, outcomes, settings)
    return 0


def _run(wanted: Sequence[Bench], running: Mapping[str, Server], settings: Settings) -> list[Outcome]:
    for server in running.values():
        server.start()
    outcomes = []
    for bench in wanted:
        outcome = Outcome(bench)
        with ExitStack() as stack:
            measures = {name: stack.enter_context(bench.ready(server, settings)) for name, server in running.items()}
            in_turn(outcome, measures, settings.rounds, [server.pid for server in running.values()])
        outcomes.append(outcome)
        print(f"{bench.name}: {conditions(outcome)}", file=sys.stderr)
    outcomes.append(Outcome(MEMORY, {name: [{"memory": rss_mb(server.pid)}] for name, server in running.items()}))
    return outcomes


def _ratio(outcome: Outcome, figure: Figure, other: str) -> float | None:
    """The figure of two processes divided by that of another kind; None if one was not measured."""
    ours, theirs = outcome.values(TWO, figure), outcome.values(other, figure)
    return median(ours) / median(theirs) if ours and theirs and median(theirs) > 0 else None


def _target(figure: Figure, other: str) -> float | None:
    if figure.key in RATE_TARGETS:
        return RATE_TARGETS[figure.key][other]
    return CPU_TARGET if figure.key.startswith("CPU ") and other == ONE else None


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each figure: the three medians, and the ratios of two processes to the others, with their targets."""
    lines = [f"| load | figure | {' | '.join(KINDS)} | two / one | target | two / Kafka | target |", "|" + "---|" * 9]
    for outcome in outcomes:
        for figure in outcome.bench.figures:
            cells = [outcome.bench.name, f"{figure.key}, {figure.unit}" if figure.unit not in figure.key else figure.key]
            for kind in KINDS:
                values = outcome.values(kind, figure)
                cells.append(f"{median(values):,.{figure.digits}f}" if values else "")
            for other in (ONE, KAFKA):
                ratio, target = _ratio(outcome, figure, other), _target(figure, other)
                cells += ["" if ratio is None else f"{ratio:.2f}"]
                cells += ["" if target is None else f"{'<=' if figure.less else '>='} {target:g}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def calculated(outcomes: Sequence[Outcome]) -> list[str]:
    """What more cores would give: cores divided by the CPU that a record or a request costs with two processes."""
    lines = ["| load | CPU, measured | " + " | ".join(f"{cores} cores, calculated" for cores in CALCULATED_CORES) + " |",
             "|" + "---|" * (2 + len(CALCULATED_CORES))]  # fmt: skip
    for outcome in outcomes:
        for figure in outcome.bench.figures:
            values = outcome.values(TWO, figure)
            if figure.key in CPU and values:
                cost_us = median(values)
                rates = [f"{cores / cost_us * 1e6:,.0f} {CPU[figure.key]}" for cores in CALCULATED_CORES]
                lines.append(f"| {outcome.bench.name} | {cost_us:.1f} µs | {' | '.join(rates)} |")
    return lines


def write(directory: Path, done: Sequence[Outcome], settings: Settings) -> None:
    """Write the page, its plot and the samples. What was not measured now keeps the samples that are there."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / SAMPLES
    before = read(path, WORKS) if path.exists() else []
    found = {outcome.bench.name: outcome for outcome in [*before, *done]}
    outcomes = [found[work.name] for work in WORKS if work.name in found]
    path.write_text("".join(f"{line}\n" for outcome in outcomes for line in json_lines(outcome)))
    loads = [f"- `{one.bench.name}`: {one.bench.what} ({conditions(one)})" for one in outcomes if one.bench is not MEMORY]
    text = TEXT.format(facts=facts(), rounds=settings.rounds, plot=PLOT, table="\n".join(table(outcomes)), loads="\n".join(loads),
                       calculated="\n".join(calculated(outcomes)))  # fmt: skip
    (directory / PAGE).write_text(text)
    plots.bars(_bars(outcomes), TITLE, directory / PLOT, LABEL)


def _bars(outcomes: Sequence[Outcome]) -> list[plots.Bar]:
    bars = []
    for outcome in outcomes:
        for figure in outcome.bench.figures:
            for other in (ONE, KAFKA):
                ratio, target = _ratio(outcome, figure, other), _target(figure, other)
                if ratio:
                    better = 1 / ratio if figure.less else ratio
                    name = f"{outcome.bench.name} {figure.key} / {other}"
                    bars.append(plots.Bar(name, better, 1 / target if target and figure.less else target))
    return bars


TEXT = """\
# Results: several processes

{facts}

Generated by `make bench-processes`. `txbroker run --processes 2`, one process of txbroker and Apache Kafka run at the same time, each with
its default settings; each load is put on one after the other. The leaders of partitions are spread over the processes. `produce-small` and
`fetch-small` are prepared requests, the other loads are real clients. Figures are medians of {rounds} measurements. CPU and memory are
those of all processes of a broker: of `--processes 2` also the one that starts the others, and the server of the metadata.

![How many times better than one process, and than Apache Kafka]({plot})

{table}

{loads}

Two processes need two cores, and the load generator needs a part of them here: one process leaves the second core to the generator, two
do not. On a machine with more cores the load comes from elsewhere.

## More cores

{calculated}

These figures are calculated, not measured: the number of cores divided by the CPU that one record or request costs with two processes.
They hold if all cores serve requests, the network carries them, partitions are spread evenly, and processes do not slow each other down.
"""
