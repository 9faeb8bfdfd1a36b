"""SaslHandshake (key 17): refused with ILLEGAL_SASL_STATE, as Kafka refuses it on a PLAINTEXT listener (KIP-43, KafkaApis).

It is not advertised, although Kafka does so: librdkafka, kafka-python and aiokafka then fail without sending it, with a clear sentence;
with it advertised, kafka-python retries for 30 s. Java's client always sends it, and fails at once on this error.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import in_place
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from txbroker.wire.schema import Request


class SaslHandshakeHandler:
    """No listener authenticates its clients."""

    request: type[Request] = SaslHandshakeRequest
    resources = staticmethod(in_place)
    advertised = False

    def __call__(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        raise UnsupportedFeature(Feature.SASL, ErrorCode.ILLEGAL_SASL_STATE, "the listener is PLAINTEXT")

    def failed(self, request: SaslHandshakeRequest, context: RequestContext, error: BrokerError) -> SaslHandshakeResponse:
        """The error, and no enabled mechanism."""
        return SaslHandshakeResponse(error_code=error.code, mechanisms=[])
