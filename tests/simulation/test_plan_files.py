"""Plans as files: they are read back as they were, run again exactly, and what is wrong in one is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation.plan import Fault, Plan
from simulation.plan_file import StoredPlan, from_text, to_text
from simulation.plan_values import BadPlan
from simulation.run import run_plan
from simulation.workloads import draw

PLAN = Path(__file__).parent / "plans" / "no_truncation.json"
SEEDS = 25  # as in test_stored_plans.py: one of them shows the bug, whatever the broker does otherwise


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_every_kind_of_plan_is_read_back_as_it_was() -> None:
    plans = [draw(seed) for seed in range(1, 200)]
    for plan in plans:
        stored = StoredPlan(replace(plan, bug="no_truncation"), "what it shows", "I2")
        assert from_text(to_text(stored)) == stored
    for part in ("transactional", "groups", "administrators", "committers", "cleaning"):
        assert any(getattr(plan, part) for plan in plans), part


def test_a_file_has_one_fault_a_line_and_names_brokers() -> None:
    plan = replace(draw(1), faults=(Fault(5.0, "kill", 0, 1.5, 0.25), Fault(6.0, "expire", -1), Fault(7.0, "pause", -2, 1.0)), left_out=1)
    lines = to_text(StoredPlan(plan)).splitlines()
    assert '    {"at_s": 5.0, "kind": "kill", "target": "b1", "length_s": 1.5, "detail": 0.25},' in lines
    assert '    {"at_s": 6.0, "kind": "expire", "target": "controller"},' in lines
    assert '    {"at_s": 7.0, "kind": "pause", "target": "leader", "length_s": 1.0}' in lines
    assert '  "left_out": "b2"' in "".join(lines) and lines[0] == "{" and lines[1] == '  "seed": 1,'


def changed(**changes: Any) -> str:
    """A file with other values; `__` separates the keys of a path, and None removes one."""
    content = json.loads(PLAN.read_text(encoding="utf-8"))
    for path, value in changes.items():
        *parents, name = path.split("__")
        target: Any = content
        for parent in parents:
            target = target[int(parent) if parent.isdigit() else parent]
        if value is None:
            del target[name]
        else:
            target[name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON: "),
        ("[]", "it must be an object"),
        ('{"seed": 1' + "0" * 5000 + "}", "it is not JSON: "),
        (changed(duration_s=10**400), "duration_s: must be a number, not 1"),
        (changed(topics__0__partitions=10**9), "topics[0]: needs 1 to 100 partitions"),
        (changed(settings={"log.dirs": "/"}), "settings.log.dirs: is set by the simulation"),
        ('{"seed": 1, "seed": 2}', "seed: is there twice"),
        (changed(brokers=None), "brokers: is missing"),
        (changed(broker=3), "broker: is not known; the keys here are seed, duration_s, "),
        (changed(brokers="3"), "brokers: must be a whole number, not '3'"),
        (changed(brokers=True), "brokers: must be a whole number, not True"),
        (changed(brokers=0), "brokers: must be from 1 to "),
        (changed(duration_s=float("nan")), "duration_s: must be a number, not nan"),
        (changed(durable=1), "durable: must be true or false, not 1"),
        (changed(bug="none"), "bug: 'none' is not known; use one of "),
        (changed(violates="I99"), "violates: 'I99' is not known; use one of I1, "),
        (changed(left_out="leader"), "left_out: must be a broker such as b1, not 'leader'"),
        (changed(faults={}), "faults: must be a list, not {}"),
        (changed(faults__0__kind="kil"), "faults[0].kind: 'kil' is not known; use one of kill, "),
        (changed(faults__0__target="b0"), "faults[0].target: must be a broker such as b1, controller or leader, not 'b0'"),
        (changed(faults__0__target="b9"), "faults[0].target: must be one of the "),
        (changed(faults__0__at_s=-1), "faults[0].at_s: must be from 0 to "),
        (changed(topics__0__replicas=9), "topics[0]: needs "),
        (changed(topics__0__configs={"retention.ms": "soon"}), "topics[0].configs: "),
        (changed(topics__0__name=None), "topics[0].name: is missing"),
        (changed(producers__0__partitions=["t0"]), "producers[0].partitions[0]: must be a partition such as t0-1, not 't0'"),
        (changed(producers__0__partitions=["other-7"]), "producers[0].partitions: the plan has no partition other-7"),
        (changed(producers__0__partitions=[]), "producers[0].partitions: must not be empty"),
        (changed(producers__0__pause_s=0), "producers[0].pause_s: must be from 0.001 to "),
        (changed(producers__0__acks=7), "producers[0].acks: must be from -1 to 1, not 7"),
        (changed(producers__0__in_flight=0), "producers[0].in_flight: must be from 1 to 5, not 0"),
        (changed(producers__0__restarts=7.0), "producers[0].restarts: must be from 0 to 1, not 7"),
        (changed(latency_s=-1.0), "latency_s: must be from 0 to "),
        (changed(session_timeout_s=0.0), "session_timeout_s: must be from "),
        (changed(duration_s=1e12), "duration_s: must be from "),
        (changed(faults__0__detail=7.0), "faults[0].detail: must be from 0 to 1, not 7"),
        (changed(topics=[]), "topics: must not be empty"),
        (changed(topics__0__name="a/b"), "topics[0].name: Topic name 'a/b' is invalid"),
        (changed(topics__0__name="__consumer_offsets"), "topics[0].name: __consumer_offsets is there twice, or is a topic of the brokers"),
        (changed(settings={"num.partitions": 3}), "settings.num.partitions: must be a text, not 3"),
        (changed(settings={"num.partitions": "x"}), "settings: "),
        (changed(settings={"num.partition": "3"}), "settings.num.partition: is not a key of server.properties"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(text: str, problem: str) -> None:
    with pytest.raises(BadPlan) as error:
        from_text(text)
    assert str(error.value).startswith(problem)


@pytest.mark.process
def test_a_file_that_is_not_a_plan_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(changed(faults__0__kind="kil"))
    bad, missing = command("--plan", "bad.json", cwd=tmp_path), command("--plan", "missing.json", cwd=tmp_path)
    assert bad.returncode == 2 and "error: bad.json: faults[0].kind: 'kil' is not known" in bad.stderr, bad.stderr
    assert missing.returncode == 2 and "error: missing.json cannot be read: " in missing.stderr, missing.stderr
    assert command("--shrink", cwd=tmp_path).returncode == 2


@pytest.mark.process
def test_a_plan_is_run_with_and_without_its_bug(tmp_path: Path) -> None:
    stored = from_text(PLAN.read_text(encoding="utf-8"))
    seeds = range(stored.plan.seed, stored.plan.seed + SEEDS)
    plans = [replace(stored.plan, seed=seed) for seed in seeds]
    shown = next(plan for plan in plans if (found := run_plan(plan)[0].violation) is not None and found.invariant == stored.violates)
    (tmp_path / "plan.json").write_text(to_text(StoredPlan(shown, stored.about, stored.violates)))
    with_bug, without = command("--plan", "plan.json", cwd=tmp_path), command("--plan", "plan.json", "--bug", "", cwd=tmp_path)
    assert with_bug.returncode == 1 and "\nI2 at " in with_bug.stdout, with_bug.stderr
    assert without.returncode == 0 and without.stdout.endswith("\nno violation\n"), without.stdout[-500:] + without.stderr


@pytest.mark.process
def test_a_shrunk_plan_is_written_and_violates_the_same(tmp_path: Path) -> None:
    shrunk = command("--seed", "1", "--bug", "acknowledged_by_leader_alone", "--shrink", cwd=tmp_path)
    assert shrunk.returncode == 1 and "--plan plan-1-acknowledged_by_leader_alone.json\n" in shrunk.stdout, shrunk.stdout[-500:]
    stored = from_text((tmp_path / "plan-1-acknowledged_by_leader_alone.json").read_text())
    drawn: Plan = draw(1)
    assert stored.violates == "I6" and stored.about and len(stored.plan.faults) < len(drawn.faults)
    again = command("--plan", "plan-1-acknowledged_by_leader_alone.json", cwd=tmp_path)
    trace = [line for line in shrunk.stdout.splitlines() if line.startswith("trace ")]
    assert again.returncode == 1 and trace and trace[0] in again.stdout, again.stdout[-500:]
