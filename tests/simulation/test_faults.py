"""Faults of the simulation have an effect on what they name, and end when they should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.faults import Faults
from simulation.network import Network
from simulation.plan import Fault, TopicPlan
from simulation.run import run_plan
from simulation.workloads import draw


@pytest.mark.parametrize("kind", ["isolate", "slow"])
@pytest.mark.parametrize("work", ["transactional", "groups"])
def test_a_fault_of_all_links_includes_those_to_all_clients(monkeypatch: pytest.MonkeyPatch, kind: str, work: str) -> None:
    links: list[tuple[str, str]] = []
    monkeypatch.setattr(Faults, "_cut_links", lambda faults, found, seconds: links.extend(found))
    monkeypatch.setattr(Faults, "_slow_links", lambda faults, found, slow_s, seconds: links.extend(found))
    plan = next(plan for plan in map(draw, range(1, 100)) if getattr(plan, work))
    fault = Fault(1.0, kind, 0, 1.0, 0.1)
    _, cluster = run_plan(replace(plan, faults=(fault,), left_out=None, duration_s=2.0))
    clients = cluster.clients
    named = [*clients.producers, *clients.consumers, *clients.committers, *clients.transactional, *clients.members]
    names = {client.name for client in named}
    assert {("b1", name) for name in names} | {(name, "b1") for name in names} <= set(links)


def test_nothing_heals_the_links_of_a_broker_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out, heal, heal_link = Faults.leave_out, Faults.heal, Network.heal_link
    out: list[str] = []
    healed: list[tuple[str, str]] = []

    def leaving_out(faults: Faults, target: int) -> int:
        monkeypatch.setattr(faults._chance, "choice", lambda ways: "cut")
        broker_id = leave_out(faults, target)
        out.append(f"b{broker_id}")
        return broker_id

    def healing(faults: Faults) -> None:
        out.clear()
        heal(faults)

    def healing_link(network: Network, source: str, target: str) -> None:
        if {source, target} & set(out):
            healed.append((source, target))
        heal_link(network, source, target)

    monkeypatch.setattr(Faults, "leave_out", leaving_out)
    monkeypatch.setattr(Faults, "heal", healing)
    monkeypatch.setattr(Network, "heal_link", healing_link)
    faults = (Fault(7.5, "lag_kill", 0, 2.0, 0.1), Fault(7.6, "late_failover", 0, 3.0, 0.6))
    plan = replace(draw(2), groups=(), duration_s=8.0, topics=(TopicPlan("t0", 2, 3, 1),), producers=(), consumers=(), faults=faults)
    for target in range(3):
        result, _ = run_plan(replace(plan, left_out=target))
        assert result.violation is None and result.counts["left out cut"] and healed == [], (healed, result.violation)
