"""Produce (key 0): append record batches to partitions that this broker leads.

Behaviour: acks=0 gets no response (after an error the connection is closed, as in Kafka); acks=1 gets it when the leader has appended the
records; acks=all when every in-sync replica has them, or REQUEST_TIMED_OUT. Both wait for the sync that flush.messages requires.
Each partition fails or succeeds alone. The first batch of a transaction in a partition waits until the coordinator has confirmed that the
transaction has the partition, or has added it (KIP-890, `transactions/verification.py`). While it cannot be asked, the error is
NOT_ENOUGH_REPLICAS, after which clients send the batch again.
Version notes: v0-v2 have the old message sets, which the log converts; from v3 on there is exactly one v2 batch for each partition.
zstd requires v7 (KIP-110). v10 has the current leaders for a client at the wrong broker (KIP-951). v11 clients know TRANSACTION_ABORTABLE;
for v12, which clients use with transactions v2, the leader adds the partition to the transaction. v13 identifies topics by id (KIP-516).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred, gatherResults

from txbroker.api.authorization import denial
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.response_frame import Frame
from txbroker.api.produce_response import ACKS_ALL, Outcome, ProduceAnswers, ProduceResponses, failure
from txbroker.api.produce_verification import ProduceVerification, Unverified, Verified
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.api.resources import AclOperation, AclResource, Need, Rights
from txbroker.api.unanswered_appends import Unanswered, UnansweredAppends
from txbroker.cluster.partition import Partition
from txbroker.cluster.refused_sequences import PASSING
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log_results import Appended, Origin
from txbroker.names import INTERNAL_TOPICS, MIRROR_CLIENT_ID
from txbroker.purgatory import Purgatory
from txbroker.transactions.verification import TransactionVerifier
from txbroker.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from txbroker.wire.schema import Request

log = logging.getLogger("txbroker.api")

ZSTD_VERSION = 7
CURRENT_LEADER_VERSION = 10
BATCH_VERSION = 3  # from here on a partition's data is exactly one v2 batch
TOPIC_ID_VERSION = 13
INTERNAL_CLIENT_ID = "__admin_client"  # Kafka lets only this client id write to internal topics

_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22  # the low byte of a v2 batch's attributes
_CODEC = 7
_ZSTD = 4
_TRANSACTIONAL = 0x10
_MAGIC = 2
# Errors that Kafka (ReplicaManager.appendToLocalLog) does not count as failures of the broker, beside those of size.
_NO_FAILURES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


# What became of a partition's records, and of those of a request.
_Tried: TypeAlias = "Outcome | Unverified"
_Outcomes: TypeAlias = Sequence[tuple[TopicProduceData, Sequence[tuple[PartitionProduceData, _Tried]]]]


class ProduceHandler:
    """Appends; parks acks=all until all in-sync replicas have the records, and acks=1 until the log is synced if that is required."""

    request: type[Request] = ProduceRequest
    rights: Rights = ((AclOperation.WRITE, AclResource.TRANSACTIONAL_ID), (AclOperation.WRITE, AclResource.TOPIC))
    overlaps = True

    def __init__(
        self,
        replicas: Replicas,
        leaders: CurrentLeaders,
        purgatory: Purgatory,
        verifier: TransactionVerifier,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._leaders = leaders
        self._purgatory = purgatory
        self._verification = ProduceVerification(verifier)
        self._now_ms = now_ms
        self._responses = ProduceResponses()
        self._unanswered = UnansweredAppends(monotonic_s)
        self.errors: Errors = Counter()

    def __call__(
        self, request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse | Frame | Deferred[ProduceResponse] | None:
        acks, transactional_id, topics = request.acks, request.transactional_id, request.topic_data
        is_valid = acks in (0, 1, ACKS_ALL)
        if transactional_id is None and (len(topics) != 1 or len(topics[0].partition_data) != 1 or not is_valid):
            _check_id(request)  # of a single partition below, where its batch is looked at
        if not is_valid:
            return self._refused(request, BrokerError(ErrorCode.INVALID_REQUIRED_ACKS))
        now_ms = self._now_ms()
        all_in_sync = acks == ACKS_ALL
        done = acks != 0  # and may be answered
        outcomes: list[tuple[TopicProduceData, list[tuple[PartitionProduceData, Any]]]] = []
        for topic in topics:
            tried: list[tuple[PartitionProduceData, _Tried]] = []
            outcomes.append((topic, tried))
            for data in topic.partition_data:
                outcome: _Tried
                try:
                    outcome = partition, appended = self._append(topic, data, all_in_sync, now_ms, context, transactional_id)
                    if partition.high_watermark <= appended.last_offset and not partition.acknowledged(appended.last_offset, all_in_sync):
                        done = False
                except BrokerError as error:
                    if transactional_id is None:
                        _check_id(request)
                    outcome = self._count_failure(topic, data, error, context)
                    done = False
                except Unverified as unverified:
                    outcome = unverified.with_traceback(None)  # its frames refer to the bytes of the request
                    done = False
                except Exception as defect:  # other partitions have their records, and must be answered so
                    outcome = self._count_failure(topic, data, defect, context)
                    done = False
                tried.append((data, outcome))
        if done:
            encoded = self._responses.encoded(context.api_version, context.correlation_id, outcomes)
            if encoded is not None:
                return encoded
        if acks or transactional_id is not None:
            return self._answer(request, outcomes, context)
        for topic, tried in outcomes:
            for data, result in tried:
                if isinstance(result, BrokerError):
                    raise self._unanswered.failed(result, self._failed_directory(topic, data, result, context))
        return None

    def _append(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        all_in_sync: bool,
        now_ms: int,
        context: RequestContext,
        transactional_id: str | None,
        verified: bool = False,
    ) -> tuple[Partition, Appended]:
        """Append to one partition; BrokerError, Unverified."""
        version = context.api_version
        try:
            if version >= TOPIC_ID_VERSION:
                partition = self._replicas.get_by_id(topic.topic_id, data.index)
            else:
                partition = self._replicas.get(topic.name, data.index)
        except BrokerError:
            _check_topic(self._topic_name(topic, version), context)
            raise
        if partition.topic_partition[0] in INTERNAL_TOPICS:
            _check_topic(partition.topic_partition.topic, context)
        records: Any = data.records  # decoded records are views of the frame
        if version < ZSTD_VERSION or records is None or len(records) <= _ATTRIBUTES_POSITION or records[_MAGIC_POSITION] != _MAGIC:
            _check_form(records, version)
        if partition.log.config.txbroker_mirror_source:
            return partition, _append_copied(partition, records, all_in_sync, now_ms, context)
        if records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL and records[_MAGIC_POSITION] == _MAGIC and not verified:
            self._verification.check(partition, records, transactional_id, version)
        return partition, partition.append(records, now_ms, all_in_sync)

    def _topic_name(self, topic: TopicProduceData | TopicProduceResponse, version: int) -> str | None:
        """The topic that a request names; None for an unknown id."""
        return self._replicas.topic_name(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name

    def _count_failure(
        self, topic: TopicProduceData, data: PartitionProduceData, error: Exception, context: RequestContext
    ) -> BrokerError:
        """Count an append that failed; returns the error, to be kept. A defect is logged."""
        if not isinstance(error, BrokerError):
            log.error("internal error appending to partition %d of %s", data.index, topic.name or topic.topic_id, exc_info=error)
            error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.errors[error.code] += 1
        partition = self._find(topic, data, context)
        if partition is not None:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                partition.counts.bytes_rejected += len(data.records or b"")
            elif error.code not in _NO_FAILURES:
                partition.counts.failed_produce_requests += 1
        elif error.code in PASSING:
            name = self._topic_name(topic, context.api_version) or topic.topic_id
            records: Any = data.records or b""
            self._replicas.refused.refuse(name, data.index, records, error.code)
        # Its frames refer to the error and to the bytes of the request, which would stay in memory until the next garbage collection.
        return error.with_traceback(None)

    def _find(self, topic: TopicProduceData, data: PartitionProduceData, context: RequestContext) -> Partition | None:
        return self._replicas.find(self._topic_name(topic, context.api_version) or "", data.index)

    def _failed_directory(self, topic: TopicProduceData, data: PartitionProduceData, error: BrokerError, context: RequestContext) -> str:
        """The log directory of a partition to which nothing can be appended; "" if that is not the reason."""
        partition = self._find(topic, data, context) if isinstance(error, StorageError) else None
        return "" if partition is None else partition.log.directory.rpartition("/")[0]

    def _answer(self, request: ProduceRequest, outcomes: _Outcomes, context: RequestContext) -> ProduceResponse | Deferred[Any] | None:
        """The response, or a Deferred of it if a partition cannot be acknowledged yet, or its transaction has to be verified first."""
        acks, timeout_ms = request.acks, request.timeout_ms
        answers = ProduceAnswers(acks, self.errors)
        asked: list[Deferred[None]] = []
        topics = []

        def add(outcome: Outcome, index: int, responses: list[PartitionProduceResponse]) -> None:
            responses.append(answers.add(index, outcome))

        for topic, partitions in outcomes:
            responses: list[PartitionProduceResponse] = []
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
            for data, outcome in partitions:
                if isinstance(outcome, Unverified):
                    appended = self._append_verified(outcome, topic, data, acks == ACKS_ALL, context)
                    asked.append(appended.addCallback(add, data.index, responses))
                else:
                    add(outcome, data.index, responses)

        def respond(_: object) -> ProduceResponse | Deferred[ProduceResponse] | None:
            if not acks:
                if answers.refused is not None:
                    raise Unanswered(answers.refused, is_logged=False)
                return None
            response = answers.respond(ProduceResponse(responses=topics), self._purgatory, timeout_ms, in_turn=not asked)
            if isinstance(response, Deferred):
                return response.addCallback(self._with_leaders, context)
            return self._with_leaders(response, context)

        return gatherResults(asked, consumeErrors=True).addCallback(respond) if asked else respond(None)

    def _append_verified(
        self, unverified: Unverified, topic: TopicProduceData, data: PartitionProduceData, all_in_sync: bool, context: RequestContext
    ) -> Deferred[Outcome]:
        """Append to one partition once its transaction is verified."""
        index = data.index

        def append(verified: Verified) -> Outcome:
            data = PartitionProduceData(index=index, records=verified.records)
            try:
                if verified.error is not None:
                    raise verified.error
                return self._append(topic, data, all_in_sync, self._now_ms(), context, None, verified=True)
            except Exception as error:
                return self._count_failure(topic, data, error, context)

        records: Any = data.records or b""
        return self._verification.verify(unverified, records, context.api_version).addCallback(append)

    def _with_leaders(self, response: ProduceResponse, context: RequestContext) -> ProduceResponse:
        """Add the current leaders of the partitions that this broker does not lead."""
        if context.api_version < CURRENT_LEADER_VERSION:
            return response
        leaders = set()
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    named = self._topic_name(topic, context.api_version)
                    leader = self._leaders.of(named or "", answer.index)
                    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
                    leaders.add(leader.leader_id)
        nodes = self._leaders.nodes(leaders, context)
        response.node_endpoints = [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]
        return response

    @staticmethod
    def is_answered(request: ProduceRequest) -> bool:
        """Not for acks=0."""
        return request.acks != 0

    @staticmethod
    def release_records(request: ProduceRequest) -> int:
        """The views of the frame end; returns how many bytes they have."""
        size = 0
        for topic in request.topic_data:
            for data in topic.partition_data:
                size += len(data.records or b"")
                data.records = b""
        return size

    def resources(self, request: ProduceRequest, context: RequestContext) -> Sequence[Need]:
        """WRITE on the transactional id, if a batch is transactional, and on each topic. An unknown id is no topic's.

        TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in Kafka, for transactional batches without an id.
        """
        by_id = context.api_version >= TOPIC_ID_VERSION
        names = [self._replicas.topic_name(topic.topic_id) if by_id else topic.name for topic in request.topic_data]
        topics = Need(AclOperation.WRITE, AclResource.TOPIC, names, "topic_data", "responses")
        if request.transactional_id is None:
            _check_id(request)
            return (topics,)
        if not _is_transactional(request):
            return (topics,)
        return Need(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, (request.transactional_id,)), topics

    def failed(self, request: ProduceRequest, context: RequestContext, error: BrokerError) -> ProduceResponse | None:
        """Every partition with the same error; None (the connection is closed) for acks=0."""
        return None if request.acks == 0 else self._refused(request, error)

    def _refused(self, request: ProduceRequest, error: BrokerError) -> ProduceResponse:
        self.errors[error.code] += sum(len(topic.partition_data) for topic in request.topic_data)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[failure(data.index, error) for data in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )


def _append_copied(partition: Partition, records: memoryview, all_in_sync: bool, now_ms: int, context: RequestContext) -> Appended:
    """Append to a topic with `txbroker.mirror.source`; POLICY_VIOLATION for other clients than the mirror."""
    if context.client_id != MIRROR_CLIENT_ID:
        topic, source = partition.topic_partition.topic, partition.log.config.txbroker_mirror_source
        problem = f"{topic} is a copy from cluster {source}: no client may produce to it before `txbroker mirror promote`"
        raise BrokerError(ErrorCode.POLICY_VIOLATION, problem)
    end = partition.log.log_end_offset
    appended = partition.append(records, now_ms, all_in_sync=all_in_sync, origin=Origin.MIRROR)
    partition.offsets_skipped(appended.first_offset - end)
    return appended


def _check_topic(name: str | None, context: RequestContext) -> None:
    """INVALID_TOPIC_EXCEPTION for a topic to which this client may not write."""
    if name in INTERNAL_TOPICS and context.client_id != INTERNAL_CLIENT_ID:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker writes to {name}")


def _check_form(records: memoryview | None, version: int) -> None:
    """BrokerError if this version may not have these records for a partition."""
    if records is None or len(records) <= _ATTRIBUTES_POSITION:
        raise BrokerError(ErrorCode.INVALID_RECORD, "a produce request must contain a record batch for each of its partitions")
    magic, attributes = records[_MAGIC_POSITION], records[_ATTRIBUTES_POSITION]
    if magic != _MAGIC:
        if version >= BATCH_VERSION and magic < _MAGIC:
            raise BrokerError(ErrorCode.INVALID_RECORD, f"Produce v{version} takes record batches of format v2 only")
    elif version < ZSTD_VERSION and attributes & _CODEC == _ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_VERSION}, this is v{version}")


def _check_id(request: ProduceRequest) -> None:
    """The error of a request that has a transactional batch, but no transactional id: none of its batches is appended.

    As in Kafka (KafkaApis.handleProduceRequest), also without an authorizer.
    """
    if _is_transactional(request):
        raise denial(AclResource.TRANSACTIONAL_ID)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether a batch is transactional."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_POSITION
                and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL
                and records[_MAGIC_POSITION] == _MAGIC
            ):
                return True
    return False
