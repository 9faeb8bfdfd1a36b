"""`python -m tests.soak --hours 2`: hours of mixed load, then a verdict. Samples of the process and a plot are kept in a directory."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from fractions import Fraction
from pathlib import Path

from tests.soak.plan import Plan
from tests.soak.soak import Soak, Verdict
from tests.support.cache import Missing
from tests.support.server import ServerFailed

HOURS_MAX = 24 * 30


def _hours(text: str) -> float:
    try:
        hours = float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours, such as 2, 0.5 or 1/30") from error
    if not 0 < hours <= HOURS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {HOURS_MAX} hours")
    return hours


def main() -> int:
    """Exit status 0 when no check failed, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="make soak HOURS=... ARGS=...", description=__doc__)
    parser.add_argument("--hours", type=_hours, default=2.0, help="how long: 2, 0.5 or 1/30 (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path("soak-results"), help="where samples.csv, soak.svg and logs go (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the same seed makes the same choices, in another interleaving")
    options = parser.parse_args()
    plan = Plan(options.hours * 3600, options.seed, say=lambda text: print(text, flush=True))
    if options.results.exists() and any(options.results.iterdir()) and not (options.results / "samples.csv").exists():
        parser.error(f"{options.results} is not empty and has no results of a soak; specify another directory with --results")
    shutil.rmtree(options.results, ignore_errors=True)
    print(f"== {options.hours * 60:.1f} minutes of mixed load (--seed {options.seed}), results in {options.results}", flush=True)
    try:
        verdict = Soak(options.results.resolve(), plan).run()
    except (Missing, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    _keep(verdict, options.results, options.hours)
    print(verdict)
    print("FAILED: see broker.log and the clients' logs in the results directory" if verdict.faults else "passed", flush=True)
    return 1 if verdict.faults else 0


def _keep(verdict: Verdict, results: Path, hours: float) -> None:
    (results / "verdict.txt").write_text(f"{verdict}\n")
    try:
        from tests.soak.drawing import draw

        draw(verdict.samples, results / "soak.svg", f"{hours:g} hours of mixed load")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
    if not verdict.faults:
        shutil.rmtree(results / "broker", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
