"""ConsumerGroupHeartbeat (key 68): refused with UNSUPPORTED_VERSION, as Kafka refuses it while the feature group.version is 0 (KIP-848).

It is advertised, as Kafka does in that state: this error is fatal in every client that has the protocol (librdkafka, Java), while
librdkafka retries forever, silently, where the API is missing.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_group
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from txbroker.wire.schema import Request

_MESSAGE = "This broker does not support the consumer group protocol of KIP-848. Set group.protocol=classic in the consumer."


class ConsumerGroupHeartbeatHandler:
    """Groups use the classic protocol only."""

    request: type[Request] = ConsumerGroupHeartbeatRequest
    resources = on_group(AclOperation.READ)

    def __call__(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerGroupHeartbeatResponse:
        raise UnsupportedFeature(Feature.CONSUMER_PROTOCOL, ErrorCode.UNSUPPORTED_VERSION, _MESSAGE)

    def failed(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, error: BrokerError
    ) -> ConsumerGroupHeartbeatResponse:
        """The error and its message; the member has no epoch."""
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, member_epoch=0, heartbeat_interval_ms=0
        )
