"""Looks for the seeds that find deliberate bugs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from txbroker.testing.simulation.bugs import BUGS
from txbroker.testing.simulation.bugs.first_seeds import FIRST_SEEDS
from txbroker.testing.simulation.run import Ran, in_processes, run_seed

TEXT_MAX = 160


class Search(NamedTuple):
    """A bug, the seed that has found it (None: no seed has), the violated invariant, and what was wrong."""

    bug: str
    seed: int | None
    invariant: str
    text: str

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.bug}: NOT FOUND" if self.seed is None else f"{self.bug}: seed {self.seed}, {self.text}"

    @property
    def row(self) -> str:
        """Of the table in the documentation."""
        return f"| `{self.bug}` | {BUGS[self.bug].why} | {self.invariant} | {self.seed} |"


def search(bug: str, *, seeds: Sequence[int], known: bool) -> Search:
    """Try the seeds in their order; with `known` first the one that has found the bug before."""
    first = [FIRST_SEEDS[bug]] if known and bug in FIRST_SEEDS else []
    for seed in [*first, *seeds]:
        ran: Ran = run_seed(seed, bug)
        if ran.failed:
            return Search(bug, seed, ran.failed.split()[0], ran.failed.splitlines()[0][:TEXT_MAX])
    return Search(bug, None, "", "")


def search_all(bugs: Sequence[str], *, seeds: Sequence[int], known: bool, workers: int) -> Iterator[Search]:
    """Look for each of these bugs, some at a time; results as they come."""
    yield from in_processes(partial(search, seeds=seeds, known=known), bugs, workers)
