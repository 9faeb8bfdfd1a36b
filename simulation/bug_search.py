"""Looks for the seeds that find deliberate bugs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from simulation.bugs import BUGS
from simulation.bugs.first_seeds import FIRST_SEEDS
from simulation.run import Ran, in_processes, run_seed

TEXT_MAX = 160


class Search(NamedTuple):
    """A bug, the seed that has found it (None: no seed has), the violated invariant, and what was wrong.

    Without a seed `text` is the last defect of the simulation, if there was one: that finds no bug.
    """

    bug: str
    seed: int | None
    invariant: str
    text: str

    @property
    def line(self) -> str:
        """For people."""
        if self.seed is None:
            return f"{self.bug}: NOT FOUND" + (f"; {self.text}" if self.text else "")
        return f"{self.bug}: seed {self.seed}, {self.text}"

    @property
    def row(self) -> str:
        """Of the table in the documentation."""
        return f"| `{self.bug}` | {BUGS[self.bug].why} | {self.invariant} | {self.seed} |"


def search(bug: str, *, seeds: Sequence[int], known: bool) -> Search:
    """Try the seeds in their order; with `known` first the one that has found the bug before."""
    first = [FIRST_SEEDS[bug]] if known and bug in FIRST_SEEDS else []
    defect = ""
    for seed in [*first, *seeds]:
        ran: Ran = run_seed(seed, bug)
        if ran.result is None:
            defect = f"seed {seed} has a defect of the simulation: {ran.defect.strip().splitlines()[-1][:TEXT_MAX]}"
        elif ran.result.violation is not None:
            return Search(bug, seed, ran.result.violation.invariant, ran.failed.splitlines()[0][:TEXT_MAX])
    return Search(bug, None, "", defect)


def search_all(bugs: Sequence[str], *, seeds: Sequence[int], known: bool, workers: int) -> Iterator[Search]:
    """Look for each of these bugs, some at a time; results as they come."""
    yield from in_processes(partial(search, seeds=seeds, known=known), bugs, workers)
