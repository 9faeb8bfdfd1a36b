"""SaslAuthenticate (key 36): the messages of a login (KIP-152), and how long the session lasts (KIP-368).

The answer to a login that fails waits for connection.failed.authentication.delay.ms, as most clients try again for ever; the connection
then ends.
"""

from __future__ import annotations

from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import in_place
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.sasl_login import SaslLogin, Turn
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.schema import Request

T = TypeVar("T")


class SaslAuthenticateHandler:
    """Passes the messages to the login of the connection."""

    request: type[Request] = SaslAuthenticateRequest
    resources = staticmethod(in_place)
    advertised = False
    for_login = True

    def __call__(
        self, request: SaslAuthenticateRequest, context: RequestContext
    ) -> SaslAuthenticateResponse | Deferred[SaslAuthenticateResponse]:
        login = context.session.login
        if login is None or login.turn is not Turn.MESSAGE:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication")
        try:
            answer = login.respond(bytes(request.auth_bytes))
        except LoginFailed as failure:
            return after_failure(login, self.failed(request, context, failure))
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=answer, session_lifetime_ms=login.lifetime_ms
        )

    def failed(self, request: SaslAuthenticateRequest, context: RequestContext, error: BrokerError) -> SaslAuthenticateResponse:
        """The error alone."""
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message, auth_bytes=b"")


def after_failure(login: SaslLogin, response: T) -> Deferred[T]:
    """The response to a client that could not log in, when the delay is over."""
    server = login.server
    return deferLater(server.clock, server.failures.delay_s(server.failure_delay_s), lambda: response)  # type: ignore[arg-type]
