"""Brokers for tests with TLS and logins: real clients connect with what `client_config` has for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.support.waiting import PATIENCE_S
from tests.testing.exchanges import EXCHANGES, TOPICS, confluent, kafka_python
from txbroker.testing import Kafka, KitError


@pytest.fixture(scope="module", params=["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with Kafka(security=request.param, topics=TOPICS) as running:
        yield running


@pytest.mark.extended
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_clients_connect(kafka: Kafka, exchange: Any) -> None:
    since = kafka.journal.last()
    assert exchange(kafka) == b"one"
    protocol = kafka.client_config("java")["security.protocol"]
    logins = kafka.journal.entries(since).where(api="SaslAuthenticate", errors=())
    assert bool(logins) == protocol.startswith("SASL")
    assert kafka.journal.entries(since).where(api="Produce", outcome="answered")


@pytest.mark.extended
def test_rules_act_on_encrypted_connections(kafka: Kafka) -> None:
    with kafka.when("Produce", topic="confluent").lose_answer() as rule:
        producer = Producer({**kafka.client_config("confluent"), "enable.idempotence": True, "log_level": 0})
        producer.produce("confluent", b"once")
        producer.flush()
    assert rule.hits == 1 and [record.value for record in kafka.records("confluent")].count(b"once") == 1


@pytest.mark.extended
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_user_may_log_in_by_other_mechanisms(mechanism: str) -> None:
    with Kafka(security="SASL_PLAINTEXT", topics={"t": 1}) as kafka:
        login = {**kafka.client_config("confluent"), "sasl.mechanism": mechanism, "log_level": 0}
        assert "t" in AdminClient(login).list_topics(timeout=PATIENCE_S).topics
        refused: list[Any] = []
        wrong = AdminClient({**login, "sasl.password": "wrong", "error_cb": refused.append})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=1)
        wrong.poll(0)
        assert kafka.journal.where(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")


@pytest.mark.extended
def test_a_secured_broker_restarts_and_a_cluster_has_one_certificate(tmp_path: Path) -> None:
    with Kafka(security="SASL_SSL", topics={"t": 1}) as kafka:
        kafka.produce("t", "one")
        kafka.snapshot(tmp_path / "snapshot")
        kafka.kill()
        kafka.start()
        assert kafka_python_values(kafka, "t") == [b"one"]
        kafka.restore(tmp_path / "snapshot")
        assert [record.value for record in kafka.records("t")] == [b"one"]
    with Kafka(brokers=2, security="SSL", topics={"t": 1}) as cluster:
        cluster.produce("t", "one")
        assert kafka_python_values(cluster, "t") == [b"one"]


def kafka_python_values(kafka: Kafka, topic: str) -> list[bytes | None]:
    with KafkaConsumer(topic, **kafka.client_config("kafka-python", "group")) as consumer:
        return [next(consumer).value]


@pytest.mark.extended
def test_a_server_for_tests_says_how_clients_connect() -> None:
    command = [sys.executable, "-m", "txbroker", "test-server", "--security", "SASL_SSL", "--topic", "t", "--stop-with-input"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        line = json.loads(process.stdout.readline())
        assert "t" in AdminClient(line["client_config"]["librdkafka"]).list_topics(timeout=PATIENCE_S).topics
        assert line["client_config"]["java"]["ssl.truststore.type"] == "PEM"
        process.stdin.close()


def test_there_is_no_such_protocol() -> None:
    with pytest.raises(KitError, match="security is 'TLS'; it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        Kafka(security="TLS")


@pytest.mark.extended
@pytest.mark.parametrize("exchange", [confluent, kafka_python])
def test_a_login_without_headers(exchange: Any) -> None:
    """Kafka 0.11 has only SaslHandshake v0, after which the messages of the mechanism have no header."""
    topics = {"confluent": 1, "kafka-python": 1}
    with Kafka(security="SASL_PLAINTEXT", as_version="0.11", topics=topics) as kafka:
        assert exchange(kafka) == b"one"
        assert kafka.journal.where(api="SaslHandshake", version=0, outcome="answered")
        assert not kafka.journal.where(api="SaslAuthenticate")
