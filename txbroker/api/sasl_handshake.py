"""SaslHandshake (key 17): a client names the mechanism by which it logs in (KIP-43, SaslServerAuthenticator).

A client that has logged in may do so again if its session has a lifetime (KIP-368). Any other request is refused with ILLEGAL_SASL_STATE,
also on a listener without SASL, as by Kafka (KafkaApis). There the API is not advertised, although Kafka does so: librdkafka, kafka-python
and aiokafka then fail without sending it, with a clear sentence; with it advertised, kafka-python retries for 30 s. Java's client always
sends it, and fails at once on this error.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import in_place
from txbroker.api.sasl_authenticate import after_failure
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.sasl_login import Turn
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from txbroker.wire.schema import Request

FRAMED_VERSION = 1  # from here on the messages of the mechanism are in SaslAuthenticate requests


class SaslHandshakeHandler:
    """Begins the login of a connection. The response always has the enabled mechanisms."""

    request: type[Request] = SaslHandshakeRequest
    resources = staticmethod(in_place)
    advertised = False
    for_login = True

    def __call__(
        self, request: SaslHandshakeRequest, context: RequestContext
    ) -> SaslHandshakeResponse | Deferred[SaslHandshakeResponse]:
        login = context.session.login
        if login is None:
            raise UnsupportedFeature(Feature.SASL, ErrorCode.ILLEGAL_SASL_STATE, "the listener is PLAINTEXT")
        if login.turn is not Turn.MECHANISM:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE)
        mechanisms = list(login.server.mechanisms)
        try:
            login.begin(request.mechanism, is_framed=context.api_version >= FRAMED_VERSION)
        except LoginFailed as failure:
            return after_failure(login, SaslHandshakeResponse(error_code=failure.code, mechanisms=mechanisms))
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms)

    def failed(self, request: SaslHandshakeRequest, context: RequestContext, error: BrokerError) -> SaslHandshakeResponse:
        """The error, and no enabled mechanism."""
        return SaslHandshakeResponse(error_code=error.code, mechanisms=[])
