"""Spark's jobs and the mirror: `python -m bench pipeline [--quick] [PART ...]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import plots, report
from bench.measures import Outcome, Settings
from bench.pipeline import loading, mirroring, page, upserting
from tests.support.cache import Missing

HERE = Path(__file__).resolve().parent.parent
SETTINGS = Settings()
QUICK = Settings(scale=0.005, rounds=1, warmup_s=0)
PARTS: dict[str, Callable[[Settings, Path], Iterator[Outcome]]] = {
    "load": loading.loads,
    "partitions": loading.partitions,
    "upsert": upserting.upserts,
    "mirror": mirroring.copies,
}


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench pipeline", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; without names, all of them")
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, default=SETTINGS.rounds, help="number of measurements (%(default)s)")
    parser.add_argument("--results", type=Path, help=f"directory for {page.PAGE} and {page.SAMPLES}; default: bench/, unless --quick")
    parser.add_argument("--redraw", action="store_true", help=f"measure nothing: write {page.PAGE} again from {page.SAMPLES}")
    parser.add_argument("--directory", type=Path, help="directory for the brokers' data and the tables; default: a temporary one")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    return options


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = _arguments(arguments)
    settings = QUICK if options.quick else Settings(rounds=options.rounds)
    results = options.results or (None if options.quick else HERE)
    try:
        if options.redraw:
            page.redraw(options.results or HERE, report.read((options.results or HERE) / page.SAMPLES, page.WORKS), settings)
        else:
            _run(options.parts or list(PARTS), settings, options.directory, results)
    except (Missing, plots.NoPlots) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run(parts: Sequence[str], settings: Settings, place: Path | None, results: Path | None) -> None:
    """Measure the parts. Results are written after each outcome: a whole run takes long."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-pipeline-", dir=place))
    done: list[Outcome] = []
    try:
        for part in parts:
            for outcome in PARTS[part](settings, directory / part):
                done.append(outcome)
                shown = report.table(report.rows([outcome]))
                print(f"{outcome.bench.name}: {outcome.bench.what}\n{shown}\n{report.conditions(outcome)}", flush=True)
                if results is not None:
                    page.write(results, done, settings)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
