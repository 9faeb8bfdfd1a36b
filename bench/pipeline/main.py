"""Spark's jobs and the mirror: `python -m bench pipeline [--quick] [PART ...]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import parts, plots, report
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
    parts.add_flags(parser, PARTS, SETTINGS.rounds, page.PAGE, page.SAMPLES)
    parser.add_argument("--redraw", action="store_true", help=f"measure nothing: write {page.PAGE} again from {page.SAMPLES}")
    return parts.parse(parser, arguments, PARTS)


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


def _run(chosen: Sequence[str], settings: Settings, place: Path | None, results: Path | None) -> None:
    """Measure the parts. Results are written after each outcome: a whole run takes long."""
    directory = Path(tempfile.mkdtemp(prefix="txbroker-pipeline-", dir=place))
    done: list[Outcome] = []
    try:
        for part in chosen:
            for outcome in PARTS[part](settings, directory / part):
                done.append(outcome)
                shown = report.table(report.rows([outcome]))
                print(f"{outcome.bench.name}: {outcome.bench.what}\n{shown}\n{report.conditions(outcome)}", flush=True)
                if results is not None:
                    page.write(results, done, settings)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
