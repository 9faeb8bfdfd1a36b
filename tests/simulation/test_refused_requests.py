"""A request of a simulated client that fails with an error that no fault explains violates I12."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simulation.clients.cluster_client import ClusterClient, NotAvailable, Refused, check
from simulation.plan import Plan
from simulation.run import run_plan
from simulation.workloads import draw
from txbroker.errors import ErrorCode
from txbroker.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from txbroker.wire.messages.create_topics import CreateTopicsRequest
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest
from txbroker.wire.schema import Request

PLANS = [plan for plan in map(draw, range(1, 60)) if plan.brokers < 4]


def has_group(plan: Plan) -> bool:
    return bool(plan.groups)


def commits(plan: Plan) -> bool:
    return bool(plan.committers)


def consumes(plan: Plan) -> bool:
    return bool(plan.consumers)


def does(work: str) -> Callable[[Plan], bool]:
    return lambda plan: any(work in each.work for each in plan.administrators)


@pytest.mark.parametrize(
    ("suits", "request_type", "fields"),
    [
        (consumes, FetchRequest, "responses partitions"),
        (consumes, ListOffsetsRequest, "topics partitions"),
        (commits, OffsetCommitRequest, "topics partitions"),
        (commits, OffsetFetchRequest, "groups"),
        (has_group, HeartbeatRequest, ""),
        (does("create"), CreateTopicsRequest, "topics"),
        (does("reassign"), AlterPartitionReassignmentsRequest, ""),
        (does("configure"), IncrementalAlterConfigsRequest, "responses"),
    ],
)
def test_an_error_that_no_fault_explains(
    monkeypatch: pytest.MonkeyPatch, suits: Callable[[Plan], bool], request_type: type[Request], fields: str
) -> None:
    send = ClusterClient.send

    async def failing(client: ClusterClient, broker_id: int, request: Request, **options: Any) -> Any:
        response = await send(client, broker_id, request, **options)
        if isinstance(request, request_type) and client.process.host != "admin":
            answers = [response]
            for name in fields.split():
                answers = [one for answer in answers for one in getattr(answer, name)]
            for answer in answers:
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return response

    monkeypatch.setattr(ClusterClient, "send", failing)
    found = run_plan(replace(next(filter(suits, PLANS)), faults=(), left_out=None, duration_s=8.0))[0].violation
    assert found is not None and found.invariant == "I12" and "failed with UNKNOWN_SERVER_ERROR" in found.text, found


def test_only_errors_that_faults_explain_may_pass() -> None:
    passing = {ErrorCode.NOT_COORDINATOR}
    check("Heartbeat", 0, passing)
    with pytest.raises(NotAvailable, match="Heartbeat: NOT_COORDINATOR"):
        check("Heartbeat", ErrorCode.NOT_COORDINATOR, passing)
    with pytest.raises(Refused, match="Heartbeat failed with INVALID_REQUEST"):
        check("Heartbeat", ErrorCode.INVALID_REQUEST, passing)
