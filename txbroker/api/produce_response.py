"""Responses to produce requests: those that succeeded are filled into templates, the others are made partition by partition, and wait if
records cannot be acknowledged yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from txbroker.api.encoded.response_frame import Frame
from txbroker.api.parking import park
from txbroker.api.request_counts import Errors
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_results import Appended, RejectedRecords
from txbroker.purgatory import Purgatory
from txbroker.wire import topic_lists
from txbroker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from txbroker.wire.topic_lists import TopicListTemplate

ACKS_ALL = -1
NUMBERS_VERSION = 5  # from here on the base offset, the append time and the log start offset are side by side
RECORD_ERRORS_MAX = 1000  # in one response: a few compressed batches may have millions of records that are refused
# The result of one partition's append.
Outcome: TypeAlias = "tuple[Partition, Appended] | BrokerError"


class ProduceResponses:
    """Responses to requests whose partitions all took their records: nearly all of a busy broker, alike but for their offsets."""

    def __init__(self) -> None:
        self._templates: dict[int, TopicListTemplate] = {}

    def encoded(
        self, version: int, correlation_id: int, topics: Sequence[tuple[TopicProduceData, Sequence[tuple[Any, tuple[Any, Appended]]]]]
    ) -> Frame | None:
        """The response. `topics`: with the results of their partitions, each after the part of the request with its index.

        None for a version without all of the fields, and for a duplicate of unknown offsets.
        """
        template = self._templates.get(version)
        if template is None:
            if version < NUMBERS_VERSION:
                return None
            template = self._templates[version] = TopicListTemplate(ProduceRequest, version, _response)
        pack = template.pack_partition
        after_index, after_numbers = template.partition_fixed
        by_name, one = template.by_name, template.count_of_one
        parts = [one if len(topics) == 1 else template.count(len(topics))]
        for topic, partitions in topics:
            parts.append(template.topic(topic.name) if by_name else topic.topic_id)
            parts.append(one if len(partitions) == 1 else template.count(len(partitions)))
            for data, (_, (first_offset, _, append_time_ms, log_start_offset, _)) in partitions:
                if first_offset < 0:
                    return None
                parts.append(pack(data.index, after_index, first_offset, append_time_ms, log_start_offset, after_numbers))
            parts.append(template.topic_end)
        parts.append(template.end)
        body = b"".join(parts)
        size = template.head_bytes + len(body)
        return [template.pack_head(size, correlation_id, *template.head_fixed) + body], size + 4


def _response(_: int, numbers: tuple[int, int, int, int], topics: int, partitions: int) -> ProduceResponse:
    topic = TopicProduceResponse(
        name=topic_lists.TOPIC_NAME, topic_id=topic_lists.TOPIC_ID, partition_responses=[success(*numbers)] * partitions
    )
    return ProduceResponse(responses=[topic] * topics)


class ProduceAnswers:
    """The answers of one request. `refused`: the first error.

    It waits (Kafka's DelayedProduce) until each partition is done: its last record may be acknowledged, or this broker does not lead it any
    more (NOT_LEADER_OR_FOLLOWER). Expired: REQUEST_TIMED_OUT for the partitions that are not done.
    """

    _response: ProduceResponse
    _done: Deferred[ProduceResponse]

    def __init__(self, acks: int, errors: Errors) -> None:
        """`errors` counts the codes that are set here."""
        self._acks = acks
        self._errors = errors
        self.refused: BrokerError | None = None
        self._waiting: list[tuple[PendingAppend, PartitionProduceResponse]] = []
        self._record_errors = 0

    def add(self, index: int, outcome: Outcome) -> PartitionProduceResponse:
        """The answer for one partition. To be called in the turn of the append, since this broker may lose leadership later."""
        if isinstance(outcome, BrokerError):
            self.refused = self.refused or outcome
            answer = failure(index, outcome, RECORD_ERRORS_MAX - self._record_errors)
            self._record_errors += len(answer.record_errors)
            return answer
        partition, appended = outcome
        answer = success(index, appended.first_offset, appended.append_time_ms, appended.log_start_offset)
        if appended.first_offset < 0:
            answer.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER  # which clients take for success without an offset
        if self._acks:
            if not partition.acknowledged(appended.last_offset, all_in_sync=self._acks == ACKS_ALL):
                self._waiting.append((PendingAppend(partition, partition.leadership, appended.last_offset), answer))
            elif answer.error_code:
                self._errors[ErrorCode.DUPLICATE_SEQUENCE_NUMBER] += 1
        return answer

    def respond(
        self, response: ProduceResponse, purgatory: Purgatory, timeout_ms: int, *, in_turn: bool
    ) -> ProduceResponse | Deferred[ProduceResponse]:
        """The response, or a Deferred of it if a partition cannot be acknowledged yet. `in_turn`: all appends were made in this turn."""
        if not self._waiting:
            return response
        self._response = response
        keys = [append.partition.topic_partition for append, _ in self._waiting]
        return park(purgatory, keys, timeout_ms, self._waits, tried=in_turn)

    def _waits(self, done: Deferred[ProduceResponse]) -> ProduceAnswers:
        self._done = done
        return self

    def try_complete(self) -> bool:
        """Respond if every partition is done."""
        still = []
        for append, answer in self._waiting:
            outcome = append.outcome(all_in_sync=self._acks == ACKS_ALL)
            if outcome is None:
                still.append((append, answer))
            else:
                answer.error_code = outcome or answer.error_code
                if answer.error_code:
                    self._errors[ErrorCode(answer.error_code)] += 1
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


def success(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """The answer for a partition that took its records."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


def failure(index: int, error: BrokerError, record_errors_max: int = 0) -> PartitionProduceResponse:
    """The answer for a partition whose append failed."""
    rejected = error.record_errors[:record_errors_max] if isinstance(error, RejectedRecords) else ()
    answer = success(index, -1, -1, -1)
    answer.error_code, answer.error_message = error.code, error.shown_message
    answer.record_errors = [BatchIndexAndErrorMessage(batch_index=r.batch_index, batch_index_error_message=r.message) for r in rejected]
    return answer
