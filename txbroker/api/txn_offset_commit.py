"""TxnOffsetCommit (key 28): a producer commits a group's offsets in its transaction (KIP-98, KIP-447).

Behaviour: the offsets are written to the group's partition of `__consumer_offsets` and count when the transaction is committed. First it is
verified that the transaction has that partition (KIP-890).
Version notes: v2 leader epochs, and clients that know COORDINATOR_LOAD_IN_PROGRESS; v3 the consumer's generation, member and instance id,
by which it is fenced; v4 TRANSACTION_ABORTABLE; with v5 (transactions v2) this broker adds the partition to the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred

from txbroker.api.group_offsets import check_knows_topics
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Need, Rights
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.replicas import Replicas
from txbroker.coordinators.state_log import TransactionalProducer
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.groups.group_results import OffsetCommit
from txbroker.names import OFFSETS_TOPIC, TopicPartition
from txbroker.transactions.verification import NO_SEQUENCE, Claim, Operation, TransactionVerifier
from txbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from txbroker.wire.schema import Request

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
ADDING_VERSION = 5

# The coordinator of the transaction cannot be reached, or is busy: clients repeat the request after this error without another look-up.
_RETRIABLE = dict.fromkeys(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class TxnOffsetCommitHandler:
    """Commits offsets of a group in a transaction."""

    request: type[Request] = TxnOffsetCommitRequest
    rights: Rights = (
        (AclOperation.WRITE, AclResource.TRANSACTIONAL_ID),
        (AclOperation.READ, AclResource.GROUP),
        (AclOperation.READ, AclResource.TOPIC),
    )

    def __init__(self, groups: GroupCoordinator, image: ClusterImage, replicas: Replicas, verifier: TransactionVerifier) -> None:
        self._groups = groups
        self._image = image
        self._replicas = replicas
        self._verifier = verifier

    def __call__(self, request: TxnOffsetCommitRequest, context: RequestContext) -> Deferred[TxnOffsetCommitResponse]:
        return Deferred.fromCoroutine(self._commit(request, context.api_version))

    async def _commit(self, request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
        check_knows_topics(self._image)
        offsets = {
            TopicPartition(topic.name, p.partition_index): OffsetCommit(
                offset=p.committed_offset, leader_epoch=p.committed_leader_epoch, metadata=p.committed_metadata
            )
            for topic in request.topics
            for p in topic.partitions
            if self._image.partition(topic.name, p.partition_index) is not None
        }
        if not offsets:
            return _answer(request, {})
        code = await self._verify(request, version)
        if code:
            return _answer(request, dict.fromkeys(offsets, _known(code, version)))
        codes = await self._groups.commit_pending_offsets(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            TransactionalProducer(request.producer_id, request.producer_epoch),
            offsets,
        )
        return _answer(request, {partition: _known(code, version) for partition, code in codes.items()})

    async def _verify(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        """NONE if the offsets may be appended now."""
        index = self._groups.partition_of(request.group_id)
        code = ErrorCode.NOT_COORDINATOR if index is None else self._groups.check_coordinates(index)
        if code or index is None:
            return code
        operation = Operation.ADD if version >= ADDING_VERSION else Operation.VERIFY
        claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch, NO_SEQUENCE, operation)
        try:
            code = await self._verifier.verify(self._replicas.get(OFFSETS_TOPIC, index), claim)
        except BrokerError:
            return ErrorCode.NOT_COORDINATOR
        if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        return _RETRIABLE.get(code, code)

    @staticmethod
    def resources(request: TxnOffsetCommitRequest, context: RequestContext) -> Sequence[Need]:
        """WRITE on the transactional id, READ on the group and on each topic."""
        return (
            Need(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, (request.transactional_id,)),
            Need(AclOperation.READ, AclResource.GROUP, (request.group_id,)),
            Need(AclOperation.READ, AclResource.TOPIC, [topic.name for topic in request.topics], "topics", "topics"),
        )

    def failed(self, request: TxnOffsetCommitRequest, context: RequestContext, error: BrokerError) -> TxnOffsetCommitResponse:
        """Every partition with the same error."""
        codes = {TopicPartition(topic.name, p.partition_index): error.code for topic in request.topics for p in topic.partitions}
        return _answer(request, codes)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _answer(request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode]) -> TxnOffsetCommitResponse:
    """The response; a partition without a code does not exist."""
    topics = []
    for topic in request.topics:
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=p.partition_index,
                error_code=codes.get(TopicPartition(topic.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for p in topic.partitions
        ]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)
