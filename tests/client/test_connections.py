"""The connections that commands use, with servers that are no good brokers at the other end, and with a real broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.client.peer import HEARTBEAT, heartbeat_response, requests_in, versions_response
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.client.auto_create import creates_topics
from txbroker.client.blocking_connection import BlockingConnection, connect_to_any
from txbroker.client.client_errors import (
    AuthenticationExpected,
    ClientError,
    Closed,
    ConnectionFailed,
    NotKafka,
    RequestFailed,
    Silent,
    TlsExpected,
    TooOld,
    TopicMissing,
    Unreachable,
)
from txbroker.client.client_machine import ClientSettings
from txbroker.client.config_requests import TOPIC_RESOURCE, describe_configs
from txbroker.client.offset_requests import EARLIEST, LATEST, FoundOffset, list_offsets
from txbroker.client.pipelined_connection import PipelinedConnection
from txbroker.client.topic_leaders import Broker, leaders_in, metadata_request
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.errors import ErrorCode
from txbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.messages.list_offsets import ListOffsetsResponse
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse
from txbroker.wire.messages.write_share_group_state import WriteShareGroupStateRequest

Serve = Callable[[socket.socket], None]
PATIENT = ClientSettings("c")
HASTY = ClientSettings("c", request_timeout_s=0.2)  # for servers that never respond


@contextmanager
def server(serve: Serve) -> Iterator[tuple[str, int]]:
    """A server that gives each connection to `serve`, and closes it afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def negotiate(connection: socket.socket) -> None:
    (sent,) = requests_in(connection.recv(1000))
    connection.sendall(versions_response(sent))


def sends(*data: bytes) -> Serve:
    """Takes the negotiation, and sends this for the request after it."""

    def serve(connection: socket.socket) -> None:
        negotiate(connection)
        connection.recv(1000)
        for part in data:
            connection.sendall(part)

    return serve


def closes_at_once(connection: socket.socket) -> None:
    pass


def says_nothing(connection: socket.socket) -> None:
    connection.settimeout(30)
    while connection.recv(1000):
        pass


def silent_after_negotiation(connection: socket.socket) -> None:
    negotiate(connection)
    says_nothing(connection)


def answers(data: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(data)

    return serve


@pytest.mark.parametrize(("serve", "kind"), [
    (closes_at_once, Closed),
    (says_nothing, Silent),
    (answers(b"HTTP/1.0 400 Bad Request\r\n"), NotKafka),
    (answers(b"\x15\x03\x03\x00\x02\x02\x50"), TlsExpected),
])
def test_servers_that_do_not_negotiate(serve: Serve, kind: type[ConnectionFailed]) -> None:
    with server(serve) as (host, port), pytest.raises(ConnectionFailed) as problem:
        BlockingConnection(host, port, HASTY if kind is Silent else PATIENT)
    assert type(problem.value) is kind


@pytest.mark.parametrize(("serve", "kind"), [
    (silent_after_negotiation, Silent),
    (sends(), AuthenticationExpected),
    (sends(b"\0\0\0\x0bxx"), AuthenticationExpected),
    (sends(b"SSH-2.0-x"), NotKafka),
])
def test_servers_that_do_not_answer_a_request(serve: Serve, kind: type[ConnectionFailed]) -> None:
    with (
        server(serve) as (host, port),
        BlockingConnection(host, port, PATIENT) as connection,
        pytest.raises(ConnectionFailed) as problem,
    ):
        connection.machine.settings = HASTY if kind is Silent else PATIENT
        connection.call(HEARTBEAT)
    assert type(problem.value) is kind


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    with pytest.raises(Unreachable) as problem:
        BlockingConnection(host, port)
    assert isinstance(problem.value.error, ConnectionRefusedError)
    assert str(problem.value) == f"no connection to 127.0.0.1:{port} (Connection refused)"
    with pytest.raises(ClientError, match=r"no connection to .*; no connection to .*; start a broker"):
        connect_to_any([(host, port), (host, port)])


def test_a_response_in_single_bytes() -> None:
    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        negotiate(connection)
        (sent,) = requests_in(connection.recv(1000))
        for byte in heartbeat_response(sent, 27):
            connection.sendall(bytes([byte]))

    with server(serve) as (host, port), BlockingConnection(host, port, ClientSettings("c")) as connection:
        assert connection.call(HEARTBEAT).error_code == 27


def test_several_in_flight_and_responses_that_came_before_the_end() -> None:
    def serve(connection: socket.socket) -> None:
        negotiate(connection)
        data = b""
        while len(requests_in(data)) < 3:
            data += connection.recv(1000)
        first, second, _ = requests_in(data)
        connection.sendall(heartbeat_response(first, 1) + heartbeat_response(second, 2))

    got: list[Any] = []
    with server(serve) as (host, port):
        settings = ClientSettings("c", in_flight_max=3)
        connection: PipelinedConnection[int] = PipelinedConnection(Broker(1, host, port), settings, time.monotonic())
        connection.socket.setblocking(True)
        while not connection.machine.ready:
            connection.write()
            connection.read()
        for number in range(3):
            connection.send(HEARTBEAT, number, time.monotonic())
        assert not connection.machine.ready
        with pytest.raises(Closed):
            while True:
                got += [(each.context, each.response().error_code) for each in connection.read()]
        connection.close()
    assert got == [(0, 1), (1, 2)]
    assert [request.context for request in connection.machine.disconnected(0)] == [2]


# --- a real broker ---


def host_and_port(broker: Server) -> tuple[str, int]:
    host, _, port = broker.address.rpartition(":")
    return host, int(port)


def test_a_real_broker(broker: Server) -> None:
    with BlockingConnection(*host_and_port(broker)) as connection:
        answer: ApiVersionsResponse = connection.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert {api.api_key for api in answer.api_keys} == connection.versions.keys()
        metadata: MetadataResponse = connection.call(MetadataRequest(topics=[]))
        assert len(metadata.brokers) == 1
        old: MetadataResponse = connection.call(MetadataRequest(topics=[]), version_max=4)
        assert old.brokers[0].port == metadata.brokers[0].port
        if connection.version_of(WriteShareGroupStateRequest) is None:  # Apache Kafka 4 has it
            with pytest.raises(TooOld):
                connection.call(WriteShareGroupStateRequest(group_id="g", topics=[]))


def test_leaders_of_a_topic(broker: Server, name: str) -> None:
    addresses = [host_and_port(broker)]
    existing = TopicMetadata(addresses, name, ClientSettings("c"), 0.1, create=True)
    leaders = existing.leaders()
    assert leaders.complete and existing.refresh() == leaders
    assert {leader.port for leader in leaders.by_partition.values() if leader} == {broker.port}
    existing.close()
    missing = TopicMetadata(addresses, f"{name}-missing", ClientSettings("c"), 0.1, create=False)
    with pytest.raises(TopicMissing):
        missing.leaders()
    assert missing.refresh() is None
    missing.close()
    with BlockingConnection(*host_and_port(broker)) as connection:
        response: MetadataResponse = connection.call(metadata_request(name, create=False))
        assert leaders_in(response, "another") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.topics[0].partitions.clear()
        assert leaders_in(response, name) == ErrorCode.LEADER_NOT_AVAILABLE


def test_configurations_and_offsets(broker: Server, name: str) -> None:
    create_topic(broker, name, 2, {"retention.ms": "-1"})
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(3):
            producer.send(name, b"v", partition=1, timestamp_ms=1000 + number).get(10)
    with BlockingConnection(*host_and_port(broker)) as connection:
        configs = describe_configs(connection.call, TOPIC_RESOURCE, name, ["retention.ms", "no.such.key"])
        assert configs == {"retention.ms": "-1"}
        assert describe_configs(connection.call, TOPIC_RESOURCE, name)["retention.ms"] == "-1"
        with pytest.raises(RequestFailed) as refused:
            describe_configs(connection.call, TOPIC_RESOURCE, f"{name}-missing")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert creates_topics(connection) is True
        assert {index: found.offset for index, found in list_offsets(connection.call, name, [0, 1], LATEST).items()} == {0: 0, 1: 3}
        assert list_offsets(connection.call, name, [1], 1001)[1] == FoundOffset(0, 1, 1001)
        assert list_offsets(connection.call, name, [1], 9999)[1].offset == -1
        assert list_offsets(connection.call, name, [7], EARLIEST)[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(NotKafka, match="does not have the requested partitions"):
            list_offsets(lambda request: ListOffsetsResponse(topics=[]), name, [0], LATEST)
