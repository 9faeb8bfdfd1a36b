"""Unusual requests of real clients: no ApiVersions first, unsupported versions, older headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised, create_topic
from tests.support.raw_log import batch, fetch, fetch_request, fetched, produce, produce_request
from tests.support.records import numbered, numbers
from tests.support.server import Server

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35

# The APIs and versions that each client requires, also of brokers with much newer ones.
INSISTED_ON = {
    "kafkajs 2.2": {0: 7, 1: 11, 2: 3, 3: 6, 8: 5, 9: 4, 10: 2, 11: 5, 12: 3, 13: 3, 14: 3, 15: 2, 16: 2, 18: 2, 19: 3, 20: 1, 21: 1, 22: 1,
                    32: 2, 33: 1, 37: 1, 42: 1},
    "aiokafka 0.14": {0: 7, 1: 11, 2: 3, 3: 5, 8: 3, 9: 3, 10: 1, 11: 5, 12: 1, 13: 1, 14: 3, 15: 3, 16: 1, 18: 0, 19: 3, 20: 3, 21: 2,
                      22: 0, 32: 2, 33: 1, 37: 1},
    "librdkafka 2.0": {0: 7, 1: 11, 2: 2, 3: 4, 8: 7, 10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 18: 3, 22: 4},
    "kafka-go 0.4": {11: 1, 3: 1, 10: 0, 14: 0, 12: 0, 13: 0, 9: 1, 8: 2, 2: 1},
}


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


def flexible_header(key: int, version: int, correlation_id: int, client_id: bytes = b"odd") -> bytes:
    """Request header v2."""
    return struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + b"\0"


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_api_versions_in_an_unsupported_version(broker: Server, connection: RawConnection) -> None:
    """KIP-511: error 35 in a body of version 0 with the supported range, and the connection stays open."""
    newest = advertised(broker)[API_VERSIONS][1]
    for version in (newest + 1, 99):
        connection.send_bytes(frame(flexible_header(API_VERSIONS, version, 7) + b"\x09franz-go\x061.22\0\0 and fields of the future"))
        answer = connection.receive_frame()
        assert answer[:4] == struct.pack(">i", 7)
        body = ApiVersionsResponse.decode(answer[4:], version=0)
        assert body.error_code == UNSUPPORTED_VERSION
        assert [(entry.min_version, entry.max_version) for entry in body.api_keys if entry.api_key == API_VERSIONS] == [(0, newest)]
    request = ApiVersionsRequest(client_software_name="franz-go", client_software_version="1.22")
    assert connection.call(request, newest).error_code == 0


def test_every_version_of_api_versions_returns_the_same_ranges(broker: Server, connection: RawConnection) -> None:
    reported = []
    for version in range(advertised(broker)[API_VERSIONS][1] + 1):
        answer = connection.call(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version)
        assert answer.error_code == 0
        reported.append({entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys})
    assert all(one == reported[0] for one in reported)


def test_a_fetch_without_a_handshake(broker: Server, connection: RawConnection, name: str) -> None:
    """kafkajs opens its fetch connection with a Fetch."""
    create_topic(broker, name)
    with RawConnection(broker.address) as producing:
        produce(producing, name, batch(numbered(5)), version=7)
    assert numbers(fetch(connection, name, 0, version=11).records) == list(range(5))


def test_a_null_client_id(broker: Server) -> None:
    with RawConnection(broker.address, client_id=None) as connection:
        for version in (0, 1, 5, 9, 12):
            assert len(connection.call(MetadataRequest(topics=[]), version).brokers) == 1


@pytest.mark.parametrize("client", INSISTED_ON)
def test_versions_that_clients_require_are_advertised(broker: Server, client: str) -> None:
    offered = advertised(broker)
    missing = {key: version for key, version in INSISTED_ON[client].items()
               if key not in offered or not offered[key][0] <= version <= offered[key][1]}
    assert missing == {}


def test_newer_and_older_headers_on_one_connection(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    for version in (7, 9, 3, 11, 8, 10):
        assert produce(connection, name, batch(numbered(1)), version=version).error_code == 0
    for version in (4, 12, 7, 11):
        assert len(fetch(connection, name, 0, version=version).records) == 6


def test_produce_is_advertised_from_version_0(broker: Server) -> None:
    """librdkafka only compresses when Produce is advertised from version 0, although it sends newer versions."""
    assert advertised(broker)[0][0] == 0


def test_the_broker_release_can_be_inferred(broker: Server) -> None:
    """kafka-python and others infer the release from the advertised versions, which must match a real release."""
    release = BrokerVersionData(api_versions=advertised(broker)).broker_version
    assert release >= (3, 9)


def test_responses_are_in_the_order_of_requests(broker: Server, connection: RawConnection, name: str) -> None:
    """A waiting fetch delays later requests on its connection, and not those on other connections."""
    create_topic(broker, name)
    waiting = fetch_request(name, 0, bytes_min=1, wait_ms=20_000)
    behind = [MetadataRequest(topics=[]) for _ in range(5)]
    connection.send(waiting, 11)
    for request in behind:
        connection.send(request, 8)
    with RawConnection(broker.address) as other:
        assert produce(other, name, batch(numbered(1))).error_code == 0
    assert numbers(fetched(connection.receive(waiting)).records) == [0]
    for request in behind:
        assert len(connection.receive(request).brokers) == 1


def test_acks_0_gets_no_response(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    for i in range(5):
        connection.send(produce_request(name, batch(numbered(1, start=i)), acks=0), 7)
    assert numbers(fetch(connection, name, 0, bytes_min=1, wait_ms=5000).records) == list(range(5))


def test_an_unknown_topic_with_acks_0_ends_the_connection(connection: RawConnection, name: str) -> None:
    """The only way to report an error to a producer with acks=0."""
    connection.send(produce_request(name, batch(numbered(1)), acks=0), 7)
    assert connection.is_ended()


@pytest.mark.parametrize("payload", [
    pytest.param(frame(flexible_header(1, 99, 1)), id="an unsupported version"),
    pytest.param(frame(flexible_header(999, 0, 1)), id="an unknown API"),
    pytest.param(frame(struct.pack(">hhih", 3, 1, 1, -1) + b"\x7f\xff\xff\xff"), id="two thousand million topics"),
    pytest.param(frame(struct.pack(">hhih", 3, 8, 1, -1) + b"\0\0\0\1"), id="a body that ends early"),
    pytest.param(struct.pack(">i", -5), id="a negative size"),
    pytest.param(struct.pack(">i", 2_000_000_000), id="a size over the limit"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another protocol"),
])
def test_a_malformed_request_closes_only_its_connection(broker: Server, connection: RawConnection, payload: bytes) -> None:
    with RawConnection(broker.address) as odd:
        odd.send_bytes(payload)
        assert odd.is_ended()
    assert len(connection.call(MetadataRequest(topics=[]), 8).brokers) == 1
