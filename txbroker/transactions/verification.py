"""Verification: before a partition's first records of a transaction, its leader asks the coordinator whether the partition belongs to it.

Without it a late batch of a producer could be appended after the end of its transaction, and nothing would end it (KIP-890, Kafka's
AddPartitionsToTxnManager). With transactions v2 the leader adds the partition instead. Requests of one broker are batched: each
coordinator has a queue with one request in flight.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Hashable
from dataclasses import field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.client.client_errors import ClientError
from txbroker.clock import Clock
from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

log = logging.getLogger("txbroker.transactions")

NO_SEQUENCE = -1
TRANSACTIONS_MAX = 1_000  # in a request
TIMES_KEPT = 1024
# The transaction before is being completed: as Kafka's add.partitions.to.txn.retry.backoff.ms and its maximum.
RETRY_S = 0.02
RETRY_MAX_S = 0.1


class Operation(Enum):
    """What the leader wants of the coordinator."""

    VERIFY = auto()  # the client has added the partition
    ADD = auto()  # transactions v2: the leader adds it


class Claim(NamedTuple):
    """A batch's claim to be part of a transaction. `sequence`: its first one, NO_SEQUENCE for offsets."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequence: int
    operation: Operation


@lazy_dataclass(slots=True)
class VerificationCounts:
    """The questions to coordinators. `times_s`: durations of the last requests."""

    requests: int = 0
    failed: int = 0  # questions of partitions that were answered with an error, or not at all
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))


class Link(Protocol):
    """A way to a transaction coordinator."""

    def send(self, request: AddPartitionsToTxnRequest) -> Deferred[AddPartitionsToTxnResponse]:
        """Fires with the response; ClientError or BrokerError."""

    def close(self) -> None:
        """End the request without a response."""


class Coordinators(Protocol):
    """The way from a transactional id to its coordinator."""

    def find(self, transactional_id: str) -> Hashable | None:
        """The broker that coordinates it; None while it is not known."""

    def open(self, broker: Hashable) -> Link:
        """A link to a broker that `find` has returned."""


class TransactionVerifier:
    """Verifies the transactions of the partitions that this broker leads."""

    def __init__(self, coordinators: Coordinators, clock: Clock, is_enabled: Callable[[], bool]) -> None:
        """`is_enabled`: transaction.partition.verification.enable. Partitions are added in any case."""
        self._queues = _Queues(coordinators, clock)
        self._clock = clock
        self._is_enabled = is_enabled
        self._waiting: dict[tuple[TopicPartition, Claim], list[Deferred[ErrorCode]]] = {}  # by claim without its sequence

    def is_needed(self, partition: Partition, claim: Claim) -> bool:
        """Whether the coordinator has to be asked before records of this transaction are appended."""
        if claim.operation is Operation.VERIFY and not self._is_enabled():
            return False
        return not partition.log.producers.has_open_transaction(claim.producer_id, claim.producer_epoch)

    def verify(self, partition: Partition, claim: Claim) -> Deferred[ErrorCode]:
        """Fires with NONE when the batch may be appended: in the same turn, before anything else happens to the partition. Never fails.

        TRANSACTION_ABORTABLE: the partition does not belong to the open transaction. NETWORK_EXCEPTION, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR and CONCURRENT_TRANSACTIONS may pass. Others concern the producer:
        INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING. Claims of one producer are answered in their order.
        """
        answer: Deferred[ErrorCode] = Deferred()
        if not self.is_needed(partition, claim):
            answer.callback(ErrorCode.NONE)
            return answer
        partition.log.producers.begin_verification(claim.producer_id, claim.producer_epoch, claim.sequence)
        key = partition.topic_partition, claim._replace(sequence=NO_SEQUENCE)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(answer)
            return answer
        self._waiting[key] = [answer]

        def answered(outcome: ErrorCode | Failure) -> None:
            if isinstance(outcome, Failure):
                log.error("internal error while verifying a transaction of %s\n%s", partition.topic_partition, outcome.getTraceback())
                outcome = ErrorCode.NETWORK_EXCEPTION
            for waiter in self._waiting.pop(key):
                waiter.callback(outcome)

        Deferred.fromCoroutine(self._ask(partition, claim)).addBoth(answered)
        return answer

    def brokers_changed(self, live: Container[Hashable]) -> None:
        """The cluster's metadata has changed: close the links to brokers that are gone, or have another address, once they are idle."""
        self._queues.close_others(live)

    def stop(self) -> None:
        """Close the links; claims that wait are answered with an error."""
        self._queues.stop()

    @property
    def counts(self) -> VerificationCounts:
        """What was asked so far."""
        return self._queues.counts

    async def _ask(self, partition: Partition, claim: Claim) -> ErrorCode:
        deadline_s = self._clock.seconds() + RETRY_MAX_S
        while True:
            producers = partition.log.producers
            verification = producers.begin_verification(claim.producer_id, claim.producer_epoch, claim.sequence)
            error = await self._queues.ask(claim, partition.topic_partition)
            if not error and partition.log.producers is not producers:
                return ErrorCode.CONCURRENT_TRANSACTIONS  # the log was moved to another directory
            # Unless another partition's request has begun the transaction, a marker in the meantime voids the answer.
            if not error and not producers.is_valid(claim.producer_id, verification) and self.is_needed(partition, claim):
                if claim.operation is Operation.VERIFY:
                    return ErrorCode.TRANSACTION_ABORTABLE  # the answer is about the transaction that has ended
                error = ErrorCode.CONCURRENT_TRANSACTIONS  # transactions v2: the marker may be that of the transaction before
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or claim.operation is Operation.VERIFY or self._clock.seconds() >= deadline_s:
                return _of_producer(error)
            await self._pause()

    def _pause(self) -> Deferred[None]:
        pause: Deferred[None] = Deferred()
        self._clock.callLater(RETRY_S, pause.callback, None)
        return pause


def _of_producer(error: ErrorCode) -> ErrorCode:
    """What a leader answers: only coordinators say PRODUCER_FENCED (KIP-588), and a verification that fails is TRANSACTION_ABORTABLE."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.TRANSACTION_ABORTABLE if error is ErrorCode.INVALID_TXN_STATE else error


class _Question(NamedTuple):
    claim: Claim
    partition: TopicPartition
    answer: Deferred[ErrorCode]


@lazy_dataclass(slots=True)
class _Queue:
    link: Link
    waiting: list[_Question] = field(default_factory=list)
    in_flight: bool = False
    is_gone: bool = False  # its broker: questions that wait are still answered

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not self.waiting


class _Queues:
    """The questions to each coordinator."""

    def __init__(self, coordinators: Coordinators, clock: Clock) -> None:
        self._coordinators = coordinators
        self._clock = clock
        self.counts = VerificationCounts()
        self._queues: dict[Hashable, _Queue] = {}
        self._is_stopped = False

    def ask(self, claim: Claim, partition: TopicPartition) -> Deferred[ErrorCode]:
        """Fires with the coordinator's error code; never fails."""
        answer: Deferred[ErrorCode] = Deferred()
        broker = self._coordinators.find(claim.transactional_id)
        if broker is None or self._is_stopped:
            answer.callback(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return answer
        queue = self._queues.get(broker)
        if queue is None:
            queue = self._queues[broker] = _Queue(self._coordinators.open(broker))
        if queue.is_idle:
            self._clock.callLater(0, self._send, broker, queue)  # together with the other partitions of a produce request
        queue.waiting.append(_Question(claim, partition, answer))
        return answer

    def close_others(self, live: Container[Hashable]) -> None:
        for broker, queue in list(self._queues.items()):
            queue.is_gone = broker not in live
            self._close_if_done(broker, queue)

    def _close_if_done(self, broker: Hashable, queue: _Queue) -> None:
        if queue.is_gone and queue.is_idle and self._queues.get(broker) is queue:
            del self._queues[broker]
            queue.link.close()

    def stop(self) -> None:
        self._is_stopped = True
        for queue in list(self._queues.values()):  # the end of a request may close another link
            queue.link.close()

    def _send(self, broker: Hashable, queue: _Queue) -> None:
        if queue.in_flight or not queue.waiting:
            return
        asked, queue.waiting = _first(queue.waiting)
        queue.in_flight = True
        sent_s = self._clock.seconds()

        def ended(outcome: AddPartitionsToTxnResponse | Failure) -> None:
            queue.in_flight = False
            codes = {} if isinstance(outcome, Failure) else _codes(outcome)
            of_all = ErrorCode.NONE if isinstance(outcome, Failure) else _code_of_all(outcome)
            if isinstance(outcome, Failure) and not outcome.check(ClientError, BrokerError):
                log.error("internal error while asking a transaction coordinator\n%s", outcome.getTraceback())
            self.counts.requests += 1
            self.counts.times_s.append(self._clock.seconds() - sent_s)
            for question in asked:
                code = of_all or codes.get((question.claim.transactional_id, question.partition), ErrorCode.NETWORK_EXCEPTION)
                self.counts.failed += bool(code)
                question.answer.callback(code)
            self._send(broker, queue)
            self._close_if_done(broker, queue)

        queue.link.send(_request(asked)).addBoth(ended)


def _first(waiting: list[_Question]) -> tuple[list[_Question], list[_Question]]:
    """What fits into one request, which can have each transactional id once, and the rest."""
    asked: dict[str, Claim] = {}
    now: list[_Question] = []
    later: list[_Question] = []
    for question in waiting:
        claim = question.claim._replace(sequence=NO_SEQUENCE)
        if len(asked) < TRANSACTIONS_MAX or claim.transactional_id in asked:
            asked.setdefault(claim.transactional_id, claim)
        (now if asked.get(claim.transactional_id) == claim else later).append(question)
    return now, later


def _request(questions: list[_Question]) -> AddPartitionsToTxnRequest:
    transactions: dict[str, AddPartitionsToTxnTransaction] = {}
    topics: dict[tuple[str, str], dict[int, None]] = {}
    for claim, partition, _ in questions:
        transactions.setdefault(
            claim.transactional_id,
            AddPartitionsToTxnTransaction(
                transactional_id=claim.transactional_id,
                producer_id=claim.producer_id,
                producer_epoch=claim.producer_epoch,
                verify_only=claim.operation is Operation.VERIFY,
                topics=[],
            ),
        )
        topics.setdefault((claim.transactional_id, partition.topic), {})[partition.partition] = None
    for (transactional_id, topic), indexes in topics.items():
        transactions[transactional_id].topics.append(AddPartitionsToTxnTopic(name=topic, partitions=list(indexes)))
    return AddPartitionsToTxnRequest(transactions=list(transactions.values()))


def _codes(response: AddPartitionsToTxnResponse) -> dict[tuple[str, TopicPartition], ErrorCode]:
    """The error of each partition; those that the response does not have are missing."""
    return {
        (result.transactional_id, TopicPartition(topic.name, partition.partition_index)): _code(partition.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _code_of_all(response: AddPartitionsToTxnResponse) -> ErrorCode:
    """The error of the whole request. If the coordinator refuses this broker, the producer cannot continue its transaction:
    INVALID_TXN_STATE, as in Kafka (AddPartitionsToTxnManager)."""
    code = _code(response.error_code)
    return ErrorCode.INVALID_TXN_STATE if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.NETWORK_EXCEPTION
