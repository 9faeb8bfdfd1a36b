"""`python -m simulation`: run seeds, replay one or a plan, shrink it, or look for deliberate bugs.

Exit status 1: a violation. Exit status 2: wrong flags, or a file that is not a plan.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from simulation.bug_search import Search, search_all
from simulation.bugs import BUGS
from simulation.plan import Plan
from simulation.plan_file import StoredPlan, from_text, to_text
from simulation.plan_values import BadPlan
from simulation.run import Ran, fix_hashes, run_plan, run_seeds, silence
from simulation.shrink import shrink
from simulation.workloads import draw
from txbroker.console.failures import USAGE, BadUsage, CommandFailed
from txbroker.console.input_files import read_text
from txbroker.names import amount

SEEDS = 300
BUG_SEEDS = 300  # of each deliberate bug
SHOWN_MAX = 20
LINE_MAX = 200


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=_positive, metavar="N", help=f"how many seeds to run (default: {SEEDS})")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of them (default: 1)")
    parser.add_argument("--workers", type=_positive, default=os.cpu_count() or 1, help="processes (default: all cores)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, metavar="SEED", help="run this one and print its trace")
    what.add_argument("--plan", metavar="FILE", help="run the plan in this file, with its deliberate bug, and print its trace")
    what.add_argument("--bugs", action="store_true", help="look for every deliberate bug, or --bug; exit status 1 if one is not found")
    parser.add_argument("--shrink", action="store_true",
                        help="with --seed or --plan: remove what the violation does not need, and write the rest to a file")  # fmt: skip
    parser.add_argument("--output", metavar="FILE", help="where --shrink writes the plan (default: plan-SEED.json, or plan-SEED-BUG.json)")
    parser.add_argument("--bug", choices=["", *BUGS], metavar="NAME", help="with a deliberate bug; with --plan, '' for none")
    parser.add_argument("--bug-seeds", type=_positive, default=BUG_SEEDS, metavar="N", help=f"for each bug (default: {BUG_SEEDS})")
    parser.add_argument("--table", action="store_true", help="with --bugs: find the first seed of each bug, and print the table")
    chosen = parser.parse_args(arguments)
    fix_hashes()
    silence()
    try:
        plan = _one_plan(chosen)
    except BadUsage as error:
        parser.error(str(error))
    if plan is not None:
        return _smaller(plan, chosen.output) if chosen.shrink else _replay(plan)
    if chosen.bugs:
        bugs = [chosen.bug] if chosen.bug else list(BUGS)
        return _find_bugs(bugs, range(chosen.first, chosen.first + chosen.bug_seeds), chosen.workers, table=chosen.table)
    return _run(range(chosen.first, chosen.first + (chosen.seeds or SEEDS)), chosen.workers, chosen.bug or "")


def _one_plan(chosen: argparse.Namespace) -> Plan | None:
    """The plan of --seed or --plan; None without these. BadUsage."""
    if chosen.bugs and chosen.seeds:
        raise BadUsage("--bugs needs --bug-seeds instead of --seeds")
    if chosen.output and not chosen.shrink:
        raise BadUsage("--output needs --shrink")
    if chosen.seed is not None:
        return replace(draw(chosen.seed), bug=chosen.bug or "")
    if chosen.plan is not None:
        try:
            plan = from_text(read_text(chosen.plan)).plan
        except BadPlan as error:
            raise BadUsage(f"{chosen.plan}: {error}") from None
        except CommandFailed as error:
            raise BadUsage(str(error)) from None
        return plan if chosen.bug is None else replace(plan, bug=chosen.bug)
    if chosen.shrink:
        raise BadUsage("--shrink needs --seed or --plan")
    return None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _run(seeds: range, workers: int, bug: str) -> int:
    begun_s = time.monotonic()
    totals, failed = Totals(), []
    for done, ran in enumerate(run_seeds(seeds, workers=workers, bug=bug), 1):
        totals.add(ran)
        if ran.failed:
            failed.append(ran.seed)
            _progress("")
            if len(failed) <= SHOWN_MAX:
                print(f"seed {ran.seed}: {ran.failed.splitlines()[0][:LINE_MAX]}", flush=True)
        hours = totals.simulated_s / 3600
        _progress(f"{done} of {amount(len(seeds), 'seed')}, {hours:.1f} simulated hours, {amount(len(failed), 'violation')}")
    _progress("")
    print(totals.text(time.monotonic() - begun_s))
    if failed:
        see = f"python -m simulation --seed {failed[0]}{f' --bug {bug}' if bug else ''} --shrink"
        print(f"violations in {amount(len(failed), 'seed')}; see one, and write a small plan of it to a file, with: {see}")
    return 1 if failed else 0


class Totals:
    """Of many seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.simulated_s = 0.0
        self.cpu_s = 0.0
        self.events = 0
        self.counts: Counter[str] = Counter()

    def add(self, ran: Ran) -> None:
        """Count a seed."""
        self.seeds += 1
        self.cpu_s += ran.cpu_s
        if ran.result is not None:
            self.simulated_s += ran.result.simulated_s
            self.events += ran.result.events
            self.counts.update(ran.result.counts)

    def text(self, elapsed_s: float) -> str:
        """A summary."""
        happened = ", ".join(f"{kind} {count}" for kind, count in self.counts.most_common())
        return (
            f"{amount(self.seeds, 'seed')}: {self.simulated_s:.0f} simulated seconds and {self.events} events in {elapsed_s:.0f} s "
            f"({self.cpu_s:.0f} s of CPU, {self.simulated_s / max(self.cpu_s, 0.001):.0f} simulated seconds a second)\n{happened}"
        )


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


def _replay(plan: Plan) -> int:
    result, cluster = run_plan(plan, keep_trace=True)
    print("\n".join(cluster.environment.trace.lines))
    print(f"\n{plan}\ntrace {result.digest:08x}, {cluster.environment.trace.count} lines")
    if result.violation is None:
        print("no violation")
        return 0
    print(f"{result.violation.invariant} at {result.violation.at_s:.3f} s: {result.violation.text}")
    return 1


def _smaller(plan: Plan, output: str | None) -> int:
    """Shrink a plan, write what is left, and run it."""
    violation = run_plan(plan)[0].violation
    if violation is None:
        return _replay(plan)
    invariant = violation.invariant

    def fails(candidate: Plan) -> bool:
        found = run_plan(candidate)[0].violation
        return found is not None and found.invariant == invariant

    path = output or "-".join(filter(None, ("plan", str(plan.seed), plan.bug))) + ".json"
    try:
        with open(path, "a", encoding="utf-8"):
            pass  # to know now that it can be written; it may be the plan that is shrunk
        plan = shrink(plan, fails)
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_text(StoredPlan(plan, violation.text.splitlines()[0][:LINE_MAX], invariant)))
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}; specify another file with --output", file=sys.stderr)
        return USAGE
    status = _replay(plan)
    print(f"the plan is in {path}; run it again with: python -m simulation --plan {path}")
    return status


def _find_bugs(bugs: list[str], seeds: range, workers: int, *, table: bool) -> int:
    found: list[Search] = []
    missed: list[Search] = []
    for done, search in enumerate(search_all(bugs, seeds=seeds, known=not table, workers=workers), 1):
        (missed if search.seed is None else found).append(search)
        _progress("")
        print(search.line, flush=True)
        _progress(f"{done} of {len(bugs)} bugs")
    _progress("")
    if table:
        by_name = {search.bug: search for search in found}
        print("\n".join(by_name[bug].row for bug in bugs if bug in by_name))
        print("\n".join(f'    "{search.bug}": {search.seed},' for search in sorted(found)))
    names = ", ".join(search.bug for search in missed)
    print(f"{len(found)} of {len(bugs)} bugs found" + (f"; not found in {amount(len(seeds), 'seed')}: {names}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
