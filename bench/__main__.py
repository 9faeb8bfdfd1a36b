"""The same load on txbroker and Apache Kafka, in turn: `python -m bench [--quick] [LOAD ...]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import beside_cleaning, cleaning, javaperf, latency, overview, plots, real, report, secured, starting, throughput
from bench.brokers import KAFKA, TXBROKER, make
from bench.measures import Bench, Figure, Outcome, Settings, Work
from bench.process_tree import rss_mb
from bench.rawload import NoAnswers
from bench.turns import in_turn
from tests.support.cache import Missing
from tests.support.server import Server

SCALE = "scale"
PIPELINE = "pipeline"
CLUSTER = "cluster"
CLEANER_SCHEDULE = "cleaner-schedule"
WALK = "walk"
PROCESSES = "processes"
HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
QUICK = Settings(seconds=2.0, warmup_s=0.5, first_warmup_s=4.0, scale=0.2)
REAL: tuple[Bench, ...] = (*real.BENCHES, *javaperf.BENCHES)
BENCHES: tuple[Bench, ...] = (
    *REAL,
    *starting.BENCHES,
    *throughput.BENCHES,
    *latency.BENCHES,
    *cleaning.BENCHES,
    *beside_cleaning.BENCHES,
    *secured.BENCHES,
)
# Measured once, after all loads.
MEMORY = Work("after all loads", "resident memory at the end", (Figure("memory", "MB", less=True),))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "loads", nargs="*", metavar="LOAD", help=f"of {', '.join(bench.name for bench in BENCHES)}; without names, all of them"
    )
    parser.epilog = (
        f"`python -m bench {SCALE} --help`: how costs grow with connections, partitions and groups. "
        f"`python -m bench {PIPELINE} --help`: Spark's jobs and the mirror. "
        f"`python -m bench {CLUSTER} --help`: three brokers. "
        f"`python -m bench {PROCESSES} --help`: several processes on one machine. "
        f"`python -m bench {CLEANER_SCHEDULE} --help`: the cost of the log cleaner's two schedules. "
        f"`python -m bench {WALK} --help`: the calls that a request costs."
    )
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, help=f"number of measurements of each load on each broker ({Settings.rounds})")
    parser.add_argument("--seconds", type=float, help=f"duration of a measurement ({Settings.seconds:g})")
    parser.add_argument("--warm", type=float, help=f"seconds of each load before its first measurement ({Settings.first_warmup_s:g})")
    parser.add_argument("--only", choices=(TXBROKER, KAFKA), help="measure one broker only, without a comparison")
    parser.add_argument(
        "--results",
        type=Path,
        help="directory for RESULTS.md and results.jsonl, which keep what is not measured now; default: bench/ if everything is measured",
    )
    parser.add_argument("--redraw", action="store_true", help="measure nothing: draw the plots and README's table again from results.jsonl")
    parser.add_argument("--directory", type=Path, help="directory for the brokers' data; default: a temporary one")
    options = parser.parse_args(arguments)
    unknown = set(options.loads) - {bench.name for bench in BENCHES}
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [SCALE]:
        from bench.scale.main import main as scale

        return scale(arguments[1:])
    if arguments[:1] == [PIPELINE]:
        from bench.pipeline.main import main as pipeline

        return pipeline(arguments[1:])
    if arguments[:1] == [CLUSTER]:
        from bench.cluster.main import main as cluster

        return cluster(arguments[1:])
    if arguments[:1] == [PROCESSES]:
        from bench.processes import main as processes

        return processes(arguments[1:])
    if arguments[:1] == [CLEANER_SCHEDULE]:
        from bench.cleaner_schedule import main as cleaner_schedule

        return cleaner_schedule(arguments[1:])
    if arguments[:1] == [WALK]:
        from bench.walk import main as walk

        return walk(arguments[1:])
    options = _arguments(arguments)
    if options.redraw:
        where = options.results or HERE
        _draw(where, report.read(where / "results.jsonl", [*BENCHES, MEMORY]))
        return 0
    given = {"rounds": options.rounds, "seconds": options.seconds, "first_warmup_s": options.warm}
    settings = replace(QUICK if options.quick else Settings(), **{name: value for name, value in given.items() if value is not None})
    wanted = [bench for bench in BENCHES if not options.loads or bench.name in options.loads]
    directory = Path(tempfile.mkdtemp(prefix="txbroker-bench-", dir=options.directory))
    servers: dict[str, Server] = {}
    try:
        for name in [options.only] if options.only else [TXBROKER, KAFKA]:
            servers[name] = make(name, directory / name)
            if any(bench in secured.BENCHES for bench in wanted):
                secured.add_listener(servers[name])
        outcomes = _run_all(wanted, servers, settings)
    except (Missing, NoAnswers, real.ClientFailed) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for server in servers.values():
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    shown = report.rows(outcomes)
    print(f"\n{report.table(shown)}\n\n{report.chart(shown)}")
    full = not (options.quick or options.loads or options.only)
    if options.results or full:
        _write(options.results or HERE, outcomes, settings)
    return 0


def _run_all(wanted: Sequence[Bench], servers: dict[str, Server], settings: Settings) -> list[Outcome]:
    for server in servers.values():
        server.start()
    outcomes = []
    for number, bench in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {bench.name}: {bench.what}", flush=True)
        outcome = _run(bench, servers, settings)
        outcomes.append(outcome)
        print(report.table(report.rows([outcome])), report.conditions(outcome), sep="\n", flush=True)
    memory = {name: [{"memory": rss_mb(server.pid)}] for name, server in servers.items()}
    outcomes.append(Outcome(MEMORY, memory, report.machine()))
    return outcomes


def _run(bench: Bench, servers: dict[str, Server], settings: Settings) -> Outcome:
    """Prepare both brokers, then measure them in turn."""
    outcome = Outcome(bench, machine=report.machine())
    with ExitStack() as stack:
        measures = {name: stack.enter_context(bench.ready(server, settings)) for name, server in servers.items()}
        in_turn(outcome, measures, settings.rounds, [server.pid for server in servers.values()])
    return outcome


def _write(directory: Path, outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write the page and the samples. What was not measured now keeps the samples that are there."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.jsonl"
    works = [*BENCHES, MEMORY]
    found = {outcome.bench.name: outcome for outcome in [*(report.read(path, works) if path.exists() else []), *outcomes]}
    outcomes = [found[work.name] for work in works if work.name in found]
    (directory / "RESULTS.md").write_text(report.markdown(outcomes, settings, {bench.name for bench in REAL}))
    path.write_text("".join(f"{line}\n" for outcome in outcomes for line in report.json_lines(outcome)))
    try:
        _draw(directory, outcomes)
    except plots.NoPlots as error:
        print(f"nothing is drawn: {error}; then python -m bench --redraw", file=sys.stderr)


def _draw(directory: Path, outcomes: Sequence[Outcome]) -> None:
    """Draw the plots; for the committed results, also update README's table."""
    report.draw(outcomes, directory / "RESULTS.svg")
    overview.draw(report.by_machine(outcomes)[0], directory / "overview.svg")
    if directory == HERE:
        overview.update(README, report.by_machine(outcomes)[0])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the brokers end, too
    sys.exit(main())
