"""A broker that serves the requests of an earlier release of Kafka, with clients that negotiate versions."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.metadata import MetadataRequest

from tests.support.raw import RawConnection, frame_of
from tests.support.waiting import PATIENCE_S
from tests.testing.exchanges import EXCHANGES, TOPICS
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.testing import Kafka, KitError
from txbroker.testing.kafka_releases import RELEASES, release_of
from txbroker.wire.schema import VersionRange

UNSUPPORTED_VERSION = 35
OTHERS = range(76, 100)  # of KRaft's quorums, and of share and streams groups


@pytest.mark.parametrize("name", RELEASES)
def test_the_ranges_of_a_release(name: str) -> None:
    """As kafka-python has them, but for requests that no client sends to this broker."""
    expected = BROKER_API_VERSIONS[tuple(map(int, name.split(".")))]
    assert release_of(name).ranges == {key: VersionRange(*each) for key, each in expected.items() if key not in OTHERS}
    assert release_of(f"{name}.1").name == name


@pytest.mark.parametrize("text", ["5.0", "2", "2.8-SNAPSHOT", "0.10", "", "02.8"])
def test_there_is_no_such_release(text: str) -> None:
    with pytest.raises(KitError, match=r"as_version is '.*'; it must be a release of Kafka from 0.11 to 4.3, such as 2.8"):
        Kafka(as_version=text)


@pytest.fixture(scope="module", params=["0.11", "2.8", "3.9"])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, Kafka]]:
    with Kafka(as_version=request.param, topics=TOPICS) as running:
        yield request.param, running


@pytest.mark.extended
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_clients_negotiate(kafka: tuple[str, Kafka], exchange) -> None:  # type: ignore[no-untyped-def]
    name, running = kafka
    since = running.journal.last()
    assert exchange(running) == b"one"
    release, keys = release_of(name), {name: int(key) for name, key in ApiKey.__members__.items()}
    entries = running.journal.entries(since)
    later = [(entry.api, entry.version) for entry in entries if not release.serves(keys[entry.api], entry.version)]
    assert {api for api, _ in later} <= {"ApiVersions"}, later
    produced = [entry.version for entry in entries.where(api="Produce")]
    assert produced and max(produced) <= release.ranges[keys["Produce"]].high


def ask(port: int, api_key: int, version: int, body: bytes = b"") -> bytes:
    """The answer to a request, without its size; nothing if the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        header = struct.pack(">hhih", api_key, version, 7, -1)
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        found = b""
        while len(found) < 4 or len(found) < 4 + struct.unpack_from(">i", found)[0]:
            received = connection.recv(65_536)
            if not received:
                break
            found += received
        return found[4:]


@pytest.mark.process
def test_what_a_release_does_not_serve() -> None:
    with Kafka(as_version="2.8", topics={"t": 1}) as kafka:
        correlation_id, code, count, key, low, high = struct.unpack(">ihihhh", ask(kafka.port, 18, 4, b"\0"))
        assert (correlation_id, code, count, key, low, high) == (7, UNSUPPORTED_VERSION, 1, 18, 0, 3), "KIP-511"
        body = ask(kafka.port, 18, 0)[4:]
        code, count = struct.unpack_from(">hi", body)
        listed = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6:])}
        assert code == 0 and count == len(listed) and listed[0] == (0, 9) and listed[3] == (0, 11)
        assert 75 not in listed and 68 not in listed, "DescribeTopicPartitions and ConsumerGroupHeartbeat came later"
        assert ask(kafka.port, 75, 0, b"\0") == b"" and ask(kafka.port, 3, 12, b"\0") == b"", "the connection is closed, as by Kafka"
        refused = [(entry.api, entry.version, entry.outcome) for entry in kafka.journal.where(outcome="closed")]
        assert refused == [("DescribeTopicPartitions", 0, "closed"), ("Metadata", 12, "closed")]
        kafka.when("Metadata").times(1).delay(0.2)
        with RawConnection(kafka.bootstrap_servers) as raw:
            asked = MetadataRequest(topics=None)
            raw.send_bytes(frame_of(asked, 5) + frame_of(asked, 12, 2) + frame_of(asked, 5, 3))
            assert struct.unpack_from(">i", raw.receive_frame()) == (1,), "the requests before it are answered first"
            assert raw.is_ended()
        assert kafka.produce("t", "one") == [0], "the methods of Kafka use what the broker itself has"
        with BlockingConnection("127.0.0.1", kafka.port, ClientSettings(client_id="own")) as client:
            assert client.versions[3] == (0, 11)


@pytest.mark.process
def test_a_release_without_ranges_in_its_refusal() -> None:
    with Kafka(as_version="1.1") as kafka:
        assert struct.unpack(">ihi", ask(kafka.port, 18, 3, b"\0\1\1\0")) == (7, UNSUPPORTED_VERSION, 0)


@pytest.mark.extended
def test_a_cluster_as_an_earlier_release() -> None:
    with Kafka(brokers=2, as_version="2.8", topics={"t": 1}) as kafka:
        for broker in kafka.brokers:
            host, _, port = broker.address.rpartition(":")
            with BlockingConnection(host, int(port), ClientSettings(client_id="own")) as client:
                assert client.versions[3] == (0, 11)
        assert kafka.produce("t", "one") == [0], "the brokers use among each other what they have themselves"
