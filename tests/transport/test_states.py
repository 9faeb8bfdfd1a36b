"""The table of states: what a connection takes in each of them, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.transport.test_connection import ApiVersionsOfOne, Heartbeats, Peer, answered, generation
from txbroker.api.registry import Handler, Registry
from txbroker.api.request_context import RequestContext
from txbroker.connection.protocol import Connection
from txbroker.connection.states import ANONYMOUS_STATES, SASL_STATES, RequestKind, State
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.heartbeat import HeartbeatResponse
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from txbroker.wire.schema import Request


class Handshakes:
    """Takes each mechanism."""

    request: type[Request] = SaslHandshakeRequest

    def __call__(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=0, mechanisms=[])


class Logins:
    """Takes as long as `waiting`."""

    request: type[Request] = SaslAuthenticateRequest

    def __init__(self) -> None:
        self.waiting: Deferred[Any] = Deferred()

    def __call__(self, request: SaslAuthenticateRequest, context: RequestContext) -> Deferred[Any]:
        return self.waiting


class SaslPeer(Peer):
    """A peer of a listener that authenticates its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.logins = Logins()
        handlers: list[Handler] = [ApiVersionsOfOne(), Heartbeats(generation), Handshakes(), self.logins]
        self.connection = Connection(Registry(handlers), SASL_STATES)
        self.connection.makeConnection(self.transport)

    def ask(self, name: str, number: int, version: int | None = None) -> None:
        if name == "versions":
            self.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3 if version is None else version, number)
        elif name == "handshake":
            self.send(SaslHandshakeRequest(mechanism="PLAIN"), 1, number)
        elif name == "login":
            self.send(SaslAuthenticateRequest(auth_bytes=b""), 2, number)
        else:
            self.beat(number)


@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (["versions", "handshake"], 2), (["handshake"], 1),
        (["heartbeat"], 0), (["versions", "heartbeat"], 1), (["versions", "versions"], 1), (["handshake", "heartbeat"], 1),
        (["handshake", "versions"], 1), (["handshake", "handshake"], 1),
    ],
)  # fmt: skip
def test_a_client_that_must_prove_who_it_is_may_send_nothing_else(requests: list[str], answers: int) -> None:
    peer = SaslPeer()
    for number, name in enumerate(requests):
        peer.ask(name, number)
    assert [number for number, _ in peer.replies()] == list(range(answers))
    assert peer.transport.closing == (answers < len(requests))


@pytest.mark.parametrize(
    ("before", "named"), [([], "ApiVersions or SaslHandshake"), (["versions"], "SaslHandshake"), (["handshake"], "SaslAuthenticate")]
)
def test_the_log_says_which_request_is_expected(caplog: pytest.LogCaptureFixture, before: list[str], named: str) -> None:
    peer = SaslPeer()
    for number, name in enumerate(before):
        peer.ask(name, number)
    peer.ask("heartbeat", 9)
    assert f"Heartbeat v3: the client is not authenticated, {named} is expected" in caplog.text


def test_api_versions_of_an_unknown_version_does_not_count() -> None:
    peer = SaslPeer()
    body = SaslHandshakeRequest(mechanism="PLAIN")
    peer.send_raw(b"\0\x12\0\x63" + b"\0\0\0\7" + b"\xff\xff")
    peer.ask("versions", 1)
    peer.send(body, 1, 2)
    assert [number for number, _ in peer.replies()] == [7, 1, 2] and not peer.transport.closing


def test_a_client_that_has_greeted_learns_no_versions_again() -> None:
    peer = SaslPeer()
    peer.ask("versions", 1)
    peer.send_raw(b"\0\x12\0\x63" + b"\0\0\0\7" + b"\xff\xff")
    assert [number for number, _ in peer.replies()] == [1] and peer.transport.closing


def test_a_request_behind_a_login_waits_for_it() -> None:
    peer = SaslPeer()
    peer.ask("handshake", 1)
    peer.ask("login", 2)
    assert not peer.beat(3), "it stays with the transport"
    assert peer.connection.full and not peer.transport.closing
    peer.logins.waiting.callback(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0))
    assert [number for number, _ in peer.replies()] == [1, 2] and not peer.connection.full


def test_every_request_is_taken_where_nothing_is_to_be_proved() -> None:
    for state in (State.NEW, State.HANDSHAKE, State.READY):
        taken = ANONYMOUS_STATES[state]
        assert set(taken) == set(RequestKind)
        assert all(taken[kind] is State.READY for kind in RequestKind if kind is not RequestKind.API_VERSIONS)
    for states in (ANONYMOUS_STATES, SASL_STATES):
        assert State.CLOSING not in states and State.CLOSED not in states
        assert states[State.READY] == dict.fromkeys(RequestKind, State.READY)


def test_a_request_in_flight_is_answered_in_its_place_before_a_refused_one_ends_the_connection() -> None:
    waiting: Deferred[object] = Deferred()
    peer = Peer(Heartbeats(lambda request, context: waiting))
    peer.beat(1)
    peer.connection.bad_size(-1, 100)
    assert peer.connection._state is State.CLOSING and not peer.transport.closing
    peer.beat(2)
    waiting.callback(HeartbeatResponse(error_code=0))
    (reply,) = peer.replies()
    assert answered(reply)[0] == 1 and peer.transport.closing and peer.connection._state is State.CLOSED
