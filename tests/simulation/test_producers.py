"""The simulation's producers do what Kafka's clients do: a cluster without faults never refuses one of their retries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.clients.cluster_client import ClusterClient
from simulation.clients.producer import ProducerPlan
from simulation.plan import draw_plain
from simulation.run import run_plan
from txbroker.errors import ErrorCode
from txbroker.log import producers
from txbroker.names import TopicPartition
from txbroker.wire.messages.produce import ProduceRequest


def test_a_batch_is_repeated_while_the_log_remembers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four batches may follow one that is to be sent again to the same leader, as with real clients: Kafka's logs know no more."""
    send, sent = ClusterClient.send, [0]

    async def losing(client: ClusterClient, broker_id: int, request: Any, **options: Any) -> Any:
        response = await send(client, broker_id, request, **options)
        if isinstance(request, ProduceRequest):
            sent[0] += 1
            if sent[0] % 7 == 0:  # the batch is in the log, and the producer does not learn of it
                response.responses[0].partition_responses[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return response

    monkeypatch.setattr(ClusterClient, "send", losing)
    monkeypatch.setattr(producers, "BATCHES_REMEMBERED", 5)
    monkeypatch.setattr(producers, "_find_earlier", lambda state, header: None)
    producer = ProducerPlan((TopicPartition("t0", 0),), acks=-1, idempotent=True, in_flight=5, pause_s=0.03, records_max=1)
    result, cluster = run_plan(replace(draw_plain(1), faults=(), producers=(producer,), latency_s=0.02))
    assert result.violation is None, result.violation
    assert sent[0] > 100 and cluster.clients.producers[0].acknowledged > 50
