"""The connection of a listener with SASL: nothing is decoded before the client has logged in, but what belongs to that.

As in Kafka: a login that fails is answered after a delay, and the connection ends with the answer; it also ends, after the delay, if the
client sends another request instead. That is answered with ILLEGAL_SASL_STATE if a mechanism was chosen: some clients take a token that was
refused for a login, and show this error. After SaslHandshake v0 the messages of the mechanism come without a header. The principal of the
session is that of the login. A session with a lifetime ends with the first request after it, without an answer, unless that one is
SaslHandshake, which begins another login of the same user (KIP-368).
"""

from __future__ import annotations

import logging
import struct
from typing import Any

from twisted.python.failure import Failure

from txbroker.api.encoded.response_frame import Frame, response_frame
from txbroker.api.registry import Registry, Route
from txbroker.api.request_context import RequestContext
from txbroker.api.sasl_authenticate import after_failure
from txbroker.connection.admission import Begun
from txbroker.connection.protocol import NO_FRAME, START, Connection
from txbroker.connection.response_order import Slot
from txbroker.connection.states import SASL_STATES, OutOfTurn, RequestKind, State, request_kind
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.security.sasl_exchange import Cause, LoginFailed
from txbroker.security.sasl_login import SaslLogin, SaslServer, Turn
from txbroker.transport.interfaces import FrameTransport
from txbroker.wire.messages.api_versions import ApiVersionsResponse
from txbroker.wire.schema import Request

log = logging.getLogger("txbroker.connection")

_SIZE = struct.Struct(">i")
_BEFORE_LOGIN = (State.NEW, State.HANDSHAKE, State.AUTHENTICATING)


class SaslConnection(Connection):
    """Satisfies `FrameProtocol`. `server`: of its listener."""

    __slots__ = ("_intercepts", "_is_waiting", "_login", "_takes_messages")

    def __init__(self, registry: Registry, server: SaslServer) -> None:
        super().__init__(registry, SASL_STATES)
        self._login = SaslLogin(server)
        self._takes_messages = False  # without a header
        self._is_waiting = False  # the next message of the login must wait
        self._intercepts = False  # one of both

    @property
    def takes_messages(self) -> bool:
        """See `Connection`."""
        return self._takes_messages

    def makeConnection(self, transport: FrameTransport) -> None:
        super().makeConnection(transport)
        self._session.login = self._login
        transport.expect_login(self._login.server.message_bytes_max)

    def connectionLost(self, reason: Failure) -> None:
        """A client may end its connection instead of the login that was refused."""
        if self._login.refused:
            self._log_failure(LoginFailed(self._login.refused, cause=Cause.TOKEN))
        super().connectionLost(reason)

    def frame_received(self, frame: memoryview, /) -> bool:
        if not self._intercepts:
            return super().frame_received(frame)
        if self._is_waiting and not self._is_ending:
            self._deferred_frame = self.full = True
            return False
        if not self._takes_messages:
            return super().frame_received(frame)
        if not self._is_ending:
            self._message_received(bytes(frame))
        return True

    def _message_received(self, message: bytes) -> None:
        try:
            answer = self._login.respond(message)
        except LoginFailed as failure:
            self._log_failure(failure)
            self._end_after_delay()
            return
        self._put([_SIZE.pack(len(answer)), answer], _SIZE.size + len(answer))
        self._follow_login()

    def _enter(self, route: Route) -> bool:
        if self._state is State.LIMITED:
            login, kind = self._login, request_kind(route.api_key)
            if not (kind is RequestKind.SASL_HANDSHAKE and login.renew()):
                if login.is_expired():
                    self._close("session_expired", "its session has expired", is_logged=True)
                return not self._is_ending
        return super()._enter(route)

    def _respond(
        self, response: Any, route: Route, request: Request, context: RequestContext, held: int, begun: Begun | None
    ) -> None:
        super()._respond(response, route, request, context, held, begun)
        if self._state is State.HANDSHAKE and response.__class__ is ApiVersionsResponse and response.error_code:
            self._state = State.NEW  # it may be repeated
        elif self._state is State.AUTHENTICATING:
            self._follow_login()

    def _follow_login(self) -> None:
        """What comes after a message of the login."""
        login = self._login
        if login.failed is not None:
            self._log_failure(login.failed)
            if self._slots:
                self._end(self._slots[-1])  # the answer, which waits for the delay
            else:
                self._end_after_delay()
        elif login.turn is Turn.NOTHING:
            self._takes_messages = self._intercepts = False
            self._session.principal = login.principal
            if self._session.audit is not None:
                self._session.audit.logged_in(self._session, self._client_id, login.mechanism)
            self._state = State.LIMITED if login.is_limited else State.READY
            self._transport.logged_in()
        elif login.turn is Turn.MESSAGE:
            if not login.is_framed and not self._takes_messages:
                self._takes_messages = self._intercepts = True
                self._transport.limit_frames(login.server.message_bytes_max, 0)
            waits = login.wait()
            if waits is not None:
                self._is_waiting = self._intercepts = True
                waits.addCallback(self._go_on)

    def _go_on(self, _: None) -> None:
        self._is_waiting, self._intercepts = False, self._takes_messages
        if self._deferred_frame and self._state is not State.CLOSED:
            self._resume()

    def _refuse(self, frame: memoryview, error: ProtocolError) -> None:
        if self._state is not State.AUTHENTICATING or not isinstance(error, OutOfTurn) or self._is_ending:
            super()._refuse(frame, error)
            return
        self._registry.closed["unparsable_request"] += 1
        self._log_failure(LoginFailed(str(error)))
        self._end_after_delay(self._out_of_turn(frame))

    def _out_of_turn(self, frame: memoryview) -> Frame:
        """The error in the form of the request's own response (SaslServerAuthenticator.handleSaslToken); nothing if there is none."""
        key, correlation_id = START.unpack_from(frame)
        route = self._routes[key]
        try:
            request = route.decode(frame[self._body_position(frame, route.request_header) :])
        except ProtocolError:
            return NO_FRAME
        try:
            context = RequestContext(route.api_key, route.api_version, correlation_id, self._client_id, self._session)
            text = f"Unexpected Kafka request of type {route.name} during SASL authentication."
            failed = route.failed if route.is_answered(request) else None
            response = None if failed is None else failed(request, context, BrokerError(ErrorCode.ILLEGAL_SASL_STATE, text))
            return NO_FRAME if response is None else response_frame(response, route.encode, route.response_header, correlation_id)
        except Exception:
            log.exception("internal error: there is no error response to %s from %s", route.name, self._who())
            return NO_FRAME
        finally:
            if route.release_records is not None:
                route.release_records(request)

    def _close(self, reason: str, why: str, slot: Slot | None = None, *, is_logged: bool = False) -> None:
        if self._state in _BEFORE_LOGIN:
            self._registry.closed[reason] += 1
            self._log_failure(LoginFailed(why))
            self._end_after_delay()
        else:
            super()._close(reason, why, slot, is_logged=is_logged)

    def _size_key(self) -> str:
        return "sasl.server.max.receive.size" if self._state in _BEFORE_LOGIN else super()._size_key()

    def _end_after_delay(self, answer: Frame = NO_FRAME) -> None:
        """Take no more requests, and close the connection when the delay is over, with this answer."""
        later = after_failure(self._login, answer)
        slot = self._reserve(later, 0)
        later.addCallbacks(self._delay_over, lambda _: None, callbackArgs=(slot,))
        self._end(slot)

    def _delay_over(self, answer: Frame, slot: Slot) -> None:
        if self._state is not State.CLOSED:
            slot.later = None
            self._fill(slot, *answer)
            self._drain()

    def _log_failure(self, failure: LoginFailed) -> None:
        login, session = self._login, self._session
        mechanism = f" with {login.mechanism}" if login.mechanism else ""
        who = f"{self._who()} as {login.user}{mechanism}"
        login.server.failures.failed(session.peer_host, session.listener, login.mechanism, who, failure)
        if session.audit is not None:
            session.audit.login_failed(session, self._client_id, login.mechanism, login.claimed, failure.cause, failure.reason)
