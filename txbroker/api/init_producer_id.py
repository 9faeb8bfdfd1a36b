"""InitProducerId (key 22): a producer id and epoch for an idempotent or transactional producer (KIP-98, KIP-360).

Behaviour: a producer without a transactional id gets a new producer id with epoch 0, even if it had one before. One with a transactional
id is served by the id's transaction coordinator, which fences the producer before it.
Version notes: v4 returns PRODUCER_FENCED to a fenced producer (KIP-588), INVALID_PRODUCER_EPOCH before. v6 (two-phase commit, KIP-939) is
unstable in Kafka 4.3 and not served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource, Need, Rights
from txbroker.errors import BrokerError, ErrorCode
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.transaction import Producer
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.schema import Request, VersionRange

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCED_VERSION = 4


class InitProducerIdHandler:
    """Allocates producer ids; `next_id` takes them from blocks that are reserved in the metadata tree."""

    request: type[Request] = InitProducerIdRequest
    rights: Rights = (
        (AclOperation.WRITE, AclResource.TRANSACTIONAL_ID),
        (AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER),
        (AclOperation.WRITE, AclResource.TOPIC),
    )
    refused: Sequence[AclResource] = (AclResource.TRANSACTIONAL_ID, AclResource.CLUSTER)
    versions = VersionRange(0, 5)

    def __init__(self, next_id: Callable[[], Deferred[int]], coordinator: TransactionCoordinator) -> None:
        self._next_id = next_id
        self._coordinator = coordinator

    def __call__(self, request: InitProducerIdRequest, context: RequestContext) -> Deferred[InitProducerIdResponse]:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "send producer id and epoch together, or neither")
        transactional_id = request.transactional_id
        if transactional_id is None:
            return self._next_id().addCallback(lambda producer_id: _answer(Producer(producer_id, 0)))
        expected = None if request.producer_id == NO_PRODUCER_ID else Producer(request.producer_id, request.producer_epoch)
        initialized = self._coordinator.initialize(transactional_id, request.transaction_timeout_ms, expected)
        return Deferred.fromCoroutine(initialized).addCallback(_answer)

    @staticmethod
    def resources(request: InitProducerIdRequest, context: RequestContext) -> Sequence[Need]:
        """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
        if request.transactional_id is not None:
            return (Need(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, (request.transactional_id,)),)
        any_topic = (AclOperation.WRITE, AclResource.TOPIC)
        return (Need(AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, (CLUSTER_NAME,), anywhere=any_topic),)

    def failed(self, request: InitProducerIdRequest, context: RequestContext, error: BrokerError) -> InitProducerIdResponse:
        """The error, without a producer id."""
        fenced = error.code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error.code,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )


def _answer(producer: Producer) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer.id, producer_epoch=producer.epoch)
