"""The state of a partition's producers: epochs, sequences and open transactions (Kafka's ProducerStateManager, KIP-98).

For each batch: `check` before it is written (a duplicate, or a reason to refuse it), `add` or `update` after; of the next batch of a
producer, `produced_batch.prepare` checks the sequence itself. Markers that end a transaction go
through `check_marker` and `end_transaction` instead. `producer_snapshots.py` writes the state to files. A producer takes 0.5 to 1 KB,
until it has been silent for producer.id.expiration.ms; clients can create any number, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_results import AbortedTransaction, Origin
from txbroker.names import TopicPartition
from txbroker.wire.batch import HEADER_SIZE, BatchHeader, read_producer

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
SEQUENCE_MAX = 2**31 - 1
# An idempotent client has at most five batches in flight on a connection, but it does not wait for those at the previous leader before it
# sends more to the new one. Kafka's ProducerStateEntry has five.
BATCHES_REMEMBERED = 10
REPEATABLE_MS = 600_000  # clients give up after delivery.timeout.ms, two minutes by default
EXPIRED_REMEMBERED = 50  # of one partition, the newest: 0.2 KB each, for as long as the log is open
VERIFICATIONS_MAX = 10_000  # of one partition; beyond, the oldest is void, and its producer has to abort its transaction


def add_sequence(sequence: int, increment: int) -> int:
    """The sequence that is `increment` further on: after 2^31-1 comes 0."""
    return (sequence + increment) & SEQUENCE_MAX


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_new_batch: Callable[[type[ProducerBatch], tuple[int, int, int, int, int]], ProducerBatch] = tuple.__new__  # half the time of a call


class ProducerState:
    """One producer, by its id. `batches`: its last ones in this epoch, oldest first; `txn_first_offset`: of its open transaction.

    `last_sequence`: of the last batch in `batches`, NO_SEQUENCE if there is none.

    `run`: so many sequence numbers up to the last are known to be in the log, one after the other, with no marker between them.
    `from_snapshot`: a snapshot keeps the last batch only, so that the log may have earlier ones than those in `batches`.
    """

    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "from_snapshot", "last_sequence", "last_timestamp", "producer_id", "run",
        "txn_first_offset",
    )  # fmt: skip

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.batches: list[ProducerBatch] = []
        self.last_sequence = NO_SEQUENCE
        self.run = 0
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = NO_OFFSET
        self.from_snapshot = False

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def add(self, batch: ProducerBatch) -> None:
        """Remember a batch, and forget the oldest if there are too many."""
        last = self.last_sequence
        if last == NO_SEQUENCE or batch.first_sequence != (last + 1) & SEQUENCE_MAX:
            self.run = 0
        self.last_sequence = batch.last_sequence
        self.run += ((batch.last_sequence - batch.first_sequence) & SEQUENCE_MAX) + 1
        self.batches.append(batch)
        if len(self.batches) > BATCHES_REMEMBERED:
            del self.batches[0]

    def is_repeatable(self, now_ms: int) -> bool:
        """Whether the producer may send a batch before its last one again: not after a transaction, and not when it is silent for long."""
        return self.coordinator_epoch < 0 and now_ms - self.last_timestamp <= REPEATABLE_MS

    def repeatable_ends(self, now_ms: int) -> list[int]:
        """The last offsets of the batches that the producer may send again, the latest first, and of its last one in any case.

        [NO_OFFSET] if its last record is a transaction marker.
        """
        if not self.batches or not self.is_repeatable(now_ms):
            return [self.last_offset]
        return [batch.last_offset for batch in reversed(self.batches)]

    def take_epoch(self, epoch: int) -> None:
        """Another epoch has other sequences."""
        if epoch != self.epoch:
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE
            self.epoch = epoch


class EndMarker(NamedTuple):
    """A control batch that ends the transaction of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    timestamp: int


class Verification:
    """A partition's leader asks the coordinator whether a producer's transaction has the partition (KIP-890).

    It is void as soon as any marker of the producer is in the log: then the answer may be about the transaction before.
    `lowest_sequence`: of the batches that wait for it. Until one of the producer's batches is in the log, later ones are out of order.
    """

    __slots__ = ("epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence


class Capture(Protocol):
    """Copies the producers as they were at one offset, while appends go on."""

    def changes(self, state: ProducerState) -> None:
        """`state` is about to change."""


class ProducerStates:
    """All producers of one partition, and its transactions: open ones, and ended ones that are not replicated yet."""

    __slots__ = ("_expired_ends", "_open", "_topic_partition", "_unreplicated", "by_id", "capture", "expiration_ms", "verifications")

    def __init__(self, topic_partition: TopicPartition, expiration_ms: int) -> None:
        """`expiration_ms`: producer.id.expiration.ms. `capture`: is given each producer before it changes, while there is one.

        `by_id`: the producers. `verifications`: of their transactions that have no batch yet, by producer id.
        """
        self.expiration_ms = expiration_ms
        self.capture: Capture | None = None
        self._topic_partition = topic_partition
        self.by_id: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in the order of the log
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the end marker
        self.verifications: dict[int, Verification] = {}  # by producer id
        self._expired_ends: dict[int, tuple[int, int]] = {}  # producer id -> epoch and last sequence, the oldest first

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    def states(self) -> dict[int, ProducerState]:
        """All producers by their ids, in a new dict."""
        return dict(self.by_id)

    def get(self, producer_id: int) -> ProducerState | None:
        return self.by_id.get(producer_id)

    # Data batches

    def check(self, header: BatchHeader, origin: Origin) -> ProducerBatch | None:
        """The batch that `header` repeats, or None when it may be appended. `first_offset` is NO_OFFSET if it is not known any more.

        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE. A coordinator's batches have no sequences.
        """
        state = self.by_id.get(header.producer_id)
        if self.verifications and origin is Origin.CLIENT:
            self._check_verified_sequence(header)
        if state is None:
            return None  # any first sequence is accepted: earlier ones may have expired
        if origin is Origin.CLIENT and header.producer_epoch == state.epoch:
            # A batch with the next expected sequence is no duplicate.
            is_next = header.base_sequence == add_sequence(state.last_sequence, 1)
            duplicate = None if is_next else _find(state, header) or _find_earlier(state, header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < state.epoch:
            raise self._refused(
                ErrorCode.INVALID_PRODUCER_EPOCH, header, f"epoch {header.producer_epoch} is older than the last seen epoch {state.epoch}"
            )
        if origin is Origin.CLIENT:
            self._check_sequence(state, header)
        if state.txn_first_offset != NO_OFFSET and not header.transactional:
            raise self._refused(ErrorCode.INVALID_TXN_STATE, header, "a write outside of its open transaction")
        return None

    def _check_sequence(self, state: ProducerState, header: BatchHeader) -> None:
        sequence = header.base_sequence
        if header.producer_epoch != state.epoch:
            if sequence != 0 and state.epoch != NO_EPOCH:
                raise self._refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, f"its epoch {header.producer_epoch} begins with sequence {sequence}"
                )
        elif sequence != add_sequence(state.last_sequence, 1):
            raise self._refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, f"sequence {sequence} does not follow on {state.last_sequence}"
            )

    def _check_verified_sequence(self, header: BatchHeader) -> None:
        """The first batch of a producer may have been refused, or may still wait, when its second one is to be appended."""
        verification = self.verifications.get(header.producer_id)
        if verification is None or verification.epoch != header.producer_epoch or header.base_sequence <= verification.lowest_sequence:
            return
        problem = f"sequence {header.base_sequence} before sequence {verification.lowest_sequence}, which began its transaction"
        raise self._refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, problem)

    def _refused(self, code: ErrorCode, header: BatchHeader, problem: str) -> BrokerError:
        return BrokerError(code, f"producer {header.producer_id} in {self._topic_partition}: {problem}")

    def update(self, header: BatchHeader, first_offset: int) -> None:
        """A data batch was appended at `first_offset`."""
        self.add(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            first_offset,
            header.max_timestamp,
            header.transactional,
        )

    def add(
        self, producer_id: int, epoch: int, sequence: int, delta: int, first_offset: int, max_timestamp: int, transactional: bool
    ) -> None:
        """As `update`, for the header's fields. `delta`: of the last offset."""
        state = self.by_id.get(producer_id)
        if state is None:
            state = self.by_id[producer_id] = ProducerState(producer_id)
        elif self.capture is not None:
            self.capture.changes(state)
        if epoch != state.epoch:
            state.take_epoch(epoch)
        last_sequence = sequence + delta & SEQUENCE_MAX if sequence != NO_SEQUENCE else NO_SEQUENCE
        batch = _new_batch(ProducerBatch, (sequence, last_sequence, first_offset, first_offset + delta, max_timestamp))
        state.add(batch)
        state.last_timestamp = max_timestamp
        if transactional and state.txn_first_offset == NO_OFFSET:
            state.txn_first_offset = first_offset
            self._open[first_offset] = producer_id
            self.verifications.pop(producer_id, None)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the producer of the oldest open transaction wrote last; None if no transaction is open."""
        producer_id = next(iter(self._open.values()), None)
        return None if producer_id is None else self.by_id[producer_id].last_timestamp

    # Verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a batch in an open transaction of this epoch."""
        state = self.by_id.get(producer_id)
        return state is not None and state.txn_first_offset != NO_OFFSET and state.epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int, sequence: int) -> Verification:
        """What a batch with this first sequence has to hold until it is appended. Batches of one producer share it."""
        known = self.verifications.get(producer_id)
        if known is not None and known.epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            return known
        if known is None and len(self.verifications) >= VERIFICATIONS_MAX:
            del self.verifications[next(iter(self.verifications))]
        begun = self.verifications[producer_id] = Verification(epoch, sequence)
        return begun

    def waits_for_verification(self, batch: memoryview) -> bool:
        """Whether the transaction of the batch's producer is being verified, or its last verification was refused."""
        return len(batch) >= HEADER_SIZE and read_producer(batch)[0] in self.verifications

    def is_valid(self, producer_id: int, verification: Verification) -> bool:
        """Whether no marker of the producer has come since the verification began."""
        return self.verifications.get(producer_id) is verification

    # Transaction markers

    def check_marker(self, marker: EndMarker) -> None:
        """INVALID_PRODUCER_EPOCH for an old epoch, TRANSACTION_COORDINATOR_FENCED for an old coordinator epoch."""
        state = self.by_id.get(marker.producer_id)
        if state is None:
            return
        if marker.producer_epoch < state.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id} in {self._topic_partition}: epoch {marker.producer_epoch} is older than {state.epoch}",
            )
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for {self._topic_partition} has coordinator epoch {marker.coordinator_epoch}, below {state.coordinator_epoch}",
            )

    def has_ended(self, producer_id: int, raised_epoch: int) -> bool:
        """Whether the marker that raises the producer's epoch to this one (transactions v2, KIP-890) is in the log already.

        INVALID_PRODUCER_EPOCH if the producer has begun its next transaction, which that marker must not end (KIP-1228).
        """
        state = self.by_id.get(producer_id)
        if state is None or state.epoch != raised_epoch:
            return False
        if state.txn_first_offset != NO_OFFSET:
            problem = f"a late marker with epoch {raised_epoch}, in which it has begun another transaction"
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} in {self._topic_partition}: {problem}")
        return True

    def end_transaction(self, marker: EndMarker, offset: int) -> AbortedTransaction | None:
        """The marker at `offset` ends its producer's transaction; returns the entry for the transaction index if it was aborted."""
        self.verifications.pop(marker.producer_id, None)
        state = self.by_id.get(marker.producer_id)
        if state is None:
            state = self.by_id[marker.producer_id] = ProducerState(marker.producer_id)
        elif self.capture is not None:
            self.capture.changes(state)
        first_offset = state.txn_first_offset
        self._close_transaction(state, marker)
        if first_offset == NO_OFFSET:
            return None  # nothing was written to this partition
        self._unreplicated[first_offset] = offset
        if marker.committed:
            return None
        return AbortedTransaction(marker.producer_id, first_offset, offset, next(iter(self._open), offset + 1))

    def take_epoch_of_cleaned_marker(self, header: BatchHeader) -> None:
        """A control batch whose marker compaction has removed: it stays because it has the producer's last epoch.

        Whether its transaction was committed is not known any more. The log that was cleaned had no data of it; one that still has some,
        a follower that was behind, must not show it.
        """
        state = self.by_id.get(header.producer_id)
        if state is None:
            state = self.by_id[header.producer_id] = ProducerState(header.producer_id)
        elif state.txn_first_offset != NO_OFFSET or header.producer_epoch < state.epoch:
            return
        elif self.capture is not None:
            self.capture.changes(state)
        state.take_epoch(header.producer_epoch)
        state.run = 0
        state.last_timestamp = header.max_timestamp

    def _close_transaction(self, state: ProducerState, marker: EndMarker) -> None:
        state.take_epoch(marker.producer_epoch)
        state.run = 0  # librdkafka may use the sequence numbers of an aborted transaction again, for other records
        state.coordinator_epoch = max(state.coordinator_epoch, marker.coordinator_epoch)
        state.last_timestamp = marker.timestamp
        if state.txn_first_offset != NO_OFFSET:
            self._open.pop(state.txn_first_offset, None)
            state.txn_first_offset = NO_OFFSET

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the earliest transaction that is open, or whose end is not below the high watermark."""
        if self._unreplicated:
            for first_offset, last_offset in list(self._unreplicated.items()):
                if last_offset < high_watermark:
                    del self._unreplicated[first_offset]
        open_first = next(iter(self._open), None)
        if not self._unreplicated:
            return open_first
        ended_first = min(self._unreplicated)
        return ended_first if open_first is None else min(open_first, ended_first)

    # Loading and forgetting

    def ended_below(self, end: int) -> dict[int, int]:
        """First offset and marker of the transactions with a marker below `end`, but not below the high watermark: no snapshot has them."""
        return {first_offset: marker for first_offset, marker in self._unreplicated.items() if marker < end}

    def restore_ended(self, ended: Mapping[int, int]) -> None:
        """Add what `ended_below` has returned, after everything else was loaded again."""
        self._unreplicated.update(ended)

    def restore(self, state: ProducerState, now_ms: int | None) -> None:
        """Add a producer from a snapshot, unless it has expired at `now_ms`."""
        if now_ms is not None and self._expired(state, now_ms):
            self._remember_expired(state)
            return
        self.by_id[state.producer_id] = state
        if state.txn_first_offset != NO_OFFSET:
            self._open[state.txn_first_offset] = state.producer_id
            self._open = dict(sorted(self._open.items()))

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        return state.txn_first_offset == NO_OFFSET and now_ms - state.last_timestamp >= self.expiration_ms

    def expire(self, now_ms: int) -> int:
        """Forget producers that were silent for too long and have no open transaction; returns how many."""
        return sum(expired for _, expired in self.expire_in_slices(now_ms, max(len(self.by_id), 1)))

    def expire_in_slices(self, now_ms: int, size: int) -> Iterator[tuple[int, int]]:
        """As `expire`, `size` producers at each step, between which producers may change; yields how many were seen and expired."""
        known = list(self.by_id)
        for first in range(0, len(known), size):
            seen, expired = known[first : first + size], 0
            for producer_id in seen:
                state = self.by_id.get(producer_id)
                if state is not None and self._expired(state, now_ms):
                    del self.by_id[producer_id]
                    self._remember_expired(state)
                    expired += 1
            yield len(seen), expired

    def _remember_expired(self, state: ProducerState) -> None:
        ends = self._expired_ends
        ends.pop(state.producer_id, None)
        if len(ends) >= EXPIRED_REMEMBERED:
            del ends[next(iter(ends))]
        ends[state.producer_id] = state.epoch, state.last_sequence

    def follows_expired(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether the batch with this first sequence is the next one of a producer that has expired here."""
        end = self._expired_ends.get(producer_id)
        return end is not None and end[0] == epoch and end[1] != NO_SEQUENCE and sequence == add_sequence(end[1], 1)

    def forget_ended_below(self, log_start_offset: int) -> None:
        """The log begins at `log_start_offset` now: ended transactions below it do not limit the last stable offset any more."""
        for first_offset, last_offset in list(self._unreplicated.items()):
            if last_offset < log_start_offset:
                del self._unreplicated[first_offset]

    def clear(self) -> None:
        """Forget everything."""
        self.capture = None
        self.by_id.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.verifications.clear()
        self._expired_ends.clear()


def _find(state: ProducerState, header: BatchHeader) -> ProducerBatch | None:
    """The remembered batch with the sequences of `header`."""
    first = header.base_sequence
    for batch in state.batches:
        if batch.first_sequence == first and batch.last_sequence == add_sequence(first, header.last_offset_delta):
            return batch
    return None


def _find_earlier(state: ProducerState, header: BatchHeader) -> ProducerBatch | None:
    """A batch that was appended before the remembered ones: its offsets are not known any more."""
    # A previous leader may be silent until request.timeout.ms, while the client sends any number of batches to the new one. Apache Kafka
    # refuses the earlier ones as out of order; clients repeat them until delivery.timeout.ms, or write them twice.
    if not state.batches:
        return None
    oldest = state.batches[0]
    remembered = (state.last_sequence + 1 - oldest.first_sequence) & SEQUENCE_MAX
    below = (oldest.first_sequence - header.base_sequence) & SEQUENCE_MAX
    if not header.last_offset_delta < below <= min(state.run - remembered, SEQUENCE_MAX // 2):
        return None
    last_sequence = add_sequence(header.base_sequence, header.last_offset_delta)
    return ProducerBatch(header.base_sequence, last_sequence, NO_OFFSET, oldest.first_offset - 1, -1)
