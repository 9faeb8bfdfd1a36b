"""The answers of a produce request, partition by partition, and the request that waits because records cannot be acknowledged yet."""

from __future__ import annotations

from typing import TypeAlias

from twisted.internet.defer import Deferred

from txbroker.api.encoded.produce_response import success
from txbroker.api.parking import park
from txbroker.api.request_counts import Errors
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_results import Appended, RejectedRecords
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse

ACKS_ALL = -1
RECORD_ERRORS_MAX = 1000  # in one response: a few compressed batches may have millions of records that are refused

# The result of one partition's append.
Outcome: TypeAlias = "tuple[Partition, Appended] | BrokerError"


class ProduceAnswers:
    """Collects the outcomes of one request. `refused`: the first error."""

    def __init__(self, acks: int) -> None:
        self.acks = acks
        self.refused: BrokerError | None = None
        self._waiting: list[tuple[PendingAppend, PartitionProduceResponse]] = []
        self._duplicates = 0  # that do not wait
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
        if self.acks and not partition.acknowledged(appended.last_offset, all_in_sync=self.acks == ACKS_ALL):
            self._waiting.append((PendingAppend(partition, partition.leadership, appended.last_offset), answer))
        elif answer.error_code:
            self._duplicates += 1
        return answer

    def respond(
        self, response: ProduceResponse, purgatory: Purgatory, timeout_ms: int, errors: Errors
    ) -> ProduceResponse | Deferred[ProduceResponse]:
        """The response, or a Deferred of it if a partition cannot be acknowledged yet. `errors` counts the codes that are set here."""
        if self._duplicates:
            errors[ErrorCode.DUPLICATE_SEQUENCE_NUMBER] += self._duplicates
        waiting = self._waiting
        if not waiting:
            return response
        keys = [append.partition.topic_partition for append, _ in waiting]
        return park(purgatory, keys, timeout_ms, lambda done: _Replicated(response, waiting, self.acks, done, errors), tried=True)


def failure(index: int, error: BrokerError, record_errors_max: int = 0) -> PartitionProduceResponse:
    """The answer for a partition whose append failed."""
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
