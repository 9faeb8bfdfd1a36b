"""Brokers for tests with TLS and logins: real clients connect with what `client_config` has for them."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

import txbroker.security
from tests.support import java
from tests.support.sasl import properties_file
from tests.support.waiting import PATIENCE_S, until
from tests.testing.exchanges import EXCHANGES, TOPICS, confluent, kafka_python
from txbroker.testing import Kafka, KitError
from txbroker.testing.secured import security_of


@pytest.fixture(scope="module", params=["SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL"])
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
@pytest.mark.parametrize("security", ["SSL", "MTLS"])
def test_javas_consumer_connects(security: str, tmp_path: Path) -> None:
    with Kafka(security=security, topics={"t": 1}) as kafka:
        kafka.produce("t", "one", "two")
        own = properties_file(tmp_path / "consumer.properties", kafka.client_config("java", "group"))
        place = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "t", "--command-config", own)
        assert java.run("kafka-console-consumer", *place, "--max-messages", "2").splitlines()[-2:] == ["one", "two"]
        assert kafka.journal.where(api="OffsetCommit", group="group", errors=())


@pytest.mark.extended
def test_javas_client_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with Kafka(security="MTLS") as kafka:
        settings = {key: value for key, value in kafka.client_config("java").items() if not key.startswith("ssl.keystore.")}
        own = properties_file(tmp_path / "client.properties", settings)
        with pytest.raises(java.ToolFailed, match=r"SslAuthenticationException: .*\n.*Received fatal alert: certificate_required"):
            java.run("kafka-topics", "--bootstrap-server", kafka.bootstrap_servers, "--command-config", own, "--list")


ONLY_THE_USER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:CN=test"}


@pytest.mark.extended
def test_the_principal_is_the_name_of_the_certificate(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with Kafka(security="MTLS", topics=TOPICS, settings={**ONLY_THE_USER, "txbroker.audit.file": str(audit)}) as kafka:
        assert confluent(kafka) == b"one"
    logins = [event for event in map(json.loads, audit.read_text().splitlines()) if event["event"] == "login"]
    assert {(event["principal"], event["mechanism"], event["outcome"]) for event in logins} == {
        ("User:CN=test", "TLS certificate", "succeeded")
    }


@pytest.mark.extended
def test_clients_without_a_certificate_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with Kafka(security="MTLS") as kafka:
        _refuses_librdkafka(kafka)
        _refuses_kafka_python(kafka, caplog)
        _refuses_aiokafka(kafka)
        assert not kafka.journal.entries()
        assert "the client sent no certificate, which ssl.client.auth=required needs" in kafka.log_tail()


def _refuses_librdkafka(kafka: Kafka) -> None:
    errors: list[str] = []
    client = AdminClient({**kafka.client_config("confluent"), "ssl.certificate.location": "", "ssl.key.location": "",
                          "log_level": 0, "error_cb": lambda error: errors.append(error.str())})  # fmt: skip
    until(lambda: client.poll(0.1) and any("alert certificate required" in error for error in errors), "the client has this error")


def _refuses_kafka_python(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """The error that it raises says only that it could not connect; its log says why."""
    settings = {**kafka.client_config("kafka-python"), "ssl_certfile": None, "ssl_keyfile": None}

    def is_refused() -> bool:
        with pytest.raises(KafkaError):
            KafkaProducer(**settings, bootstrap_timeout_ms=1000)
        return "CERTIFICATE_REQUIRED" in caplog.text

    until(is_refused, "the client has this error")


def _refuses_aiokafka(kafka: Kafka) -> None:
    trusting = ssl.create_default_context(cafile=kafka.client_config("kafka-python")["ssl_cafile"])

    async def connected() -> None:
        producer = AIOKafkaProducer(**{**kafka.client_config("aiokafka"), "ssl_context": trusting})
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(connected())


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
    with Kafka(brokers=2, security="MTLS", topics={"t": 1}) as cluster:
        cluster.produce("t", "one")
        assert kafka_python_values(cluster, "t") == [b"one"]


def kafka_python_values(kafka: Kafka, topic: str) -> list[bytes | None]:
    with KafkaConsumer(topic, **kafka.client_config("kafka-python", "group")) as consumer:
        return [next(consumer).value]


@pytest.mark.extended
@pytest.mark.parametrize("security", ["MTLS", "SASL_SSL"])
def test_a_server_for_tests_says_how_clients_connect(security: str) -> None:
    command = [sys.executable, "-m", "txbroker", "test-server", "--security", security, "--topic", "t", "--stop-with-input"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        line = json.loads(process.stdout.readline())
        assert "t" in AdminClient(line["client_config"]["librdkafka"]).list_topics(timeout=PATIENCE_S).topics
        assert line["client_config"]["java"]["ssl.truststore.type"] == "PEM"
        assert ("ssl.keystore.location" in line["client_config"]["java"]) == (security == "MTLS")
        process.stdin.close()


def test_another_value_is_an_error() -> None:
    with pytest.raises(KitError, match="security is 'TLS'; it must be one of PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL"):
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


def test_without_cryptography_each_start_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of pytest-xdist that share a broker start it one after the other."""
    monkeypatch.delitem(sys.modules, "txbroker.security.certificate_maker", raising=False)
    monkeypatch.delattr(txbroker.security, "certificate_maker", raising=False)  # of an import by another test
    monkeypatch.setitem(sys.modules, "cryptography", None)
    secured = security_of("SSL", tmp_path)
    assert secured is not None
    for _ in range(2):
        with pytest.raises(KitError, match=r"security='SSL' needs certificates, and .*pip install 'txbroker\[security\]'"):
            secured.write()
