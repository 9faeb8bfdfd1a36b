"""One transactional id: which request leads to which state (Kafka's TransactionMetadata and the checks of TransactionCoordinator).

A method decides and changes nothing: it returns the `Transition` to write, or raises the BrokerError to answer. `begin` makes the id
busy, the coordinator appends the transition's record to `__transaction_state`, and `settle` applies it once all in-sync replicas have it,
or drops it. Meanwhile requests are answered with CONCURRENT_TRANSACTIONS.

A producer is fenced by a higher epoch: each initialization raises it, an abort by timeout does, and with transactions v2 each end of a
transaction does. The markers of a transaction carry the epoch of its prepared state. The last epoch, 32767, is for markers only: a
producer whose epoch reaches the one before gets a new producer id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.transactions.transaction_record import NO_EPOCH, NO_PRODUCER_ID, NO_TIME_MS, TransactionRecord
from txbroker.transactions.transaction_states import BEFORE, TransactionState

EPOCH_EXHAUSTED = 32_766
EPOCH_BUMP_VERSION = 2  # of transactions: each end raises the epoch (KIP-890)


class NeedsProducerId(Exception):
    """Decide again, with a new producer id: the epochs of the present one are exhausted."""


@lazy_dataclass(frozen=True, slots=True)
class Producer:
    """A producer id with its epoch."""

    id: int
    epoch: int


@lazy_dataclass(frozen=True, slots=True)
class Transition:
    """A state to write. `last_epoch`: the epoch that the producer had before it was raised on its own request, NO_EPOCH otherwise."""

    record: TransactionRecord
    last_epoch: int = NO_EPOCH


@lazy_dataclass(frozen=True, slots=True)
class Repeated:
    """The transaction has ended so already: answer its producer again."""

    producer: Producer


class Transaction:
    """The state of one transactional id. `record` is what is stored; `pending` what is being written."""

    def __init__(self, transactional_id: str, record: TransactionRecord) -> None:
        self.transactional_id = transactional_id
        self.record = record
        self.pending: Transition | None = None
        self.unmarked: set[TopicPartition] = set(record.partitions) if record.state.is_prepared else set()
        self._last_epoch = NO_EPOCH

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """An id that was never initialized; nothing of it is stored yet."""
        record = TransactionRecord(
            producer_id=producer_id, producer_epoch=NO_EPOCH, timeout_ms=timeout_ms, state=TransactionState.EMPTY, update_ms=now_ms
        )
        return cls(transactional_id, record)

    @property
    def producer(self) -> Producer:
        """The producer id and its epoch as stored."""
        return Producer(self.record.producer_id, self.record.producer_epoch)

    # Writes

    def begin(self, transition: Transition) -> None:
        """The transition is being written."""
        if self.pending is not None:
            raise ValueError(f"{self.transactional_id}: a transition is being written already")
        if self.record.state not in BEFORE[transition.record.state]:
            raise ValueError(f"{self.transactional_id}: {transition.record.state.title} does not follow {self.record.state.title}")
        self.pending = transition

    def settle(self, *, written: bool) -> None:
        """The write has ended."""
        transition, self.pending = self.pending, None
        if transition is None:
            raise ValueError(f"{self.transactional_id}: nothing is being written")
        if not written:
            return
        self.record = transition.record
        self._last_epoch = transition.last_epoch
        self.unmarked = set(self.record.partitions) if self.record.state.is_prepared else set()

    def marked(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or no longer exist."""
        self.unmarked.difference_update(partitions)

    # Requests

    def initialize(self, timeout_ms: int, expected: Producer | None, now_ms: int, new_id: int | None = None) -> Transition:
        """InitProducerId. `expected`: the producer that recovers from an error (KIP-360), None for a new producer.

        A transition to PREPARE_ABORT ends the transaction of an earlier producer: answer CONCURRENT_TRANSACTIONS once it is written.
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; NeedsProducerId without `new_id` if one is required.
        """
        record = self.record
        self._check_idle()
        if expected is not None and not self._is_known(expected):
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        if record.state.is_prepared:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if record.state is TransactionState.ONGOING:
            return self._fence(now_ms)
        empty = replace(
            record, state=TransactionState.EMPTY, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=NO_TIME_MS, update_ms=now_ms
        )
        if record.producer_epoch >= EPOCH_EXHAUSTED and (expected is None or expected.epoch == record.producer_epoch):
            if new_id is None:
                raise NeedsProducerId
            last_epoch = NO_EPOCH if expected is None else record.producer_epoch
            renewed = replace(
                empty, producer_id=new_id, producer_epoch=0, previous_producer_id=record.producer_id, next_producer_id=NO_PRODUCER_ID
            )
            return Transition(renewed, last_epoch)
        if expected is None:
            return Transition(replace(empty, producer_epoch=record.producer_epoch + 1))
        if record.producer_epoch in (NO_EPOCH, expected.epoch):
            return Transition(replace(empty, producer_epoch=record.producer_epoch + 1), record.producer_epoch)
        if expected.epoch == self._last_epoch:  # a retry after a lost response
            return Transition(empty, self._last_epoch)
        raise BrokerError(ErrorCode.PRODUCER_FENCED)

    def add_partitions(self, producer: Producer, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Transition | None:
        """AddPartitionsToTxn and AddOffsetsToTxn; None if the transaction has these partitions.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        record = self.record
        self._check_producer(producer)
        self._check_idle()
        if record.state.is_prepared:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_open = record.state is TransactionState.ONGOING
        if is_open and partitions <= record.partitions:
            return None
        added = replace(
            record,
            state=TransactionState.ONGOING,
            partitions=record.partitions | partitions if is_open else partitions,
            start_ms=record.start_ms if is_open else now_ms,
            update_ms=now_ms,
            version=version,
        )
        return Transition(added, self._last_epoch)

    def verify(self, producer: Producer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
        """Whether each partition belongs to the open transaction (KIP-890), also while other partitions are being added.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        self._check_producer(producer)
        if self.record.state.is_prepared:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_open = self.record.state is TransactionState.ONGOING
        return {partition: is_open and partition in self.record.partitions for partition in partitions}

    def end(self, producer: Producer, *, commit: bool, version: int, now_ms: int, new_id: int | None = None) -> Transition | Repeated:
        """EndTxn. CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE; NeedsProducerId."""
        bumps = version >= EPOCH_BUMP_VERSION
        self._check_idle()
        is_repeat = bumps and self._repeats_end(producer)
        if not is_repeat:
            self._check_producer(producer)
        state = self.record.state
        if bumps and state.is_prepared and not is_repeat:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)  # the raised epoch is not answered yet: this producer cannot know it
        complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if state is prepared and (is_repeat or not bumps):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if state is complete and (is_repeat or not bumps):
            return Repeated(self.producer)
        is_open = state is TransactionState.ONGOING
        # With transactions v2 a producer aborts although its partitions may not have been added: the epoch must rise.
        may_end = is_open or (bumps and not commit and not is_repeat and state.is_idle)
        if not may_end:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)
        return self._prepare(prepared, version, now_ms, new_id)

    def abort_timed_out(self, now_ms: int) -> Transition | None:
        """Abort an open transaction whose timeout has passed, and fence its producer; None while another decision is being written."""
        if self.pending is not None or self.record.state is not TransactionState.ONGOING:
            return None
        return self._fence(now_ms)

    def complete(self, now_ms: int) -> Transition | None:
        """The end of a prepared transaction whose partitions all have their marker."""
        record = self.record
        if self.pending is not None or self.unmarked or not record.state.is_prepared:
            return None
        committed = record.state is TransactionState.PREPARE_COMMIT
        done = replace(
            record,
            state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
        )
        if record.next_producer_id != NO_PRODUCER_ID:
            done = replace(
                done,
                producer_id=record.next_producer_id,
                producer_epoch=0,
                previous_producer_id=record.producer_id,
                next_producer_id=NO_PRODUCER_ID,
            )
        return Transition(done, self._last_epoch)

    def expire(self, now_ms: int, expiration_ms: int) -> Transition | None:
        """The removal of an id without a transaction that was not used for `expiration_ms`."""
        record = self.record
        if self.pending is not None or not record.state.is_idle or record.update_ms + expiration_ms > now_ms:
            return None
        return Transition(replace(record, state=TransactionState.DEAD))  # a tombstone is written

    # Internals

    def _check_idle(self) -> None:
        if self.pending is not None:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check_producer(self, producer: Producer) -> None:
        if producer.id != self.record.producer_id:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.record.producer_epoch:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)

    def _is_known(self, expected: Producer) -> bool:
        record = self.record
        if record.producer_epoch == NO_EPOCH or expected.id == record.producer_id:
            return True
        return expected.id == record.previous_producer_id and expected.epoch >= EPOCH_EXHAUSTED

    def _repeats_end(self, producer: Producer) -> bool:
        """Whether the producer has the epoch before the one that its EndTxn raised."""
        record = self.record
        if producer.id == record.producer_id and producer.epoch + 1 == record.producer_epoch:
            return record.state.is_prepared or record.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        replaced = record.previous_producer_id != NO_PRODUCER_ID and producer.id == record.previous_producer_id
        return replaced and producer.epoch == EPOCH_EXHAUSTED and record.producer_epoch == 0 and not record.state.is_prepared

    def _prepare(self, prepared: TransactionState, version: int, now_ms: int, new_id: int | None) -> Transition:
        record = self.record
        partitions = record.partitions if record.state is TransactionState.ONGOING else frozenset()
        start_ms = record.start_ms if record.state is TransactionState.ONGOING else now_ms
        ended = replace(record, state=prepared, partitions=partitions, start_ms=start_ms, update_ms=now_ms, version=version)
        if version < EPOCH_BUMP_VERSION:
            return Transition(ended, self._last_epoch)
        if record.producer_epoch >= EPOCH_EXHAUSTED:
            if new_id is None:
                raise NeedsProducerId
            ended = replace(ended, next_producer_id=new_id)
        return Transition(replace(ended, producer_epoch=record.producer_epoch + 1), record.producer_epoch)

    def _fence(self, now_ms: int) -> Transition:
        # The epoch of the stored record is raised, so that a write that fails and is repeated raises it once (KAFKA-9666).
        record = self.record
        epoch = record.producer_epoch + 1
        return Transition(replace(record, state=TransactionState.PREPARE_ABORT, producer_epoch=epoch, update_ms=now_ms))


def answer_after_end(transition: Transition) -> Producer:
    """The producer that EndTxn v5 answers: what the client uses for its next transaction."""
    record = transition.record
    if record.next_producer_id != NO_PRODUCER_ID:
        return Producer(record.next_producer_id, 0)
    return Producer(record.producer_id, record.producer_epoch)
