"""Clients that require unsupported features are refused at once with a reason, and logged once each."""

from __future__ import annotations

import asyncio
import gc
import http.client
import io
import re
import socket
import ssl
import warnings
from collections.abc import Callable
from typing import Any

import aiokafka.errors
import kafka.errors as errors
import kio.index
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaProducer
from kafka.protocol.sasl import SaslHandshakeRequest
from kio.serial import entity_reader, entity_writer

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised
from tests.support.server import HOST, Server
from tests.support.waiting import PATIENCE_S, until

ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 34, 35, 53
SASL_HANDSHAKE, CONSUMER_GROUP_HEARTBEAT = 17, 68
TRANSACTION = 1

Start = Callable[..., Server]


@pytest.fixture
def own(start_broker: Start) -> Server:
    return start_broker(ON)


def logged(server: Server) -> list[str]:
    """The lines of the log about clients, without ports."""
    lines = re.findall(r"WARNING client (.*) \(txbroker\.clients\)", server.log())
    return [re.sub(rf"^{re.escape(HOST)}:\d+", HOST, line) for line in lines]


def refused(server: Server) -> dict[str, float]:
    counts = Scrape(server).by("txbroker_refusals_total", "reason")
    return {reason: count for reason, count in counts.items() if reason.startswith("unsupported_") and count}


def test_a_consumer_of_the_new_group_protocol(own: Server) -> None:
    consumer = Consumer({"bootstrap.servers": own.address, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["t"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError._FATAL
    assert "API version not supported" in error.str()
    consumer.close()
    (line,) = logged(own)
    assert line.endswith("requires the consumer group protocol of KIP-848, which this broker does not support: "
                         "set group.protocol=classic in the consumer")


@pytest.mark.parametrize("version", [0, 1])
def test_the_answer_to_a_consumer_group_heartbeat(broker: Server, version: int) -> None:
    """kafka-python has no such request; kio has."""
    request_class: Any = kio.index.load_request_schema(CONSUMER_GROUP_HEARTBEAT, version)
    header = b"\0\x44" + version.to_bytes(2, "big") + b"\0\0\0\7" + b"\0\2me" + b"\0"
    body = io.BytesIO()
    request = request_class(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=None, topic_partitions=None)
    entity_writer(request_class)(body, request)
    with RawConnection(broker.address) as connection:
        frame = header + body.getvalue()
        connection.send_bytes(len(frame).to_bytes(4, "big") + frame)
        answer = connection.receive_frame()
    assert answer[:5] == b"\0\0\0\7\0"
    response_class: Any = kio.index.load_response_schema(CONSUMER_GROUP_HEARTBEAT, version)
    response, size = entity_reader(response_class)(memoryview(answer)[5:], 0)
    assert size == len(answer) - 5
    assert response.error_code == UNSUPPORTED_VERSION
    assert "Set group.protocol=classic" in response.error_message


def test_sasl_is_refused_and_not_advertised(own: Server) -> None:
    with RawConnection(own.address, client_id="secure") as connection:
        for version in (0, 1):
            answer = connection.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
            assert (answer.error_code, answer.mechanisms) == (ILLEGAL_SASL_STATE, [])
    assert logged(own) == [
        f"127.0.0.1 (client id 'secure') requires SASL; listener PLAINTEXT://{own.address} is PLAINTEXT: "
        "set security.protocol=PLAINTEXT in the client"
    ]
    assert refused(own) == {"unsupported_sasl": 2}
    assert SASL_HANDSHAKE not in advertised(own)


def producer_of_librdkafka(address: str) -> None:
    found: list[KafkaError] = []
    producer = Producer({
        "bootstrap.servers": address, "client.id": "me", "error_cb": found.append,
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p",
    })  # fmt: skip
    until(lambda: producer.poll(0.1) is not None and found, "an error of the producer")
    assert "SASL Handshake not supported by broker" in found[0].str()


def producer_of_kafka_python(address: str) -> None:
    with pytest.raises(errors.IncompatibleBrokerVersion, match="SaslHandshake"):
        KafkaProducer(bootstrap_servers=address, client_id="me", **SASL)


def producer_of_aiokafka(address: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, client_id="me", **SASL)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with warnings.catch_warnings(action="ignore", category=ResourceWarning):  # aiokafka leaves the socket open
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            asyncio.run(start())
        gc.collect()


SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p",
}


@pytest.mark.parametrize("connect", [producer_of_librdkafka, producer_of_kafka_python, producer_of_aiokafka])
def test_clients_that_miss_sasl_in_api_versions_are_logged(own: Server, connect: Callable[[str], None]) -> None:
    connect(own.address)
    (line,) = until(lambda: logged(own), "a line about the client")
    assert re.fullmatch(
        r"127\.0\.0\.1 \(client id 'me'.*\) sent only ApiVersions and closed its connection: if it fails, it requires an API that this "
        rf"broker does not have, or another security protocol; listener PLAINTEXT://{own.address} is PLAINTEXT: "
        r"set security\.protocol=PLAINTEXT in the client", line
    )


def test_tls_is_refused(own: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(3):
        with socket.create_connection((HOST, own.port), 30) as plain, pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
            context.wrap_socket(plain)
    assert logged(own) == [f"127.0.0.1 requires TLS; listener PLAINTEXT://{own.address} is PLAINTEXT: "
                           "set security.protocol=PLAINTEXT in the client"]
    assert refused(own) == {"unsupported_tls": 3}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_http_is_refused(broker: Server, method: str) -> None:
    connection = http.client.HTTPConnection(HOST, broker.port, timeout=PATIENCE_S)
    connection.request(method, "/metrics")
    answer = connection.getresponse()
    text = answer.read().decode()
    assert (answer.status, answer.reason) == (400, "Bad Request")
    assert text == ("" if method == "HEAD" else "This port serves Kafka's protocol without TLS. It serves neither HTTP nor HTTPS.\n")
    connection.close()


def test_a_client_is_logged_once(own: Server) -> None:
    for client_id in ("a", "b", "a", None, "b", None):
        with RawConnection(own.address, client_id=client_id) as connection:
            assert connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ILLEGAL_SASL_STATE
    lines = logged(own)
    assert [re.findall(r"'(\w)'", line) for line in lines] == [["a"], ["b"], []]
    assert refused(own) == {"unsupported_sasl": 6}
