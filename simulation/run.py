"""Runs seeds: one after the other, or in several processes."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from twisted.logger import LogBeginner, globalLogBeginner

from simulation.bugs import switched_on
from simulation.cluster import Cluster, Result
from simulation.plan import Plan
from simulation.workloads import draw

SEEDS_PER_PROCESS = 100
YOUNG_MAX = 50_000  # objects between passes of the garbage collector, which take a tenth of a run's time with CPython's 700
HASH_SEED = "PYTHONHASHSEED"

T = TypeVar("T")
R = TypeVar("R")


class Ran(NamedTuple):
    """One seed: its result, or the traceback of a defect of the simulation. `cpu_s`: CPU time."""

    seed: int
    result: Result | None
    defect: str
    cpu_s: float

    @property
    def failed(self) -> str:
        """What was violated; empty if nothing was."""
        if self.result is None:
            return f"defect of the simulation: {self.defect}"
        violation = self.result.violation
        return "" if violation is None else f"{violation.invariant} at {violation.at_s:.3f} s: {violation.text}"


def fix_hashes() -> None:
    """Run this process again with a fixed order of sets of texts: it must be the same each time."""
    if os.environ.get(HASH_SEED) != "0":
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def silence() -> None:
    """Of ended processes nothing is reported. What they leave is cleared away after each run, which looks at nothing older than this."""
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
    sys.unraisablehook = lambda _: None
    logging.getLogger("txbroker").addHandler(logging.NullHandler())  # without any handler, errors go to stderr
    if isinstance(globalLogBeginner, LogBeginner):
        ignore: Any = lambda _: None  # noqa: E731
        globalLogBeginner.beginLoggingTo([ignore], discardBuffer=True, redirectStandardIO=False)


def run_plan(plan: Plan, *, keep_trace: bool = False) -> tuple[Result, Cluster]:
    """Run one plan, with its deliberate bug, if it has one."""
    with switched_on(plan.bug):
        cluster = Cluster(plan, keep_trace=keep_trace)
        return cluster.run(), cluster


def run_seed(seed: int, bug: str = "") -> Ran:
    """Run a seed. Nothing of the cluster is left."""
    begun_s = time.process_time()
    result, defect = None, ""
    try:
        result, _ = run_plan(replace(draw(seed), bug=bug))
    except Exception:
        defect = traceback.format_exc()
    with suppress(Exception):
        gc.collect()
    return Ran(seed, result, defect, time.process_time() - begun_s)


def run_seeds(seeds: Sequence[int], *, workers: int, bug: str = "") -> Iterator[Ran]:
    """Run seeds in so many processes; results as they come."""
    yield from in_processes(_run, [(seed, bug) for seed in seeds], workers)


def in_processes(work: Callable[[T], R], tasks: Sequence[T], workers: int) -> Iterator[R]:
    """Do tasks in so many processes; results as they come."""
    if workers == 1:
        yield from map(work, tasks)
        return
    with multiprocessing.get_context("fork").Pool(workers, silence, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(work, tasks)


def _run(task: tuple[int, str]) -> Ran:
    return run_seed(*task)
