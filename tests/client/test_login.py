"""The login of the client machine, with the broker's side of the mechanisms as its peer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.client.peer import HEARTBEAT, VERSIONS, heartbeat_response, requests_in, response_bytes, take_requests, versions_response
from tests.security.test_scram import credential
from txbroker.client.client_errors import LoginRefused, TooOld
from txbroker.client.client_machine import RENEWED_AT, ClientMachine, ClientSettings, State
from txbroker.client.client_security import ClientSecurity, Sasl
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.sasl_plain import PlainExchange
from txbroker.security.scram import ScramExchange
from txbroker.wire.codec import decode
from txbroker.wire.headers import read_client_id, request_header_version
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SASL_VERSIONS = {**VERSIONS, SaslHandshakeRequest.api_key: (0, 1), SaslAuthenticateRequest.api_key: (0, 2)}
LIFETIME_MS = 10_000


class Broker:
    """Answers the requests of a login."""

    def __init__(self, machine: ClientMachine[Any], lifetime_ms: int = 0) -> None:
        self._machine = machine
        self._lifetime_ms = lifetime_ms
        self._exchange: Any = None
        self.messages: list[str] = []

    def answer(self) -> None:
        """Answer all that is sent, until nothing more is."""
        while self._machine.unsent:
            data = b"".join(self._machine.outgoing())
            self._machine.sent(len(data))
            (sent,) = requests_in(data)
            self._machine.feed(self._one(sent, memoryview(data)[4:]))

    def _one(self, sent: Any, frame: memoryview) -> bytes:
        if sent.api_key == SaslHandshakeRequest.api_key:
            handshake = self._body(SaslHandshakeRequest, sent.version, frame)
            self.messages.append(handshake.mechanism)
            plain, scram = PlainExchange({"alice": "secret"}), credential("SCRAM-SHA-256", "secret")
            is_plain = handshake.mechanism == "PLAIN"
            self._exchange = plain if is_plain else ScramExchange("SCRAM-SHA-256", {"alice": scram}.get, "server", b"x")
            code = 0 if handshake.mechanism in ("PLAIN", "SCRAM-SHA-256") else 33
            answer: Any = SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN", "SCRAM-SHA-256"])
            return response_bytes(SaslHandshakeRequest, sent.version, sent.correlation_id, answer)
        message = self._body(SaslAuthenticateRequest, sent.version, frame).auth_bytes
        try:
            content = self._exchange.respond(bytes(message))
        except LoginFailed as failure:
            answer = SaslAuthenticateResponse(error_code=58, error_message=failure.message, auth_bytes=b"", session_lifetime_ms=0)
        else:
            lifetime_ms = self._lifetime_ms if self._exchange.is_complete else 0
            answer = SaslAuthenticateResponse(error_code=0, error_message="", auth_bytes=content, session_lifetime_ms=lifetime_ms)
        return response_bytes(SaslAuthenticateRequest, sent.version, sent.correlation_id, answer)

    def _body(self, kind: Any, version: int, frame: memoryview) -> Any:
        _, position = read_client_id(frame, request_header_version(kind, version))
        return decode(kind, version, frame[position:])


def negotiated(sasl: Sasl, versions: dict[int, tuple[int, int]] = SASL_VERSIONS) -> ClientMachine[Any]:
    """A machine that knows the versions of its broker."""
    nonces = (f"nonce{number}" for number in itertools.count())
    settings = ClientSettings(security=ClientSecurity("SASL_PLAINTEXT", None, sasl))
    machine: ClientMachine[Any] = ClientMachine("b:1", settings, lambda: 0.5, lambda: next(nonces))
    machine.connect_started(0)
    machine.connected(0)
    (sent,) = take_requests(machine)
    machine.feed(versions_response(sent, versions))
    return machine


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_machine_is_ready_when_it_has_logged_in(mechanism: str) -> None:
    machine = negotiated(Sasl(mechanism, "alice", "secret"))
    assert machine.state is State.NEGOTIATING and not machine.ready and machine.deadline_s is not None
    Broker(machine).answer()
    assert machine.ready and machine.failure is None and machine.deadline_s is None
    machine.check_session(1e9)
    assert machine.ready, "the session has no end"


@pytest.mark.parametrize(("sasl", "text"), [
    (Sasl("PLAIN", "alice", "guess"), "user alice could not log in: Authentication failed: Invalid username or password"),
    (Sasl("SCRAM-SHA-256", "alice", "guess"), "user alice could not log in"),
    (Sasl("SCRAM-SHA-512", "alice", "secret"), "does not support the SASL mechanism SCRAM-SHA-512, but PLAIN, SCRAM-SHA-256"),
])  # fmt: skip
def test_a_refused_login_is_the_failure_of_the_connection(sasl: Sasl, text: str) -> None:
    machine = negotiated(sasl)
    Broker(machine).answer()
    assert isinstance(machine.failure, LoginRefused) and text in str(machine.failure)
    assert not machine.ready
    assert machine.disconnected(1) == []


def test_a_broker_without_sasl() -> None:
    machine = negotiated(Sasl("PLAIN", "alice", "secret"), VERSIONS)
    assert isinstance(machine.failure, TooOld) and "b:1 does not offer SASL" in str(machine.failure)


def test_a_session_is_renewed_between_requests() -> None:
    machine = negotiated(Sasl("SCRAM-SHA-256", "alice", "secret"))
    broker = Broker(machine, LIFETIME_MS)
    broker.answer()
    machine.check_session(100)
    machine.send(HEARTBEAT, "a", 100)
    (sent,) = take_requests(machine)
    renewal_s = 100 + LIFETIME_MS / 1000 * RENEWED_AT
    machine.check_session(renewal_s - 0.1)
    assert machine.ready
    machine.check_session(renewal_s)
    assert machine.state is State.RENEWING and not machine.ready and not machine.unsent, "a request is in flight"
    (completed,) = machine.feed(heartbeat_response(sent))
    assert completed.context == "a"
    machine.check_session(renewal_s)
    assert machine.unsent and machine.deadline_s == renewal_s + machine.settings.request_timeout_s
    broker.answer()
    assert machine.ready and broker.messages == ["SCRAM-SHA-256"] * 2
    machine.check_session(renewal_s + 1)
    machine.check_session(renewal_s + 1 + LIFETIME_MS / 1000 * RENEWED_AT)
    broker.answer()
    assert machine.ready and len(broker.messages) == 3
    machine.disconnected(200)
    machine.connect_started(201)
    machine.check_session(300)
    assert machine.state is State.CONNECTING, "another connection has a session of its own"
