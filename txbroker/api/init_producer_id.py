"""InitProducerId (key 22): a producer id and epoch for an idempotent producer (KIP-98, KIP-360).

Behaviour: a producer without a transactional id gets a new producer id with epoch 0, even if it had one before. Transactions are not
supported: a transactional id is refused with UNSUPPORTED_VERSION, after Kafka's checks of its timeout.
Version notes: v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not served.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.request_context import RequestContext
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.schema import Request, VersionRange

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class InitProducerIdHandler:
    """Allocates producer ids; `next_id` takes them from blocks that are reserved in the metadata tree."""

    request: type[Request] = InitProducerIdRequest
    versions = VersionRange(0, 5)

    def __init__(self, next_id: Callable[[], Deferred[int]], transaction_timeout_max_ms: int) -> None:
        self._next_id = next_id
        self._transaction_timeout_max_ms = transaction_timeout_max_ms

    def __call__(self, request: InitProducerIdRequest, context: RequestContext) -> Deferred[InitProducerIdResponse]:
        if request.transactional_id is not None:
            self._refuse_transactional(request)
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "send producer id and epoch together, or neither")
        return self._next_id().addCallback(_answer)

    def _refuse_transactional(self, request: InitProducerIdRequest) -> None:
        if request.transactional_id == "":
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < request.transaction_timeout_ms <= self._transaction_timeout_max_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        raise UnsupportedFeature(Feature.TRANSACTIONS, ErrorCode.UNSUPPORTED_VERSION, "transactions are not supported")

    def failed(self, request: InitProducerIdRequest, context: RequestContext, error: BrokerError) -> InitProducerIdResponse:
        """The error, without a producer id."""
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )


def _answer(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
