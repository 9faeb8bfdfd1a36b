"""Produce (key 0): append record batches to partitions that this broker leads.

Behaviour: acks=0 gets no response (after an error the connection is closed, as in Kafka); acks=1 gets it when the leader has appended the
records; acks=all when every in-sync replica has them, or REQUEST_TIMED_OUT. Both wait for the sync that flush.messages requires.
Each partition fails or succeeds alone. Transactions are not supported: INVALID_TXN_STATE for a transactional id or batch.
Version notes: v0-v2 have the old message sets, which the log converts; from v3 on there is exactly one v2 batch for each partition.
zstd requires v7 (KIP-110). v10 has the current leaders for a client at the wrong broker (KIP-951). v13 identifies topics by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from twisted.internet.defer import Deferred

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.encoded_response import EncodedResponse
from txbroker.api.encoded.produce_response import ProduceResponses, success
from txbroker.api.parking import park
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.api.unanswered_appends import UnansweredAppends
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log_results import Appended, Origin, RejectedRecords
from txbroker.names import INTERNAL_TOPICS, MIRROR_CLIENT_ID
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
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

ACKS_ALL = -1
ZSTD_VERSION = 7
CURRENT_LEADER_VERSION = 10
BATCH_VERSION = 3  # from here on a partition's data is exactly one v2 batch
TOPIC_ID_VERSION = 13
RECORD_ERRORS_MAX = 1000  # in one response: a few compressed batches may have millions of records that are refused
INTERNAL_CLIENT_ID = "__admin_client"  # Kafka lets only this client id write to internal topics

_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22  # the low byte of a v2 batch's attributes
_CODEC = 7
_ZSTD = 4
_TRANSACTIONAL = 0x10
_NO_TRANSACTIONS = "transactions are not supported by this broker"
# Errors that Kafka (ReplicaManager.appendToLocalLog) does not count as failures of the broker, beside those of size.
_NO_FAILURES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}

# The result of one partition's append.
Outcome: TypeAlias = "tuple[Partition, Appended] | BrokerError"


class ProduceHandler:
    """Appends; parks acks=all until all in-sync replicas have the records, and acks=1 until the log is synced if that is required."""

    request: type[Request] = ProduceRequest
    overlaps = True

    def __init__(
        self,
        replicas: Replicas,
        leaders: CurrentLeaders,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._leaders = leaders
        self._purgatory = purgatory
        self._now_ms = now_ms
        self._responses = ProduceResponses()
        self._unanswered = UnansweredAppends(monotonic_s)
        self.errors: Errors = Counter()

    def __call__(
        self, request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse | EncodedResponse | Deferred[ProduceResponse] | None:
        acks = request.acks
        if acks not in (0, 1, ACKS_ALL):
            return self._refused(request, BrokerError(ErrorCode.INVALID_REQUIRED_ACKS))
        if request.transactional_id is not None:
            raise UnsupportedFeature(Feature.TRANSACTIONS, ErrorCode.INVALID_TXN_STATE, _NO_TRANSACTIONS)
        now_ms = self._now_ms()
        all_in_sync = acks == ACKS_ALL
        topics = request.topic_data
        if acks and len(topics) == 1 and len(topics[0].partition_data) == 1:
            topic = topics[0]
            data = topic.partition_data[0]
            try:
                outcome = partition, appended = self._append(topic, data, all_in_sync, now_ms, context)
            except BrokerError as error:
                return self._answer(request, [(topic, [(data, self._count_failure(topic, data, error, context))])], context)
            if partition.acknowledged(appended.last_offset, all_in_sync=all_in_sync):
                encoded = self._responses.encoded(context.api_version, context.correlation_id, topic, data.index, appended)
                if encoded is not None:
                    return encoded
            return self._answer(request, [(topic, [(data, outcome)])], context)
        outcomes = [
            (topic, [(data, self._outcome(topic, data, all_in_sync, now_ms, context)) for data in topic.partition_data])
            for topic in topics
        ]
        if acks:
            return self._answer(request, outcomes, context)
        for topic, partitions in outcomes:
            for data, result in partitions:
                if isinstance(result, BrokerError):
                    raise self._unanswered.failed(result, self._failed_directory(topic, data, result, context))
        return None

    def _append(
        self, topic: TopicProduceData, data: PartitionProduceData, all_in_sync: bool, now_ms: int, context: RequestContext
    ) -> tuple[Partition, Appended]:
        """Append to one partition; BrokerError."""
        version = context.api_version
        by_id = version >= TOPIC_ID_VERSION
        name = self._replicas.topic_name(topic.topic_id) if by_id else topic.name
        if name in INTERNAL_TOPICS and context.client_id != INTERNAL_CLIENT_ID:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker writes to {name}")
        replicas = self._replicas
        partition = replicas.get_by_id(topic.topic_id, data.index) if by_id else replicas.get(topic.name, data.index)
        records = _records(data, version)
        if partition.log.config.txbroker_mirror_source:
            return partition, _append_copied(partition, records, all_in_sync, now_ms, context)
        return partition, partition.append(records, now_ms, all_in_sync=all_in_sync)

    def _outcome(
        self, topic: TopicProduceData, data: PartitionProduceData, all_in_sync: bool, now_ms: int, context: RequestContext
    ) -> Outcome:
        """Append to one partition, or count the failure."""
        try:
            return self._append(topic, data, all_in_sync, now_ms, context)
        except BrokerError as error:
            return self._count_failure(topic, data, error, context)

    def _count_failure(
        self, topic: TopicProduceData, data: PartitionProduceData, error: BrokerError, context: RequestContext
    ) -> BrokerError:
        """Count an append that failed; returns the error, to be kept."""
        self.errors[error.code] += 1
        partition = self._find(topic, data, context)
        if partition is not None:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                partition.counts.bytes_rejected += len(data.records or b"")
            elif error.code not in _NO_FAILURES:
                partition.counts.failed_produce_requests += 1
        # Its frames refer to the error and to the bytes of the request, which would stay in memory until the next garbage collection.
        return error.with_traceback(None)

    def _find(self, topic: TopicProduceData, data: PartitionProduceData, context: RequestContext) -> Partition | None:
        name = topic.name
        if context.api_version >= TOPIC_ID_VERSION:
            name = self._replicas.topic_name(topic.topic_id) or ""
        return self._replicas.find(name, data.index)

    def _failed_directory(self, topic: TopicProduceData, data: PartitionProduceData, error: BrokerError, context: RequestContext) -> str:
        """The log directory of a partition to which nothing can be appended; "" if that is not the reason."""
        partition = self._find(topic, data, context) if isinstance(error, StorageError) else None
        return "" if partition is None else partition.log.directory.rpartition("/")[0]

    def _answer(
        self,
        request: ProduceRequest,
        outcomes: list[tuple[TopicProduceData, list[tuple[PartitionProduceData, Outcome]]]],
        context: RequestContext,
    ) -> ProduceResponse | Deferred[ProduceResponse]:
        """The response, or a Deferred of it if a partition cannot be acknowledged yet."""
        acks = request.acks
        waiting: list[tuple[PendingAppend, PartitionProduceResponse]] = []
        record_errors = 0
        topics = []
        for topic, partitions in outcomes:
            answers = []
            for data, outcome in partitions:
                if isinstance(outcome, BrokerError):
                    answer = _failure(data.index, outcome, RECORD_ERRORS_MAX - record_errors)
                    record_errors += len(answer.record_errors)
                else:
                    partition, appended = outcome
                    answer = success(data.index, appended.first_offset, appended.append_time_ms, appended.log_start_offset)
                    if not partition.acknowledged(appended.last_offset, all_in_sync=acks == ACKS_ALL):
                        waiting.append((PendingAppend(partition, partition.leader_epoch, appended.last_offset), answer))
                answers.append(answer)
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        response = ProduceResponse(responses=topics)
        if not waiting:
            return self._with_leaders(response, context)
        keys = [append.partition.topic_partition for append, _ in waiting]
        errors = self.errors
        parked: Deferred[ProduceResponse] = park(
            self._purgatory, keys, request.timeout_ms, lambda done: _Replicated(response, waiting, acks, done, errors), tried=True
        )
        return parked.addCallback(self._with_leaders, context)

    def _with_leaders(self, response: ProduceResponse, context: RequestContext) -> ProduceResponse:
        """Add the current leaders of the partitions that this broker does not lead."""
        if context.api_version < CURRENT_LEADER_VERSION:
            return response
        leaders = set()
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    named = self._replicas.topic_name(topic.topic_id) if context.api_version >= TOPIC_ID_VERSION else topic.name
                    leader = self._leaders.of(named or "", answer.index)
                    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
                    leaders.add(leader.leader_id)
        nodes = self._leaders.nodes(leaders, context)
        response.node_endpoints = [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]
        return response

    @staticmethod
    def record_holders(request: ProduceRequest) -> list[PartitionProduceData]:
        """The data of each partition."""
        return [data for topic in request.topic_data for data in topic.partition_data]

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
                    partition_responses=[_failure(data.index, error) for data in topic.partition_data],
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


def _records(data: PartitionProduceData, version: int) -> memoryview:
    records: memoryview | None = data.records  # type: ignore[assignment]  # decoded records are views of the frame
    if records is None or len(records) <= _ATTRIBUTES_POSITION:
        raise BrokerError(ErrorCode.INVALID_RECORD, "a produce request must contain a record batch for each of its partitions")
    magic, attributes = records[_MAGIC_POSITION], records[_ATTRIBUTES_POSITION]
    if magic != 2:
        if version >= BATCH_VERSION:
            raise BrokerError(ErrorCode.INVALID_RECORD, f"Produce v{version} takes record batches of format v2 only")
        return records
    if version < ZSTD_VERSION and attributes & _CODEC == _ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_VERSION}, this is v{version}")
    if attributes & _TRANSACTIONAL:
        raise BrokerError(ErrorCode.INVALID_TXN_STATE, _NO_TRANSACTIONS)
    return records


def _failure(index: int, error: BrokerError, record_errors_max: int = 0) -> PartitionProduceResponse:
    rejected = error.record_errors[:record_errors_max] if isinstance(error, RejectedRecords) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[BatchIndexAndErrorMessage(batch_index=r.batch_index, batch_index_error_message=r.message) for r in rejected],
        error_message=error.message,
    )


class _Replicated:
    """A produce that waits (Kafka's DelayedProduce). A partition is done when its last record may be acknowledged, or when this broker
    does not lead it any more (NOT_LEADER_OR_FOLLOWER). Expired: REQUEST_TIMED_OUT for the partitions that are not done."""

    def __init__(
        self,
        response: ProduceResponse,
        waiting: list[tuple[PendingAppend, PartitionProduceResponse]],
        acks: int,
        done: Deferred[ProduceResponse],
        errors: Errors,
    ) -> None:
        self._response = response
        self._waiting = waiting
        self._all_in_sync = acks == ACKS_ALL
        self._done = done
        self._errors = errors

    def try_complete(self) -> bool:
        """Respond if every partition is done."""
        still = []
        for append, answer in self._waiting:
            outcome = append.outcome(all_in_sync=self._all_in_sync)
            if outcome is None:
                still.append((append, answer))
            elif outcome:
                answer.error_code = outcome
                self._errors[outcome] += 1
        self._waiting = still
        if still:
            return False
        self._done.callback(self._response)
        return True

    def on_expired(self) -> None:
        """timeout.ms of the request is over."""
        for _, answer in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            self._errors[answer.error_code] += 1
        self._done.callback(self._response)
