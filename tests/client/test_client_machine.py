"""The client machine: states, negotiation, responses in any fragments, limits, deadlines, and errors by kind."""

from __future__ import annotations

import contextlib
import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.peer import (
    HEARTBEAT,
    connecting_machine,
    heartbeat_response,
    ready_machine,
    take_requests,
    versions_response,
)
from txbroker.client.client_errors import (
    AuthenticationExpected,
    Closed,
    NotKafka,
    Silent,
    TlsExpected,
    TooOld,
    Unreachable,
)
from txbroker.client.client_machine import TRANSITIONS, ClientMachine, ClientSettings, Completed, Event, State
from txbroker.wire.codec import decode
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x50"


def test_the_states_and_what_changes_them() -> None:
    machine: ClientMachine[None] = ClientMachine("b:1", ClientSettings(), lambda: 0.5)
    assert machine.state is State.DISCONNECTED and not machine.ready
    machine.connect_started(0)
    assert machine.state is State.CONNECTING
    machine.connected(1)
    assert machine.state is State.NEGOTIATING and not machine.ready
    (sent,) = take_requests(machine)
    machine.feed(versions_response(sent))
    assert machine.state is State.READY and machine.ready
    assert machine.disconnected(2) == []
    assert machine.state is State.DISCONNECTED
    machine.connect_started(3)
    assert machine.disconnected(4) == []
    assert machine.state is State.DISCONNECTED


def test_an_event_that_a_state_does_not_have_is_a_bug() -> None:
    for state, event in itertools.product(State, Event):
        if (state, event) not in TRANSITIONS:
            machine: ClientMachine[None] = ClientMachine("b:1", ClientSettings(), lambda: 0.5)
            machine.state = state
            with pytest.raises(KeyError):
                machine._change(event)


def test_versions_are_the_newest_that_both_sides_support() -> None:
    machine = ready_machine(versions={HeartbeatRequest.api_key: (1, 3), FetchRequest.api_key: (90, 99)})
    assert machine.version_of(HeartbeatRequest) == 3
    assert machine.version_of(FetchRequest) is None
    assert machine.version_of(ApiVersionsRequest) is None
    machine.send(HEARTBEAT, None, 0)
    machine.send(HEARTBEAT, None, 0, version_max=2)
    assert [sent.version for sent in take_requests(machine)] == [3, 2]
    for call in (
        lambda: machine.send(FetchRequest(topics=[], max_wait_ms=0, min_bytes=0), None, 0),
        lambda: machine.send(HEARTBEAT, None, 0, version_max=0),
    ):
        with pytest.raises(TooOld, match=r"broker:9092 supports no version of (Fetch|Heartbeat) that is known here"):
            call()
    assert not machine.unsent and len(machine.in_flight) == 2, "a request that cannot be sent leaves nothing behind"


def test_a_broker_that_does_not_know_this_version_of_api_versions_is_asked_in_version_0() -> None:
    machine = connecting_machine()
    (first,) = take_requests(machine)
    assert (first.api_key, first.version) == (18, ApiVersionsRequest.versions.high)
    assert machine.feed(versions_response(first, error_code=35)) == []
    (second,) = take_requests(machine)
    assert (second.version, second.correlation_id) == (0, first.correlation_id + 1)
    machine.feed(versions_response(second))
    assert machine.ready
    refusing = connecting_machine()
    for _ in range(2):
        (sent,) = take_requests(refusing)
        refusing.feed(versions_response(sent, error_code=35))
    assert isinstance(refusing.failure, NotKafka) and "refused ApiVersions (error 35)" in str(refusing.failure)


def test_requests_in_flight_are_bounded_and_answered_in_order() -> None:
    machine = ready_machine(in_flight_max=3)
    for number in range(3):
        assert machine.ready
        machine.send(HEARTBEAT, number, 0)
    assert not machine.ready
    sent = take_requests(machine)
    completed = machine.feed(b"".join(heartbeat_response(each, error_code=10 + number) for number, each in enumerate(sent[:2])))
    assert [(each.context, each.response().error_code) for each in completed] == [(0, 10), (1, 11)]
    assert machine.ready and [waiting.context for waiting in machine.in_flight] == [2]


def test_a_request_without_a_response_completes_never_and_has_no_deadline() -> None:
    machine = ready_machine(in_flight_max=1)
    for _ in range(5):
        machine.send(HEARTBEAT, None, 0, response_expected=False)
    assert machine.ready and machine.deadline_s is None
    sent = take_requests(machine)
    assert len(sent) == 5
    machine.feed(heartbeat_response(sent[0]))
    assert isinstance(machine.failure, NotKafka)


def test_correlation_ids_start_again_after_the_largest() -> None:
    machine = ready_machine()
    machine._correlation_id = 2**31 - 2
    machine.send(HEARTBEAT, "last", 0)
    machine.send(HEARTBEAT, "first", 0)
    sent = take_requests(machine)
    assert [each.correlation_id for each in sent] == [2**31 - 1, 0]
    completed = machine.feed(b"".join(map(heartbeat_response, sent)))
    assert [each.context for each in completed] == ["last", "first"]


def test_a_request_leaves_in_parts_of_any_size() -> None:
    whole = ready_machine()
    whole.send(HEARTBEAT, None, 0)
    expected = b"".join(whole.outgoing())
    machine = ready_machine()
    machine.send(HEARTBEAT, None, 0)
    data = b""
    while machine.unsent:
        part = machine.outgoing()[0][:3]
        data += part
        machine.sent(len(part))
    assert data == expected


# --- fragments ---


def _pushed(machine: ClientMachine[Any], pieces: list[bytes], *, into_buffer: bool) -> list[tuple[Any, int]]:
    """Contexts and error codes of the responses in these pieces. Bodies are read before the next piece comes, as an adapter does."""
    found: list[tuple[Any, int]] = []

    def add(completed: list[Completed[Any]]) -> None:
        found.extend((each.context, each.response().error_code) for each in completed)

    for piece in pieces:
        if not into_buffer:
            add(machine.feed(piece))
            continue
        while piece:
            room = machine.buffer()
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            add(machine.received(count))
            piece = piece[count:]
    return found


@given(st.lists(st.integers(-1, 100), min_size=1, max_size=20), st.data(), st.booleans())
def test_responses_in_any_fragments(codes: list[int], data: st.DataObject, into_buffer: bool) -> None:
    machine = connecting_machine(in_flight_max=len(codes))
    (negotiation,) = take_requests(machine)
    first = versions_response(negotiation)
    cut = data.draw(st.integers(0, len(first)))
    assert _pushed(machine, [first[:cut], first[cut:]], into_buffer=into_buffer) == []
    for number in range(len(codes)):
        machine.send(HEARTBEAT, number, 0)
    stream = b"".join(heartbeat_response(sent, code) for sent, code in zip(take_requests(machine), codes, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    pieces = [stream[low:high] for low, high in itertools.pairwise([0, *cuts, len(stream)])]
    assert _pushed(machine, pieces, into_buffer=into_buffer) == list(enumerate(codes))
    assert machine.failure is None and not machine.in_flight


@given(st.integers(0, 600_000), st.integers(1, 300_000), st.booleans())
def test_a_large_response(size: int, piece: int, into_buffer: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    machine = ready_machine()
    machine.send(HEARTBEAT, "large", 0)
    machine.send(HEARTBEAT, "small", 0)
    large, small = take_requests(machine)
    stream = struct.pack(">iiB", 5 + len(body), large.correlation_id, 0) + body + heartbeat_response(small)
    bodies: list[bytes] = []
    for at in range(0, len(stream), piece):
        part = stream[at : at + piece]
        if not into_buffer:
            bodies += [bytes(each.body) for each in machine.feed(part)]
            continue
        while part:
            room = machine.buffer()
            count = min(len(room), len(part))
            room[:count] = part[:count]
            bodies += [bytes(each.body) for each in machine.received(count)]
            part = part[count:]
    assert bodies[0] == body
    assert decode(HeartbeatResponse, 4, bodies[1]).error_code == 0


def test_what_is_fed_stays_valid() -> None:
    """A Twisted caller may keep the records of a response while later ones come."""
    machine = ready_machine()
    machine.send(HEARTBEAT, None, 0)
    machine.send(HEARTBEAT, None, 0)
    first, second = take_requests(machine)
    stream = heartbeat_response(first, 7) + heartbeat_response(second, 9)
    for cut in range(1, len(stream)):
        copy = ready_machine()
        copy.send(HEARTBEAT, None, 0)
        copy.send(HEARTBEAT, None, 0)
        completed = copy.feed(stream[:cut]) + copy.feed(stream[cut:])
        copy.feed(bytes(1000))
        assert [each.response().error_code for each in completed] == [7, 9]


# --- peers that are no good brokers ---


def _answered(data: bytes) -> ClientMachine[Any]:
    machine = ready_machine()
    machine.send(HEARTBEAT, None, 0)
    assert machine.feed(data) == []
    return machine


@pytest.mark.parametrize("data", [
    pytest.param(b"HTTP/1.0 400 Bad Request", id="HTTP"),
    pytest.param(struct.pack(">ii", 3, 2), id="a size below that of a correlation id"),
    pytest.param(struct.pack(">ii", -5, 2), id="a negative size"),
    pytest.param(struct.pack(">ii", 100 * 1024 * 1024 + 1, 2), id="a size beyond the limit"),
    pytest.param(struct.pack(">ii", 4, 99), id="another correlation id"),
    pytest.param(struct.pack(">iiB", 5, 2, 5), id="tags that are not there"),
    pytest.param(struct.pack(">iiB", 5, 2, 0xFF), id="an endless number of tags"),
])
def test_what_is_no_response(data: bytes) -> None:
    machine = _answered(data)
    assert isinstance(machine.failure, NotKafka)
    assert machine.failure.received[:4] in data
    assert machine.feed(heartbeat_response(take_requests(machine)[0])) == [], "nothing counts after that"


@pytest.mark.parametrize("body", [pytest.param(b"\0\0", id="too short"), pytest.param(bytes(20), id="too long")])
def test_a_malformed_body(body: bytes) -> None:
    machine = ready_machine()
    machine.send(HEARTBEAT, None, 0)
    (sent,) = take_requests(machine)
    (completed,) = machine.feed(struct.pack(">iiB", 5 + len(body), sent.correlation_id, 0) + body)
    with pytest.raises(NotKafka, match="malformed Heartbeat response in version 4"):
        completed.response()


def test_responses_before_the_nonsense_count() -> None:
    machine = ready_machine()
    machine.send(HEARTBEAT, "good", 0)
    machine.send(HEARTBEAT, "bad", 0)
    good, _ = take_requests(machine)
    assert [each.context for each in machine.feed(heartbeat_response(good) + b"HTTP/1.1")] == ["good"]
    assert isinstance(machine.failure, NotKafka) and machine.failure.received == b"HTTP/1.1"
    assert [each.context for each in machine.disconnected(0)] == ["bad"]


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_a_failure_and_never_an_exception(data: bytes, negotiated: bool) -> None:
    machine = ready_machine() if negotiated else connecting_machine()
    if negotiated:
        machine.send(HEARTBEAT, None, 0)
    completed = machine.feed(data)
    assert isinstance(machine.closed_by_peer(), (NotKafka, Closed))
    for each in completed:
        with contextlib.suppress(NotKafka):
            each.response()


@given(st.data())
def test_a_damaged_negotiation_is_a_failure_and_never_an_exception(data: st.DataObject) -> None:
    machine = connecting_machine()
    (sent,) = take_requests(machine)
    stream = bytearray(versions_response(sent))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    assert machine.feed(bytes(stream)) == []


def test_tls_is_recognized() -> None:
    machine = connecting_machine()
    machine.feed(TLS_ALERT)
    assert isinstance(machine.failure, TlsExpected)
    cut = connecting_machine()
    cut.feed(TLS_ALERT[:3])
    assert isinstance(cut.closed_by_peer(), TlsExpected)


def test_why_a_connection_was_closed() -> None:
    negotiating = connecting_machine()
    assert type(negotiating.closed_by_peer()) is Closed
    unused = ready_machine()
    assert type(unused.closed_by_peer("reset")) is Closed and "(reset)" in str(unused.closed_by_peer("reset"))
    first = ready_machine()
    first.send(HEARTBEAT, None, 0)
    assert isinstance(first.closed_by_peer(), AuthenticationExpected)
    first.feed(heartbeat_response(take_requests(first)[0])[:6])
    assert first.closed_by_peer().received, "the beginning of the response that did not come"  # type: ignore[attr-defined]
    used = ready_machine()
    for _ in range(2):
        used.send(HEARTBEAT, None, 0)
        sent = take_requests(used)
        if len(used.in_flight) == 1:
            used.feed(heartbeat_response(sent[0]))
    used.send(HEARTBEAT, None, 0)
    assert type(used.closed_by_peer()) is Closed


# --- time ---


def test_each_wait_has_a_deadline() -> None:
    machine: ClientMachine[str] = ClientMachine("b:1", ClientSettings(connect_timeout_s=5, request_timeout_s=30), lambda: 0.5)
    assert machine.deadline_s is None
    machine.connect_started(100)
    assert machine.deadline_s == 105 and machine.expired(104.9) is None
    assert isinstance(machine.expired(105), Unreachable)
    machine.connected(103)
    assert machine.deadline_s == 133
    late = machine.expired(133)
    assert isinstance(late, Silent) and "did not respond to ApiVersions in time" in str(late)
    (sent,) = take_requests(machine)
    machine.feed(versions_response(sent))
    assert machine.deadline_s is None and machine.expired(1e9) is None
    machine.send(HEARTBEAT, "long", 200, timeout_s=60)
    machine.send(HEARTBEAT, "default", 201)
    assert machine.deadline_s == 231, "the earliest, also when it is not the first in line"
    first, _ = take_requests(machine)
    machine.feed(heartbeat_response(first))
    assert machine.deadline_s == 231
    assert machine.expired(230.9) is None
    assert isinstance(machine.expired(231), Silent)
    assert [request.context for request in machine.disconnected(231)] == ["default"]
    assert machine.deadline_s is None


def test_a_connection_begins_with_nothing_of_the_one_before() -> None:
    machine = ready_machine()
    machine.send(HEARTBEAT, "old", 0)
    machine.feed(b"\0\0")
    machine.disconnected(1)
    machine.connect_started(2)
    machine.connected(3)
    (sent,) = take_requests(machine)
    assert sent.api_key == ApiVersionsRequest.api_key, "the request that was not sent is gone"
    assert machine.versions == {}
    machine.feed(versions_response(sent))
    assert machine.ready and machine.failure is None


def test_the_wait_between_attempts() -> None:
    machine: ClientMachine[None] = ClientMachine("b:1", ClientSettings(), lambda: 0.5)
    assert machine.backoff.wait_s(0) == 0
    waits = []
    for now_s in range(0, 800, 100):
        machine.connect_started(now_s)
        machine.disconnected(now_s)
        waits.append(machine.backoff.wait_s(now_s))
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1])
    machine.connect_started(900)
    machine.connected(900)
    machine.disconnected(900)
    assert machine.backoff.wait_s(900) == pytest.approx(1), "a connection without a negotiation is a failure"
    assert machine.backoff.wait_s(900.4) == pytest.approx(0.6)
    assert machine.backoff.wait_s(950) == 0
    machine.connect_started(1000)
    machine.connected(1000)
    machine.feed(versions_response(take_requests(machine)[0]))
    machine.disconnected(2000)
    assert machine.backoff.wait_s(2000) == pytest.approx(0.05)


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 0.04), (1.0, 0.06)])
def test_jitter(chance: float, wait_s: float) -> None:
    machine: ClientMachine[None] = ClientMachine("b:1", ClientSettings(), lambda: chance)
    machine.connect_started(0)
    machine.disconnected(0)
    assert machine.backoff.wait_s(0) == pytest.approx(wait_s)
