"""Rules for faults in the simulation: the same function states them for a simulated cluster and for a broker for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import pytest
from kafka import KafkaProducer

from simulation.clients.producer import ProducerPlan
from simulation.cluster import Cluster, Result
from simulation.plan import Plan, draw_plain
from tests.support.waiting import PATIENCE_S
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.testing import EditError, Kafka, KitError
from txbroker.testing.rules import Rule, When
from txbroker.wire.messages.metadata import MetadataResponse

TOPIC = "t0"


class Ruled(Protocol):
    """`Kafka`, or the rules of a simulated cluster."""

    def when(self, api: str = "", *, topic: str = "") -> When: ...


def faults(kafka: Ruled) -> list[Rule]:
    """An answer is lost, then the leader is refused, and some connections close."""
    lost = kafka.when("Produce", topic=TOPIC).on_call(2).lose_answer()
    refused = kafka.when("Produce", topic=TOPIC).after(lost).times(3).error("NOT_LEADER_OR_FOLLOWER")
    return [lost, refused, kafka.when("Produce", topic=TOPIC).with_probability(0.2, seed=5).disconnect()]


def plan() -> Plan:
    producer = ProducerPlan((TopicPartition(TOPIC, 0),), acks=-1, idempotent=True, in_flight=5, pause_s=0.03, records_max=3)
    return replace(draw_plain(1), faults=(), producers=(producer,), duration_s=3.0)


def run() -> tuple[Result, list[int], int]:
    cluster = Cluster(plan())
    rules = faults(cluster.environment.rules)
    result = cluster.run()
    return result, [rule.hits for rule in rules], cluster.clients.producers[0].acknowledged


def test_rules_act_on_simulated_clients() -> None:
    """No acknowledged record is lost or stored twice, and the same seed has the same run."""
    result, hits, acknowledged = run()
    assert result.violation is None, result.violation
    assert hits[:2] == [1, 3] and hits[2] > 0 and acknowledged > 10
    again, hits_again, _ = run()
    assert (again.digest, hits_again) == (result.digest, hits)


@pytest.mark.process
def test_the_same_rules_act_on_a_broker_for_tests() -> None:
    with Kafka(topics={TOPIC: 1}) as kafka:
        rules = faults(kafka)
        settings = {"enable_idempotence": True, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
        with KafkaProducer(**kafka.client_config("kafka-python"), **settings) as producer:
            for number in range(30):
                producer.send(TOPIC, b"%d" % number).get(PATIENCE_S)
        assert [record.value for record in kafka.records(TOPIC)] == [b"%d" % number for number in range(30)]
        assert [rule.hits for rule in rules][:2] == [1, 3] and rules[2].hits > 0


def test_a_function_changes_the_answers_of_simulated_brokers() -> None:
    """Producers do not see the leader three times."""

    def without_leaders(response: MetadataResponse) -> None:
        for partition in (each for topic in response.topics for each in topic.partitions):
            partition.leader_id, partition.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE

    def edited() -> tuple[Result, int, int]:
        cluster = Cluster(plan())
        hidden = cluster.environment.rules.when("Metadata", topic=TOPIC).times(3).edit(without_leaders)
        result = cluster.run()
        return result, hidden.hits, cluster.clients.producers[0].acknowledged

    result, hits, acknowledged = edited()
    assert result.violation is None, result.violation
    assert hits == 3 and acknowledged > 10
    assert edited()[0].digest == result.digest


def test_a_function_that_fails_is_a_violation() -> None:
    cluster = Cluster(plan())
    failed = cluster.environment.rules.when("Produce").edit(lambda answer: answer.absent)
    violation = cluster.run().violation
    problem = "the function raised AttributeError: 'ProduceResponse' object has no attribute 'absent'"
    assert violation is not None and violation.invariant == "I12" and problem in violation.text
    with pytest.raises(EditError, match=problem):
        assert failed.hits


def test_a_rule_that_cannot_act() -> None:
    with pytest.raises(KitError, match="there is no request 'Prodce'"):
        Cluster(plan()).environment.rules.when("Prodce").disconnect()
