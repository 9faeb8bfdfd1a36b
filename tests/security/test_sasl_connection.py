"""The connection of a listener with SASL: every request in every state, what a login leads to, and how a session ends."""

from __future__ import annotations

import base64
import hashlib
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.api.responses import joined
from tests.security.test_scram import credential
from tests.support.tokens import TokenScram
from tests.transport.test_connection import Heartbeats, Peer, Produces, Transport, generation
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Registry
from txbroker.api.request_context import Session
from txbroker.api.sasl_authenticate import SaslAuthenticateHandler
from txbroker.api.sasl_handshake import SaslHandshakeHandler
from txbroker.client.client_security import Sasl, Scram
from txbroker.connection.sasl import SaslConnection
from txbroker.connection.states import State
from txbroker.errors import ErrorCode
from txbroker.repeated_lines import LOGGED_EVERY_S
from txbroker.security.failed_logins import FailedLogins
from txbroker.security.sasl_exchange import Cause
from txbroker.security.sasl_login import SaslServer
from txbroker.security.sasl_oauthbearer import REFUSED, AcceptedToken, InvalidToken, OauthExchange
from txbroker.security.sasl_plain import PlainExchange
from txbroker.security.scram import FindToken, ScramCredential, ScramExchange, TokenCredential, TokenLogin
from txbroker.wire.codec import decode
from txbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.messages.heartbeat import HeartbeatResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from txbroker.wire.schema import Request

LOGIN, WRONG = b"\0alice\0secret", b"\0alice\0guess"
ALICE = credential("SCRAM-SHA-256", "secret")
SIZE_MAX = 1000
DELAY_S = 0.1


def accepted(token_ms: int, token: str) -> AcceptedToken:
    """What a token says: its user."""
    if token == "expired":
        raise InvalidToken("the token has expired", "alice")
    return AcceptedToken(token, token_ms)


class LimitedTransport(Transport):
    """Records the sizes of frames that are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(peer_host="10.0.0.9", peer_port=5000, local_host="10.0.0.1", local_port=9092, listener="L", number=7)
        self.sizes: tuple[int | None, int] = (None, 8)

    def limit_frames(self, high: int | None, low: int = 8) -> None:
        self.sizes = (high, low)

    def expect_login(self, message_bytes_max: int) -> None:
        self.limit_frames(message_bytes_max)

    def logged_in(self) -> None:
        self.limit_frames(None)


class SaslPeer(Peer):
    """A peer of a listener with PLAIN, SCRAM-SHA-256 and OAUTHBEARER, and the user alice. `token_ms`: how long tokens are valid."""

    def __init__(self, lifetime_ms: int = 0, *handlers: Any, token_ms: int = 0, find_token: FindToken | None = None) -> None:
        self.clock = Clock()
        self.failures = FailedLogins(self.clock)
        self.server = SaslServer(
            "L",
            {
                "PLAIN": partial(PlainExchange, {"alice": "secret", "bob": "builder"}),
                "SCRAM-SHA-256": partial(
                    ScramExchange, "SCRAM-SHA-256", {"alice": ALICE}.get, "server", b"secret", find_token
                ),
                "OAUTHBEARER": partial(OauthExchange, partial(accepted, token_ms)),
            },
            dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"), lifetime_ms),
            self.clock,
            self.failures,
            failure_delay_s=DELAY_S,
            message_bytes_max=SIZE_MAX,
        )
        self.registry = Registry([Heartbeats(generation), SaslHandshakeHandler(), SaslAuthenticateHandler(), *handlers])
        self.registry.register(ApiVersionsHandler(self.registry.ranges))
        self.connect()

    def connect(self) -> None:
        """A new connection."""
        self.transport: LimitedTransport = LimitedTransport()
        self.connection = SaslConnection(self.registry, self.server)
        self.connection.makeConnection(self.transport)

    def versions(self, number: int = 1, version: int = 3, name: str = "a") -> None:
        self.send(ApiVersionsRequest(client_software_name=name, client_software_version="1"), version, number)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1, number: int = 2) -> None:
        self.send(SaslHandshakeRequest(mechanism=mechanism), version, number)

    def login(self, message: bytes = LOGIN, version: int = 2, number: int = 3) -> bool:
        return self.send(SaslAuthenticateRequest(auth_bytes=message), version, number)

    def answers(self) -> list[int]:
        """The correlation ids of the responses that are due."""
        return [number for number, _ in self.replies()]

    def sizes(self) -> tuple[int | None, int]:
        """Of the frames that are taken."""
        return self.transport.sizes

    def token(self, message: bytes) -> bytes | None:
        """Send a message without a header; the answer."""
        self.send_raw(message)
        data = joined(self.connection.take_output())
        return data[4:] if data and struct.unpack_from(">i", data)[0] == len(data) - 4 else None

    def handshake_answer(self) -> SaslHandshakeResponse:
        (reply,) = self.replies()
        return decode(SaslHandshakeResponse, 1, memoryview(reply[1]))

    def login_answer(self, version: int = 2) -> SaslAuthenticateResponse:
        (reply,) = self.replies()
        return decode(SaslAuthenticateResponse, version, memoryview(reply[1][1:] if version == 2 else reply[1]))

    @property
    def logged_in(self) -> bool:
        return self.connection._state in (State.READY, State.LIMITED)


def test_a_login_with_plain() -> None:
    peer = SaslPeer()
    assert peer.sizes() == (SIZE_MAX, 8)
    peer.versions()
    ((_, body),) = peer.replies()
    keys = {api.api_key for api in decode(ApiVersionsResponse, 3, memoryview(body)).api_keys}
    assert keys == {12, 17, 18, 36}, "SASL is advertised here"
    peer.handshake()
    answer = peer.handshake_answer()
    assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    assert peer.transport.session.principal == "User:ANONYMOUS" and peer.sizes() == (SIZE_MAX, 8)
    peer.login()
    done = peer.login_answer()
    assert (done.error_code, done.error_message, bytes(done.auth_bytes), done.session_lifetime_ms) == (0, "", b"", 0)
    assert peer.transport.session.principal == "User:alice" and peer.sizes() == (None, 8)
    assert peer.connection._state is State.READY and peer.server.logins == {"PLAIN": 1, "SCRAM-SHA-256": 0, "OAUTHBEARER": 0}
    peer.beat(5)
    peer.versions(6)
    assert peer.answers() == [5, 6]


def test_a_login_with_scram_and_with_everything_in_one_read() -> None:
    peer = SaslPeer()
    client = Scram(Sasl("SCRAM-SHA-256", "alice", "secret"), "client")
    peer.handshake("SCRAM-SHA-256")
    peer.replies()
    peer.login(client.first.encode())
    first = peer.login_answer()
    assert (first.error_code, first.session_lifetime_ms) == (0, 0) and not peer.logged_in
    peer.login(client.final(bytes(first.auth_bytes).decode()).encode())
    client.check(bytes(peer.login_answer().auth_bytes).decode())
    assert peer.logged_in
    peer.connect()
    peer.versions(1)
    peer.handshake(number=2)
    peer.login(number=3)
    peer.beat(4)
    assert peer.answers() == [1, 2, 3, 4]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_of_authenticate(version: int) -> None:
    peer = SaslPeer(5000)
    peer.handshake()
    peer.replies()
    peer.login(version=version)
    answer = peer.login_answer(version)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 5000 if version else 0)


def test_messages_without_a_header() -> None:
    """After SaslHandshake v0; they may be shorter than any request."""
    peer = SaslPeer()
    peer.handshake(version=0)
    assert peer.answers() == [2] and peer.sizes() == (SIZE_MAX, 0)
    assert peer.token(b"\0bob\0builder") == b""
    assert peer.transport.session.principal == "User:bob" and peer.sizes() == (None, 8)
    peer.beat(3)
    assert peer.answers() == [3]
    peer.connect()
    peer.handshake(version=0)
    peer.replies()
    assert peer.token(b"") is None, "a failure has no answer"
    assert not peer.transport.closing
    peer.beat(4)
    peer.clock.advance(DELAY_S)
    assert peer.transport.closing and peer.answers() == []


def test_messages_of_scram_without_a_header() -> None:
    peer = SaslPeer()
    client = Scram(Sasl("SCRAM-SHA-256", "alice", "secret"), "client")
    peer.handshake("SCRAM-SHA-256", 0)
    peer.replies()
    first = peer.token(client.first.encode())
    assert first is not None
    final = peer.token(client.final(first.decode()).encode())
    assert final is not None
    client.check(final.decode())
    assert peer.logged_in


class DerivedLater:
    """The token "t" of bob with a password, whose credential is derived when the test says so."""

    def __init__(self) -> None:
        self.password = b"of the token"
        self.deriving: Deferred[ScramCredential | None] = Deferred()
        self.salt = b""

    def find(self, mechanism: str, token_id: str, salt: bytes) -> TokenLogin:
        self.salt = salt
        return TokenLogin(TokenCredential(salt, self.deriving), "bob", 5000)

    def derive(self) -> None:
        password = base64.b64encode(self.password)
        salted = hashlib.pbkdf2_hmac("sha256", password, self.salt, 4096)
        self.deriving.callback(ScramCredential.of_salted("SCRAM-SHA-256", self.salt, salted, 4096))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("is_late", [False, True])
def test_the_last_message_of_a_login_with_a_token_waits_for_its_credential(version: int, is_late: bool) -> None:
    token = DerivedLater()
    peer = SaslPeer(find_token=token.find)
    peer.handshake("SCRAM-SHA-256", version)
    peer.replies()
    client = TokenScram("SCRAM-SHA-256", "t", token.password)
    if version:
        peer.login(client.first.encode())
        final = client.final(bytes(peer.login_answer().auth_bytes).decode()).encode()
        send = partial(peer.send, SaslAuthenticateRequest(auth_bytes=final), 2, 3)
    else:
        final = client.final((peer.token(client.first.encode()) or b"").decode()).encode()
        send = partial(peer.send_raw, final)
    flushes = peer.transport.flushes
    if is_late:
        assert not send() and peer.connection.full, "the transport keeps it, and reads no more"
        token.derive()
        assert peer.transport.flushes == flushes + 1 and not peer.connection.full, "it is offered again"
    else:
        token.derive()
    assert send() and peer.logged_in and peer.transport.session.principal == "User:bob"
    if version:
        answer = peer.login_answer()
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 5000)
        client.check(bytes(answer.auth_bytes).decode())
    else:
        client.check(joined(peer.connection.take_output())[4:].decode())
    peer.beat(9)
    assert peer.answers() == [9]


def test_a_connection_that_ends_while_a_credential_is_derived() -> None:
    token = DerivedLater()
    peer = SaslPeer(find_token=token.find)
    peer.handshake("SCRAM-SHA-256")
    client = TokenScram("SCRAM-SHA-256", "t", token.password)
    peer.login(client.first.encode())
    assert not peer.login(client.first.encode())
    flushes = peer.transport.flushes
    peer.connection.connectionLost(Failure(ConnectionDone()))
    token.derive()
    assert peer.transport.flushes == flushes and not peer.logged_in


@pytest.mark.parametrize(("message", "text", "cause"), [
    (WRONG, "Authentication failed: Invalid username or password", "wrong_password"),
    (b"\0ghost\0secret", "Authentication failed: Invalid username or password", "unknown_user"),
    (b"\0\0secret", "Authentication failed: username not specified", "invalid"),
    (b"\0alice\0", "Authentication failed: password not specified", "invalid"),
    (b"root\0alice\0secret", "Authentication failed: Client requested an authorization id that is different from username", "other_user"),
    (b"root\0alice\0guess", "Authentication failed: Invalid username or password", "wrong_password"),
    (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2", "invalid"),
    (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4", "invalid"),
    (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1", "invalid"),
    (b"\0alice\xff\0secret", "Authentication failed: Invalid username or password", "unknown_user"),
])  # fmt: skip
def test_failed_logins_are_answered_after_the_delay(message: bytes, text: str, cause: str) -> None:
    peer = SaslPeer()
    peer.handshake()
    peer.replies()
    peer.login(message)
    peer.beat(9)
    assert peer.replies() == [] and not peer.transport.closing and peer.connection.full
    peer.clock.advance(DELAY_S / 2)
    assert peer.replies() == []
    peer.clock.advance(DELAY_S / 2)
    answer = peer.login_answer()
    assert (answer.error_code, answer.error_message) == (58, text)
    assert peer.transport.closing and peer.transport.session.principal == "User:ANONYMOUS"
    assert peer.failures.counts == {("L", "PLAIN", cause): 1} and peer.server.logins["PLAIN"] == 0


def test_the_authorization_id_may_be_the_user() -> None:
    peer = SaslPeer()
    peer.handshake()
    peer.login(b"alice\0alice\0secret")
    assert peer.logged_in


def test_a_mechanism_that_is_not_enabled() -> None:
    for version in (0, 1):
        peer = SaslPeer()
        peer.handshake("GSSAPI", version)
        peer.login()
        assert peer.replies() == [] and not peer.transport.closing
        peer.clock.advance(DELAY_S)
        answer = peer.handshake_answer()
        assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]) and peer.transport.closing
        assert peer.failures.counts == {("L", "", "mechanism"): 1}


def noting(names: list[str], name: str, decode: Callable[[memoryview], Request]) -> Callable[[memoryview], Request]:
    """As `decode`, and adds the name to the list."""

    def noted(frame: memoryview) -> Request:
        names.append(name)
        return decode(frame)

    return noted


@pytest.mark.parametrize("before", [[], ["versions"], ["handshake"], ["scram"], ["scram", "first"], ["raw"]], ids="-".join)
@pytest.mark.parametrize("name", ["versions", "handshake", "login", "heartbeat", "unknown", "undecodable"])
def test_every_request_in_every_state_before_the_login(before: list[str], name: str) -> None:
    """Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is decoded, and these only in their turn.

    Once a mechanism is chosen, another request is answered with ILLEGAL_SASL_STATE, for which it is decoded.
    """
    peer = SaslPeer()
    for step in before:
        if step == "versions":
            peer.versions()
        elif step == "first":
            peer.login(b"n,,n=alice,r=x")
        else:
            peer.handshake("SCRAM-SHA-256" if step == "scram" else "PLAIN", 0 if step == "raw" else 1)
    peer.replies()
    decoded: list[str] = []
    for key, version in ((18, 3), (17, 1), (36, 2), (12, 3)):
        route = peer.registry.routes[key << 16 | version]
        route.decode = noting(decoded, route.name, route.decode)
    if name == "versions":
        peer.versions(7)
    elif name == "handshake":
        peer.handshake(number=7)
    elif name == "login":
        peer.login(b"n,,n=alice,r=x" if "scram" in before and "first" not in before else LOGIN, number=7)
    elif name == "heartbeat":
        peer.beat(7)
    elif name == "unknown":
        peer.send_raw(b"\x03\xe7\0\0" + b"\0\0\0\7" + b"\xff\xff")
    else:
        peer.send_raw(b"\0\x0c\0\3" + b"\0\0\0\7" + b"\x7f\xff" + b"\xff" * 20)
    allowed = {
        (): {"versions", "handshake"}, ("versions",): {"handshake"}, ("handshake",): {"login"}, ("scram",): {"login"},
        ("scram", "first"): {"login"}, ("raw",): set[str](),
    }[tuple(before)]  # fmt: skip
    is_allowed = name in allowed
    has_error = name in {"versions", "handshake", "heartbeat"} and before not in ([], ["versions"], ["raw"])
    assert len(decoded) == (1 if is_allowed or has_error else 0)
    if is_allowed and before != ["scram", "first"]:
        assert peer.answers() == [7] and not peer.transport.closing
        return
    assert not peer.transport.closing, "not before the delay"
    assert not peer.logged_in and peer.connection.full
    peer.clock.advance(DELAY_S)
    replies = peer.replies()
    assert peer.transport.closing and len(replies) == (1 if is_allowed or has_error else 0)
    if has_error:
        ((number, body),) = replies
        kind, version = {"versions": (ApiVersionsResponse, 3), "handshake": (SaslHandshakeResponse, 1),
                         "heartbeat": (HeartbeatResponse, 3)}[name]  # fmt: skip
        assert (number, decode(kind, version, memoryview(body)).error_code) == (7, ErrorCode.ILLEGAL_SASL_STATE)
    assert sum(peer.failures.counts.values()) == 1


def test_api_versions_that_is_refused_may_be_repeated() -> None:
    peer = SaslPeer()
    peer.send_raw(b"\0\x12\0\x63" + b"\0\0\0\7" + b"\xff\xff")
    peer.versions(8, name="not allowed!")
    peer.versions(9)
    peer.handshake(number=10)
    assert peer.answers() == [7, 8, 9, 10] and not peer.transport.closing
    peer.connect()
    peer.versions(1)
    peer.versions(2)
    peer.clock.advance(DELAY_S)
    assert peer.answers() == [1] and peer.transport.closing


def test_sasl_requests_after_the_login_and_without_it() -> None:
    peer = SaslPeer()
    peer.handshake()
    peer.login()
    peer.replies()
    peer.handshake()
    answer = peer.handshake_answer()
    assert (answer.error_code, answer.mechanisms) == (34, [])
    peer.login()
    refused = peer.login_answer()
    assert (refused.error_code, refused.error_message) == (34, "SaslAuthenticate request received after successful authentication")
    peer.beat(5)
    assert peer.answers() == [5] and not peer.transport.closing
    plain = Peer(SaslHandshakeHandler(), SaslAuthenticateHandler())
    plain.send(SaslAuthenticateRequest(auth_bytes=LOGIN), 2, 1)
    ((_, body),) = plain.replies()
    assert decode(SaslAuthenticateResponse, 2, memoryview(body[1:])).error_code == 34


def test_frames_before_the_login_are_limited() -> None:
    peer = SaslPeer()
    peer.connection.bad_size(SIZE_MAX + 1, SIZE_MAX)
    peer.clock.advance(DELAY_S)
    assert peer.transport.closing and peer.registry.closed == {"request_too_large": 1}


def test_a_lost_connection_ends_the_delay() -> None:
    for framed in (1, 0):
        peer = SaslPeer()
        peer.handshake(version=framed)
        peer.login(WRONG) if framed else peer.send_raw(WRONG)
        assert peer.clock.getDelayedCalls()
        peer.connection.connectionLost(Failure(ConnectionError()))
        assert not peer.clock.getDelayedCalls()


def renew(peer: SaslPeer, message: bytes = LOGIN, mechanism: str = "PLAIN") -> None:
    peer.handshake(mechanism)
    peer.login(message)


def limited(lifetime_ms: int = 5000, *handlers: Any) -> SaslPeer:
    """A peer that has logged in, with a session of this lifetime."""
    peer = SaslPeer(lifetime_ms, *handlers)
    renew(peer)
    assert peer.answers() == [2, 3] and peer.connection._state is State.LIMITED
    return peer


SENT: tuple[Callable[[SaslPeer], object], ...] = (
    lambda peer: peer.beat(7), lambda peer: peer.versions(7), lambda peer: peer.login(number=7),
)  # fmt: skip


def test_an_expired_session_ends_with_the_next_request() -> None:
    for send in SENT:
        peer = limited()
        peer.clock.advance(4.9)
        peer.beat(6)
        assert peer.answers() == [6]
        peer.clock.advance(0.1)
        send(peer)
        assert peer.transport.closing and peer.answers() == [] and peer.registry.closed == {"session_expired": 1}


def test_a_session_expires_between_two_requests_of_one_read() -> None:
    """Each is checked when its turn comes; a response that waits is sent first."""
    waiting: Deferred[Any] = Deferred()
    peer = limited(5000, Produces(lambda request, context: waiting))
    data = PartitionProduceData(index=0, records=b"r" * 100)
    produce = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    peer.send(produce, 3, 6)
    assert not peer.beat(7), "it waits for the response"
    peer.clock.advance(5)
    waiting.callback(None)
    assert peer.beat(7) and peer.transport.closing and peer.answers() == []


def test_a_session_is_renewed_in_time_or_late() -> None:
    peer = limited()
    for wait_s in (4.0, 6.0, 4.0):
        peer.clock.advance(wait_s)
        renew(peer)
        peer.beat(8)
        assert peer.answers() == [2, 3, 8] and peer.connection._state is State.LIMITED
    peer.clock.advance(5)
    peer.beat(9)
    assert peer.transport.closing


def test_a_session_may_not_be_renewed_twice_in_a_second() -> None:
    peer = limited()
    renew(peer)
    assert peer.answers() == [2, 3], "the first renewal may come at any time"
    peer.clock.advance(0.9)
    peer.handshake()
    assert peer.handshake_answer().error_code == 34
    peer.beat(9)
    assert peer.answers() == [9], "the session goes on"
    peer.clock.advance(0.1)
    renew(peer)
    assert peer.answers() == [2, 3]


def test_a_session_is_renewed_by_its_user_and_mechanism_only() -> None:
    peer = limited()
    renew(peer, b"\0bob\0builder")
    assert peer.answers() == [2]
    peer.clock.advance(DELAY_S)
    answer = peer.login_answer()
    assert (answer.error_code, answer.error_message) == (
        58, "Cannot change principals during re-authentication from User.alice: User.bob"
    )  # fmt: skip
    assert peer.transport.closing and peer.transport.session.principal == "User:alice"

    peer = limited()
    peer.handshake("SCRAM-SHA-256")
    assert peer.handshake_answer().error_code == 0
    peer.login()
    assert peer.replies() == [] and not peer.transport.closing
    peer.clock.advance(DELAY_S)
    assert peer.transport.closing and peer.replies() == []

    peer = limited()
    renew(peer, WRONG)
    peer.replies()
    peer.clock.advance(DELAY_S)
    assert peer.login_answer().error_code == 58 and peer.transport.closing
    peer = SaslPeer(5000)
    client = Scram(Sasl("SCRAM-SHA-256", "alice", "secret"), "client")
    peer.handshake("SCRAM-SHA-256")
    peer.replies()
    peer.login(client.first.encode())
    peer.login(client.final(bytes(peer.login_answer().auth_bytes).decode()).encode())
    renew(peer, b"x", "SCRAM-SHA-256")
    peer.replies()
    peer.clock.advance(DELAY_S)
    assert "during re-authentication due to invalid credentials" in (peer.login_answer().error_message or "")


def bearer(token: str) -> bytes:
    return f"n,,\1auth=Bearer {token}\1\1".encode()


@pytest.mark.parametrize(("lifetime_ms", "token_ms", "expected_ms"), [(0, 7000, 7000), (5000, 7000, 5000), (9000, 7000, 7000)])
def test_a_session_ends_with_its_credential_or_before(lifetime_ms: int, token_ms: int, expected_ms: int) -> None:
    peer = SaslPeer(lifetime_ms, token_ms=token_ms)
    peer.handshake("OAUTHBEARER")
    peer.login(bearer("alice"))
    assert peer.answers() == [2, 3]
    peer.clock.advance(expected_ms / 1000 - 0.001)
    peer.beat(5)
    assert peer.answers() == [5]
    peer.handshake("OAUTHBEARER")
    peer.login(bearer("alice"))
    assert peer.answers() == [2, 3]
    peer.clock.advance(expected_ms / 1000)
    peer.beat(6)
    assert peer.answers() == [] and peer.transport.closing


def test_a_credential_that_has_ended_within_the_skew_of_clocks() -> None:
    peer = SaslPeer(5000, token_ms=-3000)
    peer.handshake("OAUTHBEARER")
    peer.login(bearer("alice"))
    peer.replies()
    peer.beat(5)
    assert peer.answers() == [] and peer.transport.closing


def test_a_refused_token_is_answered_at_once_and_the_failure_late(caplog: pytest.LogCaptureFixture) -> None:
    peer = SaslPeer()
    peer.handshake("OAUTHBEARER")
    peer.replies()
    peer.login(bearer("expired"))
    answer = peer.login_answer()
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, REFUSED) and not peer.transport.closing
    peer.login(b"\1")
    assert peer.answers() == [] and "as 'alice' with OAUTHBEARER on listener L: the token has expired" in caplog.text
    peer.clock.advance(DELAY_S)
    answer = peer.login_answer()
    assert (answer.error_code, answer.error_message) == (58, REFUSED.decode()) and peer.transport.closing
    peer.connection.connectionLost(Failure(ConnectionDone()))
    assert peer.failures.counts["L", "OAUTHBEARER", Cause.TOKEN] == 1


def test_a_client_that_leaves_after_a_refused_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    peer = SaslPeer()
    peer.handshake("OAUTHBEARER")
    peer.login(bearer("expired"))
    peer.connection.connectionLost(Failure(ConnectionDone()))
    assert "as 'alice' with OAUTHBEARER on listener L: the token has expired" in caplog.text
    assert peer.failures.counts["L", "OAUTHBEARER", Cause.TOKEN] == 1


def test_only_the_login_is_taken_while_a_session_is_renewed() -> None:
    peer = limited()
    peer.handshake()
    peer.beat(9)
    assert peer.answers() == [2] and not peer.transport.closing
    peer.clock.advance(DELAY_S)
    assert peer.transport.closing


def test_one_line_a_minute_for_an_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txbroker.security")
    peer = SaslPeer()
    for _ in range(3):
        peer.connect()
        peer.handshake()
        peer.login(WRONG)
    (line,) = caplog.messages
    assert line == (
        "failed authentication of 10.0.0.9:5000 (client id 'me') as 'alice' with PLAIN on listener L: wrong password"
    )
    caplog.clear()
    peer.clock.advance(LOGGED_EVERY_S)
    peer.connect()
    peer.handshake()
    peer.login(b"\0ghost\0secret")
    (line,) = caplog.messages
    assert line.endswith("as 'ghost' with PLAIN on listener L: no such user in the login configuration of PLAIN; "
                         "2 more from this address since the last line about it")  # fmt: skip
    assert "secret" not in line


FRAMES = st.one_of(
    st.binary(max_size=60),
    st.tuples(st.sampled_from([17, 18, 36, 12, 0, 999]), st.integers(0, 5), st.binary(max_size=40)).map(
        lambda parts: struct.pack(">hhi", parts[0], parts[1], 7) + parts[2]
    ),
)


@given(st.lists(FRAMES, max_size=6), st.booleans())
def test_no_frames_lead_past_the_login(frames: list[bytes], raw: bool) -> None:
    peer = SaslPeer()
    if raw:
        peer.handshake(version=0)
    for frame in frames:
        if peer.connection.full or not (peer.sizes()[1] <= len(frame) <= SIZE_MAX):
            break
        peer.send_raw(frame)
    peer.clock.advance(DELAY_S)
    assert not peer.logged_in and peer.transport.session.principal == "User:ANONYMOUS"


def test_tls_on_a_listener_without_it(caplog: pytest.LogCaptureFixture) -> None:
    peer = SaslPeer()
    peer.connection.bad_size(0x16030100, SIZE_MAX)
    assert "requires TLS; listener L://10.0.0.1:9092 is SASL_PLAINTEXT: set security.protocol=SASL_PLAINTEXT in the client" in caplog.text
    assert peer.transport.closing
