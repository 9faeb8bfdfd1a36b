"""The protocol of one connection without a socket: order, failures, limits, malformed requests."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from tests.api.responses import joined
from tests.support.examples import examples
from txbroker.api.produce import ProduceHandler
from txbroker.api.registry import Registry
from txbroker.api.request_context import RequestContext, Session
from txbroker.connection.protocol import Connection
from txbroker.connection.response_order import IN_FLIGHT_MAX
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.repeated_lines import RepeatedLines
from txbroker.transport import other_protocols
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.schema import Request, Response

DONE = Failure(ConnectionDone())


class Heartbeats:
    """Responds with `answer(request, context)`, and to failures with their code. Requests overlap, as Produce and Fetch."""

    request: type[Request] = HeartbeatRequest
    overlaps = True

    def __init__(self, answer: Callable[[HeartbeatRequest, RequestContext], Any]) -> None:
        self.answer = answer

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Any:
        return self.answer(request, context)

    def failed(self, request: HeartbeatRequest, context: RequestContext, error: BrokerError) -> Any:
        return HeartbeatResponse(error_code=error.code)


class Produces:
    """As Heartbeats, without a response to failures."""

    request: type[Request] = ProduceRequest

    def __init__(self, answer: Callable[[ProduceRequest, RequestContext], Any]) -> None:
        self.answer = answer

    def __call__(self, request: ProduceRequest, context: RequestContext) -> Any:
        return self.answer(request, context)


class Overlapping(Produces):
    """As Produces, and may be called while others are in flight."""

    overlaps = True

    @staticmethod
    def is_answered(request: ProduceRequest) -> bool:
        return request.acks != 0


class WithoutFailures:
    """As Heartbeats, without a response to failures."""

    request: type[Request] = HeartbeatRequest
    overlaps = True

    def __init__(self, answer: Callable[[HeartbeatRequest, RequestContext], Any]) -> None:
        self.answer = answer

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Any:
        return self.answer(request, context)


class ApiVersionsOfOne:
    request: type[Request] = ApiVersionsRequest

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])


class Transport:
    """Records the calls of a connection, whose client need not log in."""

    session = Session(peer_host="10.0.0.9", peer_port=5000, local_host="10.0.0.1", local_port=9092, listener="L", number=7)

    def __init__(self) -> None:
        self.flushes = 0
        self.closing = self.disconnecting = False

    def limit_frames(self, high: int | None, low: int = 8) -> None:
        raise AssertionError("frames have the size that every connection takes")

    def expect_login(self, message_bytes_max: int) -> None:
        raise AssertionError("this client need not log in")

    def logged_in(self) -> None:
        raise AssertionError("this client does not log in")

    def flush(self) -> None:
        self.flushes += 1

    def loseConnection(self) -> None:
        self.closing = self.disconnecting = True


class Peer:
    """A connection and its peer."""

    def __init__(self, *handlers: Any, clock: Callable[[], float] | None = None) -> None:
        self.transport = Transport()
        self.connection = Connection(Registry(handlers, clock=clock))
        self.connection.makeConnection(self.transport)

    def send_raw(self, frame: bytes) -> bool:
        """Whether the connection accepted the frame."""
        buffer = bytearray(frame)
        taken = self.connection.frame_received(memoryview(buffer))
        # The receive buffer is reused after the call returns.
        buffer[:] = b"\xee" * len(buffer)
        return taken

    def send(self, request: Request, version: int, correlation_id: int, client_id: str | None = "me") -> bool:
        body = encode_bytes(request, version)
        return self.send_raw((request_prefix(type(request), version, correlation_id, client_id, len(body)) + body)[4:])

    def beat(self, correlation_id: int, version: int = 3, client_id: str | None = "me") -> bool:
        return self.send(HeartbeatRequest(group_id="g", generation_id=correlation_id, member_id="m"), version, correlation_id, client_id)

    def replies(self) -> list[tuple[int, bytes]]:
        """Correlation id and remaining bytes of each response that is due."""
        announced = self.connection.output_bytes
        data = joined(self.connection.take_output())
        assert len(data) == announced
        found = []
        while data and data != other_protocols.ANSWER:
            size, correlation_id = struct.unpack_from(">ii", data)
            found.append((correlation_id, data[8 : 4 + size]))
            assert len(data) >= 4 + size
            data = data[4 + size :]
        return found


def answered(reply: tuple[int, bytes], version: int = 3) -> tuple[int, int]:
    body = reply[1]
    if version >= 4:
        assert body[0] == 0
        body = body[1:]
    return reply[0], decode(HeartbeatResponse, version, body).error_code


def generation(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


def test_immediate_responses_are_sent_at_once() -> None:
    peer = Peer(Heartbeats(generation))
    for n in (5, 6, 7):
        peer.beat(n)
    assert [answered(reply) for reply in peer.replies()] == [(5, 5), (6, 6), (7, 7)]
    assert peer.replies() == []


def test_each_request_has_the_client_id_of_its_own_header() -> None:
    seen: list[tuple[str, str | None]] = []

    def note(request: Any, context: RequestContext) -> None:
        seen.append((type(request).__name__, context.client_id))

    produces = Produces(note)
    produces.release_records = ProduceHandler.release_records  # type: ignore[attr-defined]
    peer = Peer(produces, Heartbeats(note))
    data = PartitionProduceData(index=0, records=b"r" * 100)
    produce = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    peer.send(produce, 3, 1, "b")
    peer.beat(2, client_id="a")
    peer.send(produce, 3, 3, "b")
    peer.beat(4, client_id="a")
    assert seen == [("ProduceRequest", "b"), ("HeartbeatRequest", "a")] * 2


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", [None, "", "me", "x" * 300, "ümläut"])
def test_handlers_receive_the_request_context(version: int, client_id: str | None) -> None:
    seen: list[RequestContext] = []

    def note(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        seen.append(context)
        return generation(request, context)

    peer = Peer(Heartbeats(note))
    for n in (1, 2):
        peer.beat(n, version, client_id)
    peer.beat(3, version, "another")
    assert [(c.api_key, c.api_version, c.correlation_id, c.client_id) for c in seen] == [
        (12, version, 1, client_id),
        (12, version, 2, client_id),
        (12, version, 3, "another"),
    ]
    assert (seen[0].peer_host, seen[0].peer_port, seen[0].local_host, seen[0].local_port) == ("10.0.0.9", 5000, "10.0.0.1", 9092)
    assert (seen[0].listener, seen[0].principal) == ("L", "User:ANONYMOUS")
    assert seen[0].connection_id == "10.0.0.1:9092-10.0.0.9:5000-7"
    assert [answered(reply, version) for reply in peer.replies()] == [(1, 1), (2, 2), (3, 3)]


def test_headers_of_several_versions_on_one_connection() -> None:
    peer = Peer(Heartbeats(generation))
    for n, version in enumerate([3, 4, 3, 4, 4, 0, 4]):
        peer.beat(n, version)
        assert [answered(reply, version) for reply in peer.replies()] == [(n, n)]


@settings(max_examples=examples(60))
@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_responses_are_sent_in_the_order_of_requests(order: list[int], at_once: set[int]) -> None:
    waiting: dict[int, Deferred[Any]] = {}

    def answer(request: HeartbeatRequest, context: RequestContext) -> Any:
        n = request.generation_id
        if n in at_once:
            return succeed(generation(request, context)) if n % 2 else generation(request, context)
        waiting[n] = Deferred()
        return waiting[n]

    peer = Peer(Heartbeats(answer))
    got = []
    for n in range(8):
        peer.beat(n)
        got += peer.replies()
    for n in order:
        if n in waiting:
            flushes = peer.transport.flushes
            waiting.pop(n).callback(HeartbeatResponse(error_code=n))
            new = peer.replies()
            assert (peer.transport.flushes > flushes) == bool(new)
            got += new
    assert [answered(reply) for reply in got] == [(n, n) for n in range(8)]
    assert peer.connection.in_flight == 0


VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def test_a_serialized_request_waits_for_all_responses_before_it() -> None:
    waiting: list[Deferred[Any]] = [Deferred(), Deferred()]
    peer = Peer(Heartbeats(lambda request, context: waiting[request.generation_id]), ApiVersionsOfOne())
    assert peer.beat(0)
    assert peer.beat(1)
    assert not peer.send(VERSIONS, 3, 2)
    assert peer.connection.full
    waiting[1].callback(HeartbeatResponse(error_code=1))
    assert peer.connection.full
    assert peer.transport.flushes == 0
    waiting[0].callback(HeartbeatResponse(error_code=0))
    assert not peer.connection.full
    assert peer.transport.flushes == 1, "the transport offers the frame again"
    assert peer.send(VERSIONS, 3, 2)
    assert [reply[0] for reply in peer.replies()] == [0, 1, 2]


def test_requests_wait_for_a_serialized_request() -> None:
    alone: Deferred[Any] = Deferred()

    class Waiting(ApiVersionsOfOne):
        def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> Any:
            return alone

    peer = Peer(Heartbeats(generation), Waiting())
    assert peer.send(VERSIONS, 3, 1)
    assert not peer.connection.full, "the connection is still read, so that its end is noticed"
    assert not peer.beat(2)
    assert peer.connection.full
    alone.callback(ApiVersionsResponse(error_code=0, api_keys=[]))
    assert not peer.connection.full
    assert peer.beat(2)
    assert peer.beat(3)
    assert [reply[0] for reply in peer.replies()] == [1, 2, 3]


def test_a_malformed_request_is_refused_after_the_responses_before_it() -> None:
    waiting: Deferred[Any] = Deferred()
    peer = Peer(Heartbeats(lambda request, context: waiting))
    peer.beat(1)
    assert peer.send_raw(NONSENSE)
    assert not peer.transport.closing
    waiting.callback(HeartbeatResponse(error_code=0))
    assert [answered(reply) for reply in peer.replies()] == [(1, 0)]
    assert peer.transport.closing


NONSENSE = struct.pack(">hhih", 99, 0, 1, -1)
UNSERVED = struct.pack(">hhih", 12, 99, 1, -1)  # Heartbeat v99
SHORT = struct.pack(">hhih", 12, 3, 1, -1)  # Heartbeat v3 without a body
TLS_HELLO = 0x16030100  # as a size


def _unanswered(peer: Peer) -> None:
    peer.send(ProduceRequest(acks=0, timeout_ms=0, topic_data=[]), 9, 3)


# What closes a connection while two requests are in flight.
ENDS: dict[str, Callable[[Peer], Any]] = {
    "an unknown API": lambda peer: peer.send_raw(NONSENSE),
    "an unserved version": lambda peer: peer.send_raw(UNSERVED),
    "a request that cannot be decoded": lambda peer: peer.send_raw(SHORT),
    "a request that is too large": lambda peer: peer.connection.bad_size(2000, 1000),
    "a request that is too small": lambda peer: peer.connection.bad_size(-5, 1000),
    "another protocol": lambda peer: peer.connection.bad_size(TLS_HELLO, 1000),
    "a failed request without a response": _unanswered,
    "a client that sends no more": lambda peer: peer.connection.input_ended(),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_closes_a_connection_waits_for_the_responses_before_it(end: str) -> None:
    """Kafka serves one request after the other. A client that misses the response to an append sends its records again."""
    waiting: dict[int, Deferred[Any]] = {1: Deferred(), 2: Deferred()}
    handled: list[int] = []

    def answer(request: HeartbeatRequest, context: RequestContext) -> Any:
        handled.append(request.generation_id)
        return waiting[request.generation_id]

    peer = Peer(Heartbeats(answer), Overlapping(raising(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))))
    peer.beat(1)
    peer.beat(2)
    ENDS[end](peer)
    assert peer.connection.full
    assert not peer.transport.closing
    peer.beat(3)
    waiting[2].callback(HeartbeatResponse(error_code=2))
    assert peer.replies() == []
    assert not peer.transport.closing
    waiting[1].callback(HeartbeatResponse(error_code=1))
    assert [answered(reply) for reply in peer.replies()] == [(1, 1), (2, 2)]
    assert peer.transport.closing
    peer.beat(4)
    assert handled == [1, 2], "nothing after the end is handled"
    assert peer.connection.full


@pytest.mark.parametrize("way", ["fails", "cannot be encoded"])
def test_a_request_that_fails_later_ends_the_connection_in_its_place(way: str, caplog: pytest.LogCaptureFixture) -> None:
    waiting: dict[int, Deferred[Any]] = {number: Deferred() for number in range(4)}
    peer = Peer(WithoutFailures(lambda request, context: waiting[request.generation_id]))
    for number in waiting:
        peer.beat(number)
    if way == "fails":
        waiting[2].errback(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    else:
        waiting[2].callback(HeartbeatResponse(error_code=1 << 20))
    peer.beat(4)
    waiting[3].callback(HeartbeatResponse(error_code=3))
    waiting[0].callback(HeartbeatResponse(error_code=0))
    assert not peer.transport.closing
    waiting[1].callback(HeartbeatResponse(error_code=1))
    assert peer.transport.closing
    assert [answered(reply) for reply in peer.replies()] == [(0, 0), (1, 1)], "no response takes the place of a missing one"
    assert sum("closing the connection" in record.message for record in caplog.records) == 1
    peer.connection.connectionLost(DONE)


def test_no_request_is_handled_after_one_without_a_response_that_waits() -> None:
    """It may fail, which ends the connection."""
    waiting: Deferred[Any] = Deferred()
    peer = Peer(Heartbeats(generation), Overlapping(lambda request, context: waiting))
    _unanswered(peer)
    assert not peer.beat(1)
    waiting.errback(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert peer.transport.closing
    assert peer.replies() == []


def test_a_connection_that_ends_is_lost_before_its_last_response() -> None:
    cancelled: list[int] = []
    peer = Peer(Heartbeats(lambda request, context: Deferred(lambda _: cancelled.append(request.generation_id))))
    peer.beat(1)
    peer.send_raw(NONSENSE)
    peer.connection.connectionLost(DONE)
    assert cancelled == [1]


def test_a_handler_may_return_no_response() -> None:
    later: list[Deferred[Any]] = [Deferred(), Deferred()]
    answers: list[Any] = [None, later[0], None, later[1], HeartbeatResponse(error_code=9)]
    peer = Peer(Heartbeats(lambda request, context: answers[request.generation_id]))
    for n in range(5):
        peer.beat(n)
    assert peer.replies() == []
    later[0].callback(None)
    assert peer.replies() == []
    later[1].callback(None)
    assert [answered(reply) for reply in peer.replies()] == [(4, 9)]
    assert not peer.transport.closing


def raising(error: Exception) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        raise error

    return answer


def failing(error: Exception) -> Callable[[Any, Any], Any]:
    return lambda request, context: succeed(request).addCallback(raising(error), context)


@pytest.mark.parametrize("way", [raising, failing])
def test_a_failed_request_gets_its_error_code(way: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(way(BrokerError(ErrorCode.REBALANCE_IN_PROGRESS))))
    peer.beat(1)
    assert [answered(reply) for reply in peer.replies()] == [(1, ErrorCode.REBALANCE_IN_PROGRESS)]
    assert not peer.transport.closing
    assert not caplog.records


@pytest.mark.parametrize("way", [raising, failing])
def test_an_internal_error_is_logged_and_answered(way: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(way(ZeroDivisionError("oh"))))
    peer.beat(1)
    peer.beat(2)
    assert [answered(reply) for reply in peer.replies()] == [(1, -1), (2, -1)]
    assert not peer.transport.closing
    assert caplog.records[0].message == "internal error handling Heartbeat v3 from 10.0.0.9:5000 (client id 'me')"
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is ZeroDivisionError
    assert caplog.records[0].exc_info[2] is not None


@pytest.mark.parametrize("wrong", [HeartbeatResponse(error_code=1 << 20), ProduceResponse(responses=[]), "nonsense"])
@pytest.mark.parametrize("wait", [False, True])
def test_a_response_that_cannot_be_encoded_is_an_internal_error(wrong: Any, wait: bool, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(lambda request, context: succeed(wrong) if wait else wrong))
    peer.beat(1)
    assert [answered(reply) for reply in peer.replies()] == [(1, -1)]
    assert [record.message for record in caplog.records] == ["internal error handling Heartbeat v3 from 10.0.0.9:5000 (client id 'me')"]


@pytest.mark.parametrize("way", [raising, failing])
@pytest.mark.parametrize(("error", "logged"), [(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), 1), (ZeroDivisionError(), 2)])
def test_an_error_that_the_response_cannot_carry_closes_the_connection(
    way: Callable[..., Any], error: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(Heartbeats(generation), Produces(way(error)))
    peer.beat(1)
    peer.send(ProduceRequest(acks=0, timeout_ms=0, topic_data=[]), 9, 2)
    peer.beat(3)
    assert [answered(reply) for reply in peer.replies()] == [(1, 1)]
    assert peer.transport.closing
    assert peer.connection.full
    assert len(caplog.records) == logged
    assert "Produce v9 failed with" in caplog.records[-1].message


def test_an_error_while_encoding_an_error_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heartbeats):
        def failed(self, request: Any, context: Any, error: BrokerError) -> Any:
            return self.answer(request, context) if error.code == -1 else HeartbeatResponse(error_code=1 << 20)

    for error in (ZeroDivisionError(), BrokerError(ErrorCode.INVALID_REQUEST)):
        peer = Peer(Broken(raising(error)))
        peer.beat(1)
        assert peer.replies() == []
        assert peer.transport.closing


@pytest.mark.parametrize("way", [raising, failing])
def test_a_protocol_error_of_a_handler_closes_the_connection(way: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(way(ProtocolError("this cannot be"))))
    peer.beat(1)
    assert peer.replies() == []
    assert peer.transport.closing
    assert [record.message for record in caplog.records] == [
        "closing the connection of 10.0.0.9:5000 (client id 'me'): Heartbeat v3: this cannot be"
    ]


BEAT = struct.pack(">hhih2sh1sih1sh", 12, 3, 1, 2, b"me", 1, b"g", 1, 1, b"m", -1)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack(">hhih", 99, 0, 1, -1), "no such API key here: 99 (version 0)"),
        (struct.pack(">hhih", -1, -1, 1, -1), "no such API key here: -1 (version -1)"),
        (struct.pack(">hhih", 12, 5, 1, -1), "Heartbeat v5 is not served, only versions 0-4"),
        (struct.pack(">hhih", 12, -1, 1, -1), "Heartbeat v-1 is not served, only versions 0-4"),
        (struct.pack(">hhi", 12, 3, 1), "Heartbeat v3: "),
        (struct.pack(">hhih", 12, 3, 1, 30000), "Heartbeat v3: "),
        (struct.pack(">hhih2s", 12, 3, 1, 2, b"\xff\xfe"), "Heartbeat v3: "),
        *((BEAT[:end], "Heartbeat v3: ") for end in range(8, len(BEAT))),
    ],
)
def test_a_malformed_request_closes_the_connection_with_one_log_line(frame: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(generation))
    peer.beat(1, client_id=None)
    peer.send_raw(frame)
    peer.send_raw(frame)
    peer.beat(2)
    assert [answered(reply) for reply in peer.replies()] == [(1, 1)]
    assert peer.transport.closing
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith("closing the connection of 10.0.0.9:5000")
    assert why in caplog.records[0].message


def test_bytes_after_a_request_are_ignored() -> None:
    peer = Peer(Heartbeats(generation))
    peer.send_raw(BEAT + b"\0\0\0")
    assert [answered(reply) for reply in peer.replies()] == [(1, 1)]


@settings(max_examples=examples(300))
@given(st.binary(min_size=8, max_size=60) | st.tuples(st.sampled_from([0, 12, 18]), st.integers(-1, 14), st.binary(min_size=4)).map(
    lambda parts: struct.pack(">hh", *parts[:2]) + parts[2]
))
def test_any_bytes_are_handled_without_an_exception(frame: bytes) -> None:
    peer = Peer(Heartbeats(generation), ApiVersionsOfOne(), Produces(lambda request, context: ProduceResponse(responses=[])))
    peer.send_raw(frame)
    assert peer.transport.closing != bool(peer.replies())


def test_an_invalid_size_closes_the_connection_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Heartbeats(generation))
    peer.beat(1)
    peer.connection.bad_size(-5, 1000)
    assert peer.transport.closing
    assert [record.message for record in caplog.records] == [
        "closing the connection of 10.0.0.9:5000 (client id 'me'): a request of -5 bytes (socket.request.max.bytes is 1000)"
    ]
    assert [answered(reply) for reply in peer.replies()] == [(1, 1)]


@pytest.mark.parametrize("version", [5, 100, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    first: Deferred[Any] = Deferred()
    peer = Peer(ApiVersionsOfOne(), Heartbeats(lambda request, context: first))
    peer.beat(1)
    assert peer.send_raw(struct.pack(">hhi", 18, version, 2) + b"whatever a later version has here")
    assert peer.replies() == []
    first.callback(HeartbeatResponse(error_code=0))
    replies = peer.replies()
    assert [reply[0] for reply in replies] == [1, 2]
    found = decode(ApiVersionsResponse, 0, replies[1][1])
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in found.api_keys] == [(18, 0, 4)]
    assert not peer.transport.closing


@pytest.mark.parametrize(
    ("requests", "closed_by_broker", "warned"),
    [
        (["versions"], False, True), (["versions", "versions"], False, True),
        (["versions"], True, False), (["versions", "heartbeat"], False, False), (["heartbeat"], False, False), ([], False, False),
    ],
)  # fmt: skip
def test_a_client_that_closes_after_api_versions_is_logged(
    requests: list[str], closed_by_broker: bool, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(ApiVersionsOfOne(), Heartbeats(lambda request, context: HeartbeatResponse(error_code=0)))
    for number, request in enumerate(requests):
        if request == "versions":
            peer.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, number)
        else:
            peer.beat(number)
    if closed_by_broker:
        peer.transport.loseConnection()
    peer.connection.connectionLost(DONE)
    lines = [record.message for record in caplog.records]
    assert [line.partition(":5000 ")[2].partition(" and")[0] for line in lines] == ["(client id 'me') sent only ApiVersions"] * warned


def test_the_response_to_api_versions_has_the_old_header() -> None:
    peer = Peer(ApiVersionsOfOne())
    peer.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 8)
    ((correlation_id, body),) = peer.replies()
    assert correlation_id == 8
    assert decode(ApiVersionsResponse, 4, body).error_code == 0


def test_records_are_writable_views_into_the_frame() -> None:
    seen: list[bytes] = []

    def stamp(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        records[:2] = b"!!"
        seen.append(bytes(records))
        return ProduceResponse(responses=[])

    peer = Peer(Produces(stamp))
    partition = PartitionProduceData(index=0, records=b"some records")
    peer.send(ProduceRequest(acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 7, 1)
    assert seen == [b"!!me records"]


def test_requests_that_wait_count_without_their_records() -> None:
    waiting: list[tuple[ProduceRequest, Deferred[Any]]] = []

    def wait(request: ProduceRequest, context: RequestContext) -> Deferred[Any]:
        waiting.append((request, Deferred()))
        return waiting[-1][1]

    class Appends(Produces):
        overlaps = True
        release_records = staticmethod(ProduceHandler.release_records)

    def batches(topic: str, partitions: int, size: int) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=bytes(size)) for index in range(partitions)]
        return ProduceRequest(acks=-1, timeout_ms=0, topic_data=[TopicProduceData(name=topic, partition_data=data)])

    peer = Peer(Appends(wait))
    for n, partitions in enumerate([1, 1, 2, 1, 2]):
        peer.send(batches("t", partitions, 600_000), 7, n)
        assert not peer.connection.full
    assert all(not data.records for request, _ in waiting for data in request.topic_data[0].partition_data), "the records are released"
    peer.send(batches("t" * 30_000, 1, 1), 7, 5)
    assert not peer.connection.full
    for n in range(40):
        peer.send(batches("t" * 30_000, 1, 1), 7, 6 + n)
    assert peer.connection.full, "the kept bytes of requests are bounded"
    for _, deferred in waiting:
        deferred.callback(ProduceResponse(responses=[]))
    assert len(peer.replies()) == 46
    assert not peer.connection.full


def test_a_connection_with_many_requests_in_flight_is_full() -> None:
    waiting: list[Deferred[Response]] = []

    def wait(request: HeartbeatRequest, context: RequestContext) -> Deferred[Response]:
        waiting.append(Deferred())
        return waiting[-1]

    peer = Peer(Heartbeats(wait))
    for n in range(IN_FLIGHT_MAX):
        assert not peer.connection.full
        peer.beat(n)
    assert peer.connection.full
    waiting[1].callback(HeartbeatResponse(error_code=0))
    assert peer.connection.full
    assert peer.transport.flushes == 0
    waiting[0].callback(HeartbeatResponse(error_code=0))
    assert not peer.connection.full
    assert peer.transport.flushes == 1
    assert peer.connection.in_flight == IN_FLIGHT_MAX - 2


def test_a_connection_with_much_output_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.connection.response_order.OUTPUT_BYTES_MAX", 90)
    later: list[Deferred[Any]] = [Deferred()]
    peer = Peer(Heartbeats(lambda request, context: later.pop() if later else generation(request, context)))
    first = later[0]
    for n in range(8):
        peer.beat(n)
    assert peer.connection.full
    assert peer.connection.output_bytes == 0
    first.callback(HeartbeatResponse(error_code=0))
    assert peer.connection.full
    assert len(peer.replies()) == 8
    assert not peer.connection.full
    for n in range(8):
        peer.beat(n)
    assert peer.connection.full
    peer.replies()
    assert not peer.connection.full


def test_operations_are_cancelled_when_the_connection_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    cancelled: list[int] = []
    waiting: list[Deferred[Any]] = []

    def bad_cancel(deferred: Deferred[Any]) -> None:
        raise ZeroDivisionError

    def wait(request: HeartbeatRequest, context: RequestContext) -> Deferred[Any]:
        n = request.generation_id
        deferred: Deferred[Any] = Deferred(bad_cancel if n == 1 else lambda _: cancelled.append(n))
        waiting.append(deferred)
        deferred.addErrback(lambda failure: failure.trap(CancelledError) and failure)
        return deferred

    peer = Peer(Heartbeats(wait))
    for n in range(4):
        peer.beat(n)
    waiting[2].callback(HeartbeatResponse(error_code=0))
    peer.connection.connectionLost(DONE)
    assert cancelled == [0, 3]
    assert [record.message for record in caplog.records] == ["internal error cancelling a request from 10.0.0.9:5000 (client id 'me')"]
    waiting[1].callback(HeartbeatResponse(error_code=0))
    assert peer.transport.flushes == 0
    assert peer.connection.in_flight == 0
    assert peer.connection.full


def test_the_log_has_a_line_a_minute_for_each_address_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    registry = Registry(lines=RepeatedLines(lambda: now_s))

    def refused(size: int = 2000) -> list[str]:
        connection = Connection(registry)
        connection.makeConnection(Transport())
        caplog.clear()
        connection.bad_size(size, 1000)
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    line = "closing the connection of 10.0.0.9:5000: a request of 2000 bytes (socket.request.max.bytes is 1000)"
    assert refused() == [line]
    assert refused() == refused() == []
    assert len(refused(-5)) == 1, "another reason"
    now_s = 60.0
    assert refused() == [f"{line} (2 connections more since the last such line)"]
    assert registry.closed == {"request_too_large": 4, "request_too_small": 1}
