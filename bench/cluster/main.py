"""Three brokers beside three of Apache Kafka 3.9, and of 4.3: `python -m bench cluster [--quick] [PART ...]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import parts, plots, report
from bench.cluster import administering, clusters, failing, growth, page, producing
from bench.measures import Outcome, Settings
from bench.scale.sweep import Grown
from tests.support.cache import Missing
from tests.support.cluster import Cluster

HERE = Path(__file__).resolve().parent.parent
SETTINGS = Settings()
QUICK = Settings(scale=0.005, rounds=1, warmup_s=0)
PARTS: dict[str, Callable[[Mapping[str, Cluster], Settings], Iterator[Outcome]]] = {
    "idle": failing.idles,
    "produce": producing.produces,
    "raw": producing.raws,
    "failover": failing.failovers,
    "create": administering.creations,
    "stop": administering.stops,
    "controller": failing.controllers,  # the last one: its partitions stay
}
GROWTH = {f"growth-{sweep.name}": sweep for sweep in growth.SWEEPS}


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parts.add_flags(parser, [*PARTS, *GROWTH], SETTINGS.rounds, page.PAGE, page.SAMPLES)
    return parts.parse(parser, arguments, [*PARTS, *GROWTH])


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = _arguments(arguments)
    settings = QUICK if options.quick else Settings(rounds=options.rounds)
    results = options.results or (None if options.quick else HERE)
    try:
        _run(options.parts or [*PARTS, *GROWTH], settings, options.directory, results)
    except (Missing, plots.NoPlots) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run(chosen: Sequence[str], settings: Settings, place: Path | None, results: Path | None) -> None:
    """Measure the parts. Results are written after each outcome: a whole run takes long."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-clusters-", dir=place))
    done: list[Outcome] = []
    grown: list[Grown] = []
    try:
        if standing := [part for part in PARTS if part in chosen]:
            with clusters.started(directory) as running:
                for part in standing:
                    for outcome in PARTS[part](running, settings):
                        done.append(outcome)
                        shown = "\n".join(page.table([outcome]))
                        print(f"{outcome.bench.name}: {outcome.bench.what}\n{shown}\n{report.conditions(outcome)}", flush=True)
                        if results is not None:
                            page.write(results, done, grown, settings)
        for name, sweep in GROWTH.items():
            if name in chosen:
                grown.append(growth.grow(sweep, settings, directory))
                if results is not None:
                    page.write(results, done, grown, settings)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
