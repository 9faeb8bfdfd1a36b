"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (keys 24, 25, 26): the requests of a transaction to its coordinator (KIP-98).

Behaviour: partitions are added before the first record is produced to them, the group's partition of `__consumer_offsets` before offsets
are committed. With transactions v2 (KIP-890) clients do not add partitions: the partition's leader does, or verifies that the client has.
If one partition of a transaction does not exist, none is added: the others are answered with OPERATION_NOT_ATTEMPTED.
Version notes: AddPartitionsToTxn v4 is for brokers, with several transactions in a request. A producer that is fenced gets PRODUCER_FENCED
since v2 of the three requests (KIP-588), INVALID_PRODUCER_EPOCH before. A failed verification is TRANSACTION_ABORTABLE since v5 (KIP-890),
INVALID_TXN_STATE before. EndTxn v5 raises the producer's epoch and returns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred, gatherResults

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource, Need, Rights, on_transactional_id
from txbroker.api.topic_creation import TopicCreation
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS, OFFSETS_TOPIC, TopicPartition, coordinator_partition
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.transaction import EPOCH_BUMP_VERSION, Producer
from txbroker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from txbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from txbroker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from txbroker.wire.schema import Request

FENCED_VERSION = 2  # of all three requests: clients know PRODUCER_FENCED
BATCHED_VERSION = 4  # of AddPartitionsToTxn: sent by brokers
ABORTABLE_VERSION = 5  # of AddPartitionsToTxn
EPOCH_VERSION = 5  # of EndTxn
CLASSIC_VERSION = 0  # of transactions: the epoch stays the same


class AddPartitionsToTxnHandler:
    """Adds partitions to open transactions, or verifies that they were added."""

    request: type[Request] = AddPartitionsToTxnRequest
    rights: Rights = (
        (AclOperation.WRITE, AclResource.TRANSACTIONAL_ID),
        (AclOperation.WRITE, AclResource.TOPIC),
        (AclOperation.CLUSTER_ACTION, AclResource.CLUSTER),
    )

    def __init__(self, coordinator: TransactionCoordinator, image: ClusterImage) -> None:
        self._coordinator = coordinator
        self._image = image

    def __call__(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Deferred[AddPartitionsToTxnResponse]:
        return self._add(request, context.api_version, context)

    def add(self, request: AddPartitionsToTxnRequest) -> Deferred[AddPartitionsToTxnResponse]:
        """A request in the newest version; for leaders in this process."""
        return self._add(request, self.request.versions.high)

    def _add(
        self, request: AddPartitionsToTxnRequest, version: int, context: RequestContext | None = None
    ) -> Deferred[AddPartitionsToTxnResponse]:
        served = [Deferred.fromCoroutine(self._serve(transaction, version, context)) for transaction in _transactions(request, version)]
        return gatherResults(served, consumeErrors=True).addCallback(_added, version)

    async def _serve(
        self, transaction: AddPartitionsToTxnTransaction, version: int, context: RequestContext | None
    ) -> AddPartitionsToTxnResult:
        partitions = _partitions(transaction)
        refused = {partition: code for partition in partitions if (code := self._refusal(partition, version, context)) is not None}
        if refused:
            return _result(transaction, dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        try:
            if transaction.verify_only:
                verified = self._coordinator.verify(transaction.transactional_id, producer, partitions)
                unverified = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_VERSION else ErrorCode.INVALID_TXN_STATE
                return _result(transaction, {p: ErrorCode.NONE if is_open else unverified for p, is_open in verified.items()})
            kind = EPOCH_BUMP_VERSION if version >= BATCHED_VERSION else CLASSIC_VERSION
            await self._coordinator.add_partitions(transaction.transactional_id, producer, partitions, kind)
        except BrokerError as error:
            return _result(transaction, dict.fromkeys(partitions, _known(error.code, version)))
        return _result(transaction, dict.fromkeys(partitions, ErrorCode.NONE))

    def _refusal(self, partition: TopicPartition, version: int, context: RequestContext | None) -> ErrorCode | None:
        """Why a partition cannot be added (KafkaApis): for a client, only AddOffsetsToTxn adds one of an internal topic.

        `context`: of a request that was received.
        """
        if version < BATCHED_VERSION and context is not None:
            denied = context.is_checked and not context.may(AclOperation.WRITE, AclResource.TOPIC, partition.topic)
            if denied or partition.topic in INTERNAL_TOPICS:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._image.partition(*partition) is None else None

    @staticmethod
    def resources(request: AddPartitionsToTxnRequest, context: RequestContext) -> Sequence[Need]:
        """A client needs WRITE on the transactional id, and on each topic, for which `_refusal` asks; from v4 on it is a broker."""
        if context.api_version >= BATCHED_VERSION:
            return (Need(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, (CLUSTER_NAME,)),)
        return (Need(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, (request.v3_and_below_transactional_id,)),)

    def failed(self, request: AddPartitionsToTxnRequest, context: RequestContext, error: BrokerError) -> AddPartitionsToTxnResponse:
        """The error for the whole request, and before v4 for every partition."""
        version = context.api_version
        if version >= BATCHED_VERSION:
            return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=error.code)
        refused = [_result(t, dict.fromkeys(_partitions(t), _known(error.code, version))) for t in _transactions(request, version)]
        return _added(refused, version)


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    if version >= BATCHED_VERSION:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    topics: Iterable[AddPartitionsToTxnTopic] = transaction.topics
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _result(transaction: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
    results = [AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions) for name, partitions in topics.items()]
    return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)


def _added(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_VERSION:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION else code


class AddOffsetsToTxnHandler:
    """Adds the partition of `__consumer_offsets` that stores a group's offsets."""

    request: type[Request] = AddOffsetsToTxnRequest
    rights: Rights = ((AclOperation.WRITE, AclResource.TRANSACTIONAL_ID), (AclOperation.READ, AclResource.GROUP))

    def __init__(self, coordinator: TransactionCoordinator, image: ClusterImage, creation: TopicCreation) -> None:
        self._coordinator = coordinator
        self._image = image
        self._creation = creation

    def __call__(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Deferred[AddOffsetsToTxnResponse]:
        return Deferred.fromCoroutine(self._serve(request))

    async def _serve(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        if self._image.topic(OFFSETS_TOPIC) is None:
            await self._creation.internal(OFFSETS_TOPIC)
        topic = self._image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        partition = TopicPartition(OFFSETS_TOPIC, coordinator_partition(request.group_id, len(topic.partitions)))
        producer = Producer(request.producer_id, request.producer_epoch)
        await self._coordinator.add_partitions(request.transactional_id, producer, [partition], CLASSIC_VERSION)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE)

    @staticmethod
    def resources(request: AddOffsetsToTxnRequest, context: RequestContext) -> Sequence[Need]:
        """WRITE on the transactional id, READ on the group."""
        transactional_id = Need(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, (request.transactional_id,))
        return transactional_id, Need(AclOperation.READ, AclResource.GROUP, (request.group_id,))

    def failed(self, request: AddOffsetsToTxnRequest, context: RequestContext, error: BrokerError) -> AddOffsetsToTxnResponse:
        """Only the error."""
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=_known(error.code, context.api_version))


class EndTxnHandler:
    """Commits or aborts a transaction."""

    request: type[Request] = EndTxnRequest
    resources = on_transactional_id(AclOperation.WRITE)

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: EndTxnRequest, context: RequestContext) -> Deferred[EndTxnResponse]:
        return Deferred.fromCoroutine(self._serve(request, context.api_version))

    async def _serve(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        producer = await self._coordinator.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=EPOCH_BUMP_VERSION if version >= EPOCH_VERSION else CLASSIC_VERSION,
        )
        return EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer.id, producer_epoch=producer.epoch)

    def failed(self, request: EndTxnRequest, context: RequestContext, error: BrokerError) -> EndTxnResponse:
        """Only the error."""
        return EndTxnResponse(throttle_time_ms=0, error_code=_known(error.code, context.api_version))
