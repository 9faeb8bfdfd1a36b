"""A committer reads its last commit back before it ends, also when the coordinator was replaced meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.clients.committer import Committer
from simulation.history import Recorder
from simulation.invariants.cluster_state import ClusterState
from simulation.plan import draw_plain
from simulation.run import run_plan


def test_the_last_commit_is_read_back_from_the_coordinator_that_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    acting, fetched, finish = ClusterState.acting_coordinator, Recorder.fetched, Committer.finish
    finishing: list[str] = []
    missed: list[int] = []
    read_back: list[str] = []

    def replaced(state: ClusterState, group: str, broker_id: int) -> int | None:
        if len(missed) < 2 and finishing:
            missed.append(broker_id)
            return None
        return acting(state, group, broker_id)

    def begins_to_finish(committer: Committer) -> None:
        finishing.append(committer.name)
        finish(committer)

    def recording(recorder: Recorder, client: str, *arguments: Any) -> None:
        if missed:
            read_back.append(client)
        fetched(recorder, client, *arguments)

    async def nothing_beside(committer: Committer) -> None:
        pass

    monkeypatch.setattr(ClusterState, "acting_coordinator", replaced)
    monkeypatch.setattr(Committer, "finish", begins_to_finish)
    monkeypatch.setattr(Recorder, "fetched", recording)
    monkeypatch.setattr(Committer, "_watch", nothing_beside)  # it may fetch last
    plan = next(plan for plan in map(draw_plain, range(1, 50)) if plan.committers)
    result, _ = run_plan(replace(plan, committers=plan.committers[:1], consumers=(), faults=(), left_out=None, duration_s=4.0))
    assert result.violation is None and missed and read_back == ["g0"], (result.violation, missed, read_back)
