"""Sessions with a lifetime of 15 s at a real broker: real clients log in again on their connections, or connect again (KIP-368)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.metrics.scraping import Scrape
from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_NEW
from tests.support.raw_admin import create_topic
from tests.support.sasl import PASSWORDS, client_properties, properties_file, sasl_server
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.extended]

TOPIC = "sessions"
LIFETIME_MS = 15_000
SETTINGS = {"connections.max.reauth.ms": str(LIFETIME_MS)}


@pytest.fixture(scope="module")
def secured(server_directory: Path) -> Iterator[Server]:
    """A broker whose sessions have a lifetime."""
    server, _ = sasl_server(BrokerProcess.kind, server_directory / "sessions", {**SETTINGS, "txbroker.metrics.port": "0"})
    server.start()
    try:
        create_topic(server, TOPIC)
        yield server
        assert "Traceback (most recent call last)" not in server.log()
    finally:
        server.close()


def address(server: Any) -> str:
    """The listener with SASL."""
    found: str = server.sasl
    return found


def counts(server: Server) -> tuple[float, float]:
    """Logins, and connections that were closed because of an expired session."""
    scrape = Scrape(server)
    logins = sum(value for labels, value in scrape.samples["txbroker_logins_total"].items() if ("result", "succeeded") in labels)
    return logins, scrape.by("txbroker_refusals_total", "reason")["session_expired"]


def test_kafka_python_logs_in_again(secured: Server) -> None:
    producer = KafkaProducer(bootstrap_servers=address(secured), security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
                             sasl_plain_username="alice", sasl_plain_password=PASSWORDS["alice"])  # fmt: skip
    try:
        check(secured, lambda: producer.send(TOPIC, b"x").get(PATIENCE_S))
    finally:
        producer.close()


def test_librdkafka_logs_in_again(secured: Server) -> None:
    producer = Producer({"bootstrap.servers": address(secured), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN",
                         "sasl.username": "alice", "sasl.password": PASSWORDS["alice"]})  # fmt: skip

    def send() -> None:
        failed: list[Any] = []
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failed.append(error))
        producer.flush(PATIENCE_S)
        assert failed == [None]

    check(secured, send)


def check(server: Server, send: Any) -> None:
    """Requests succeed beyond the end of a session, and no connection ends because of it."""
    send()
    logins, expired = counts(server)
    started = time.monotonic()

    def renewed() -> bool:
        send()
        return counts(server)[0] > logins and time.monotonic() > started + LIFETIME_MS / 1000

    until(renewed, "the client has logged in again", every_s=0.3)
    assert counts(server)[1] == expired


def test_javas_producer_logs_in_again(secured: Server, tmp_path: Path) -> None:
    file = properties_file(tmp_path / "alice", client_properties("PLAIN", "alice", PASSWORDS["alice"]))
    logins, expired = counts(secured)
    line = java.command("kafka-console-producer", KAFKA_NEW, ["--bootstrap-server", address(secured), "--topic", TOPIC,
                        "--producer.config", str(file)])  # fmt: skip
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None and producer.stderr is not None
        started = time.monotonic()

        def renewed() -> bool:
            assert producer.stdin is not None
            producer.stdin.write("x\n")
            producer.stdin.flush()
            return counts(secured)[0] >= logins + 2 and time.monotonic() > started + 1.5 * LIFETIME_MS / 1000

        until(renewed, "the producer has logged in again", every_s=0.3)
        _, complaints = producer.communicate(timeout=PATIENCE_S)
        assert producer.returncode == 0 and "Exception" not in complaints
    assert counts(secured)[1] == expired
