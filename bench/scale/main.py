"""How costs grow: `python -m bench scale [--quick] [SWEEP ...]`; txbroker and Apache Kafka, in turn at each size."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import plots
from bench.brokers import KAFKA, TXBROKER, OthersMeter, make
from bench.measures import Settings
from bench.scale import connections, groups, partitions, writing
from bench.scale.sweep import Grown, ServerSweep
from tests.support.cache import Missing

HERE = Path(__file__).resolve().parent.parent
SWEEPS: tuple[ServerSweep, ...] = (connections.SWEEP, partitions.SWEEP, groups.SWEEP)
SETTINGS = Settings(seconds=3.0, warmup_s=0.5, first_warmup_s=8.0)
QUICK = Settings(seconds=1.0, warmup_s=0.2, first_warmup_s=1.0, scale=0.2, rounds=1)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    names = [sweep.name for sweep in SWEEPS]
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("sweeps", nargs="*", metavar="SWEEP", help=f"of {', '.join(names)}; without names, all of them")
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, help="number of measurements at each size")
    parser.add_argument("--largest", type=int, help="leave out sizes above this one")
    parser.add_argument("--only", choices=(TXBROKER, KAFKA), help="measure one broker only")
    parser.add_argument("--results", type=Path, help="directory for SCALE.md, its plots and samples; default: bench/ after a full run")
    parser.add_argument("--redraw", action="store_true", help="measure nothing: write the tables and draw the plots again from scale.jsonl")
    parser.add_argument("--directory", type=Path, help="directory for the brokers' data; default: a temporary one")
    options = parser.parse_args(arguments)
    unknown = set(options.sweeps) - set(names)
    if unknown:
        parser.error(f"no such sweep: {', '.join(sorted(unknown))}; the sweeps are {', '.join(names)}")
    return options


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = _arguments(arguments)
    settings = QUICK if options.quick else SETTINGS
    if options.rounds:
        settings = Settings(**{**vars(settings), "rounds": options.rounds})
    if options.redraw:
        where = options.results or HERE
        writing.write(where, writing.read(where / writing.SAMPLES, SWEEPS), settings)
        return 0
    results = options.results or (None if options.quick or options.sweeps or options.only or options.largest else HERE)
    directory = Path(tempfile.mkdtemp(prefix="txbroker-scale-", dir=options.directory))
    done = []
    try:
        for sweep in SWEEPS:
            if not options.sweeps or sweep.name in options.sweeps:
                done.append(_run(sweep, options, settings, directory))
                if results:  # after each sweep: a whole run takes long
                    writing.write(results, done, settings)
    except (Missing, plots.NoPlots) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _run(sweep: ServerSweep, options: argparse.Namespace, settings: Settings, directory: Path) -> Grown:
    """Grow both brokers together and measure them in turn at each size."""
    print(f"== {sweep.name}: {sweep.what}", flush=True)
    grown = Grown(sweep)
    names = [options.only] if options.only else [TXBROKER, KAFKA]
    servers = {name: make(name, directory / f"{sweep.name}-{name}") for name in names}
    try:
        for server in servers.values():
            server.start()
        with ExitStack() as stack:
            subjects = {name: stack.enter_context(sweep.subject(server, settings)) for name, server in servers.items()}
            for size in sweep.sizes:
                if options.largest and size > options.largest:
                    break
                for subject in subjects.values():
                    subject.grow(size)
                for step in ("measure", "afterwards"):
                    for _ in range(settings.rounds):
                        for name, subject in subjects.items():
                            others = OthersMeter(server.pid for server in servers.values())
                            sample = getattr(subject, step)()
                            if sample:
                                share = {writing.OTHERS: others.cores()} if step == "measure" else {}
                                grown.add(name, size, {**sample, **share})
                print(f"{size} {sweep.unit}\n{writing.size_table(grown, size)}", flush=True)
    finally:
        for server in servers.values():
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return grown
