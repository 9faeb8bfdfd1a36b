"""A connection whose client exceeds a quota: the throttle time in its responses, and the pause after them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.api.lone_broker import no_leaders
from tests.api.responses import joined, message
from tests.transport.test_connection import Transport
from txbroker.api.encoded.response_frame import with_throttle_time
from txbroker.api.fetch_item import FetchItem, PartitionRead
from txbroker.api.fetch_response import SESSION_VERSION, FetchResponses
from txbroker.api.produce_response import NUMBERS_VERSION, ProduceResponses
from txbroker.api.registry import Registry, between_brokers
from txbroker.api.request_context import RequestContext
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.node_paths import Entity
from txbroker.connection.protocol import Connection
from txbroker.errors import ErrorCode
from txbroker.log.log_results import Appended
from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.schema import Request

TOPIC_ID = bytes(range(16))
ALL = Entity("clients", "<default>")


class Handler:
    def __init__(self, request: type[Request], answer: Callable[[Any], Any]) -> None:
        self.request = request
        self.overlaps = request is ProduceRequest
        self._answer = answer

    def __call__(self, request: Any, context: RequestContext) -> Any:
        return self._answer(request)


class Peer:
    """A client with quotas. Its requests are taken when the connection takes them."""

    def __init__(self, *handlers: Any, **limits: str) -> None:
        self.clock = Clock()
        quotas = ClientQuotas(self.clock, sample_count=11, sample_s=1)
        quotas.configure(ALL, limits)
        self.transport = Transport()
        self.connection = Connection(Registry(handlers, quotas=quotas))
        self.connection.makeConnection(self.transport)

    def send(self, request: Request, version: int, number: int) -> bool:
        body = encode_bytes(request, version)
        frame = (request_prefix(type(request), version, number, "c", len(body)) + body)[4:]
        return self.connection.frame_received(memoryview(bytearray(frame)))

    def produce(self, number: int, size: int, acks: int = 1) -> bool:
        data = PartitionProduceData(index=0, records=b"r" * size)
        request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
        return self.send(request, 8, number)

    def beat(self, number: int) -> bool:
        return self.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3, number)

    def throttle_times(self, response: type[Any], version: int) -> list[tuple[int, int]]:
        data = joined(self.connection.take_output())
        found = []
        while data:
            size, number = struct.unpack_from(">ii", data)
            found.append((number, decode(response, version, data[8 : 4 + size]).throttle_time_ms))
            data = data[4 + size :]
        return found


def done(request: Any) -> ProduceResponse:
    return ProduceResponse(responses=[])


def test_a_producer_gets_its_response_at_once_and_pauses() -> None:
    peer = Peer(Handler(ProduceRequest, done), producer_byte_rate="100")
    assert peer.produce(1, 100) and not peer.connection.full
    assert peer.produce(2, 2000)
    ((_, none), (_, throttle_ms)) = peer.throttle_times(ProduceResponse, 8)
    assert none == 0 and throttle_ms > 10_000
    assert peer.connection.full and not peer.produce(3, 1)
    peer.clock.advance((throttle_ms - 1) / 1000)
    assert peer.connection.full and peer.transport.flushes == 0
    peer.clock.advance(0.002)
    assert not peer.connection.full and peer.transport.flushes == 1
    peer.clock.advance(11)
    assert peer.produce(3, 1)
    assert peer.throttle_times(ProduceResponse, 8) == [(3, 0)]


def test_a_producer_without_acks_pauses_too() -> None:
    peer = Peer(Handler(ProduceRequest, lambda request: None), producer_byte_rate="100")
    assert peer.produce(1, 2000, acks=0)
    assert peer.connection.full and peer.connection.output_bytes == 0


def test_a_response_that_comes_later_begins_the_pause() -> None:
    waiting: list[Deferred[ProduceResponse]] = []

    def wait(request: Any) -> Deferred[ProduceResponse]:
        waiting.append(Deferred())
        return waiting[-1]

    peer = Peer(Handler(ProduceRequest, wait), producer_byte_rate="100")
    assert peer.produce(1, 2000) and peer.produce(2, 1) and not peer.connection.full
    waiting[0].callback(done(None))
    assert not peer.produce(3, 1)
    waiting[1].callback(done(None))
    (_, first), (_, second) = peer.throttle_times(ProduceResponse, 8)
    assert 0 < first <= second, "requests that were taken are answered during the pause"
    peer.clock.advance(first / 1000)
    assert peer.connection.full, "the longer pause counts"
    peer.clock.advance(second / 1000)
    assert not peer.connection.full


def test_the_time_of_requests_of_clients_counts_and_that_of_brokers_does_not() -> None:
    def slow(request: Any) -> HeartbeatResponse:
        peer.clock.advance(2)
        return HeartbeatResponse(error_code=0)

    handler = Handler(HeartbeatRequest, slow)
    peer = Peer(handler, request_percentage="10")
    assert peer.beat(1)
    assert peer.throttle_times(HeartbeatResponse, 3) == [(1, 1000)]
    assert not peer.beat(2)
    handler.is_exempt = between_brokers  # type: ignore[attr-defined]
    peer = Peer(handler, request_percentage="10")
    assert peer.beat(1) and peer.beat(2)
    assert peer.throttle_times(HeartbeatResponse, 3) == [(1, 0), (2, 0)]


def test_a_pause_ends_with_its_connection() -> None:
    peer = Peer(Handler(ProduceRequest, done), producer_byte_rate="100")
    peer.produce(1, 2000)
    peer.connection.connectionLost(Failure(ConnectionResetError()))
    assert peer.clock.getDelayedCalls() == []


@pytest.mark.parametrize("version", range(NUMBERS_VERSION, ProduceRequest.versions.high + 1))
def test_the_throttle_time_of_an_encoded_produce_response(version: int) -> None:
    topic = TopicProduceData(name="topic", topic_id=TOPIC_ID, partition_data=[])
    appended = Appended(5, 5, 6, 7)
    plain = ProduceResponses().encoded(version, 1, [(topic, [(PartitionProduceData(index=3, records=None), (None, appended))])])
    expected = message(plain, ProduceRequest, version)
    expected.throttle_time_ms = 987654
    assert message(with_throttle_time(plain, 987654, 0, flexible=version in ProduceRequest.flexible), ProduceRequest, version) == expected


@pytest.mark.parametrize("records", [b"", b"records"])
@pytest.mark.parametrize("version", range(SESSION_VERSION, FetchRequest.versions.high + 1))
def test_the_throttle_time_of_an_encoded_fetch_response(version: int, records: bytes) -> None:
    item = FetchItem("topic", TOPIC_ID, FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1))
    read = PartitionRead(5, 6, 7, records, len(records))
    plain = FetchResponses(no_leaders(), Counter(), lambda key, read: None).encoded(version, 1, 9, {item: read})
    expected = message(plain, FetchRequest, version)
    assert (expected.error_code, expected.responses[0].topic_id in (TOPIC_ID, NULL_TOPIC_ID)) == (ErrorCode.NONE, True)
    expected.throttle_time_ms = 987654
    assert message(with_throttle_time(plain, 987654, 1, flexible=version in FetchRequest.flexible), FetchRequest, version) == expected
