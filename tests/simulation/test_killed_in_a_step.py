"""A broker that is killed in the middle of a step has perhaps acknowledged records in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.clients.producer import ProducerPlan
from simulation.hosts import BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.plan import TopicPlan, draw_plain
from simulation.run import run_plan
from txbroker.names import TopicPartition

WRITTEN = TopicPartition("t0", 0)


def test_what_was_acknowledged_in_the_step_counts_as_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped, killed = ClusterState.stepped, []

    def killing(state: ClusterState, host: BrokerHost) -> None:
        components = None if host.broker is None or killed else host.broker.components
        partition = None if components is None else components.replicas.find(*WRITTEN)
        if partition is not None and partition.high_watermark == 20:  # by this step
            killed.append(host.id)
            host.kill()
            state._environment.scheduler.after(1.0, host.start)
        stepped(state, host)

    monkeypatch.setattr(ClusterState, "stepped", killing)
    producer = ProducerPlan((WRITTEN,), acks=-1, idempotent=True, in_flight=1, pause_s=0.05, records_max=1)
    topic = TopicPlan(WRITTEN.topic, partitions=1, replicas=1, min_in_sync=1)
    plan = replace(draw_plain(1), brokers=1, topics=(topic,), producers=(producer,), consumers=(), committers=(), faults=(), left_out=None)
    result, cluster = run_plan(plan)
    assert killed and result.violation is None, result.violation
    assert cluster.clients.producers[0].acknowledged > 20
