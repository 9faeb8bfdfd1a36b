"""The simulation of whole clusters: it is deterministic, it finds what is wrong, and finds nothing wrong in many seeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from simulation.bug_search import search
from simulation.bugs import BUGS, switched_on
from simulation.cluster import Cluster
from simulation.plan import SETTLE_S, draw_plain
from simulation.run import run_plan, run_seed
from simulation.shrink import shrink
from simulation.workloads import draw

COMMAND = [sys.executable, "-m", "simulation"]
RUN = "simulation.run"
TRACE = re.compile(r"^trace (\w+), (\d+) lines$", re.MULTILINE)


FIXED_HASHES = {**os.environ, "PYTHONHASHSEED": "0"}  # else the command starts a second time


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, env=FIXED_HASHES)


@pytest.mark.process
@pytest.mark.parametrize("first", range(1, 101, 20))
def test_many_seeds(first: int) -> None:
    """The short form of `make sim`, in parts, of which each has the time limit of a test."""
    ran = command("--seeds", "20", "--first", str(first), "--workers", "2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("20 seeds: ")


@pytest.mark.process
def test_a_seed_is_the_same_whatever_the_order_of_sets() -> None:
    """Not by the command, which fixes PYTHONHASHSEED."""
    program = f"import {RUN} as run; run.silence(); print([(r.digest, r.events) for r in (run.run_seed(s).result for s in (26, 34, 56))])"
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                       env={**os.environ, "PYTHONHASHSEED": hashes})
        for hashes in ("1", "17")
    )  # fmt: skip
    assert first.returncode == 0 and re.fullmatch(r"\[(\(\d+, \d{4,}\)(, )?){3}\]\n", first.stdout), first.stdout + first.stderr
    assert first.stdout == second.stdout


@pytest.mark.process
def test_the_trace_of_a_seed_is_printed() -> None:
    ran = command("--seed", "3")
    found = TRACE.search(ran.stdout)
    assert ran.returncode == 0 and found and int(found[2]) > 50, ran.stdout + ran.stderr


def test_a_seed_is_the_same_after_others() -> None:
    alone = run_seed(18)
    run_seed(64)
    again = run_seed(18)
    assert alone.result is not None and again.result is not None, alone.defect + again.defect
    assert (alone.result.digest, alone.result.events) == (again.result.digest, again.result.events)


def test_a_plan_without_faults_has_none_and_is_whole_at_once() -> None:
    plan = draw_plain(1)
    # A consumer of one batch a fetch may be slower than the producers: it would be waited for at the end.
    consumers = tuple(replace(consumer, bytes_max=1_048_576) for consumer in plan.consumers)
    result, cluster = run_plan(replace(plan, faults=(), consumers=consumers))
    assert result.violation is None and result.converged_s < 5.0, result
    assert cluster.environment.ledger.records_read > 0 and sum(producer.acknowledged for producer in cluster.clients.producers) > 100
    offsets_partitions = 2 if cluster.clients.committers else 0
    assert result.counts["leaders"] == sum(topic.partitions for topic in cluster.plan.topics) + offsets_partitions


def test_a_defect_of_the_simulation_finds_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(cluster: Cluster) -> None:
        raise TypeError("it is wrong")

    monkeypatch.setattr(Cluster, "run", defect)
    found = search("duplicate_accepted", seeds=range(1, 3), known=False)
    assert found.seed is None and found.line.endswith("NOT FOUND; seed 2 has a defect of the simulation: TypeError: it is wrong")


def test_a_plan_is_shrunk_to_what_its_failure_needs() -> None:
    plan = next(plan for plan in map(draw, range(1, 100)) if {"kill", "pause"} <= {fault.kind for fault in plan.faults})

    def fails(candidate: object) -> bool:
        return {"kill", "pause"} <= {fault.kind for fault in candidate.faults}  # type: ignore[attr-defined]

    small = shrink(plan, fails)
    assert sorted(fault.kind for fault in small.faults) == ["kill", "pause"]
    assert not small.producers and not small.consumers and small.duration_s <= plan.duration_s
    assert all(fault.at_s >= SETTLE_S for fault in small.faults)


@pytest.mark.parametrize(
    ("bug", "invariant"),
    [("acknowledged_by_leader_alone", "I6"), ("no_truncation", "I2"), ("epochs_not_written_by_followers", "I3 I5")],
)
def test_a_deliberate_bug_is_found_soon(bug: str, invariant: str) -> None:
    ran = next(ran for ran in (run_seed(seed, bug) for seed in range(1, 61)) if ran.failed)
    assert ran.failed.split()[0] in invariant.split(), ran.failed
    assert not run_seed(ran.seed).failed, "it is switched off again"


def test_a_bug_is_switched_off_after_an_error() -> None:
    patches = [patch for bug in BUGS.values() for patch in bug.patches()]
    before = {(patch.holder, patch.attribute): vars(patch.holder)[patch.attribute] for patch in patches}
    for name in BUGS:
        with pytest.raises(ZeroDivisionError), switched_on(name):
            raise ZeroDivisionError
    assert all(vars(holder)[attribute] is value for (holder, attribute), value in before.items())
    assert len(BUGS) >= 30 and all(bug.why for bug in BUGS.values())
