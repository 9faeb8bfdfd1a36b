"""The transaction coordinator: answers the transaction APIs for the partitions of `__transaction_state` that this broker leads.

`transaction.py` decides, this module writes: a decision is appended to the id's partition and takes effect when all in-sync replicas have
it. A prepared transaction is decided for good. Its markers are sent until every partition has one, and then its end is written; after a
change of the coordinator the next one sends them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.coordinators.keyed_deadlines import KeyedDeadlines, monotonic_ms
from txbroker.coordinators.load_times import LoadTimes
from txbroker.coordinators.repeated_call import RepeatedCall
from txbroker.coordinators.shard_writer import APPEND_ERRORS, TOO_LARGE, ShardWriter
from txbroker.coordinators.shards import Shard, Shards
from txbroker.coordinators.state_log import Pair, StateLog
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TRANSACTIONS_TOPIC, TopicPartition, amount
from txbroker.transactions.marker_queues import MarkerQueues, Markers
from txbroker.transactions.transaction import NeedsProducerId, Producer, Repeated, Transaction, Transition, answer_after_end
from txbroker.transactions.transaction_config import TransactionConfig
from txbroker.transactions.transaction_record import TransactionRecord, transaction_key, transaction_value
from txbroker.transactions.transaction_replay import TransactionReplay
from txbroker.transactions.transaction_states import TransactionState

log = logging.getLogger("txbroker.transactions")

T = TypeVar("T")

RETRY_MS = 100  # the end of a transaction whose append has failed
TOMBSTONES_PER_BATCH = 1_000  # well below any max.message.bytes that is in use

# What a client receives when an append fails (Kafka's TransactionStateManager).
_ERRORS = (
    APPEND_ERRORS
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    | dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
)


@lazy_dataclass(slots=True, eq=False)
class HostedTransaction:
    """A transactional id with its partition of `__transaction_state`, and the markers that are on their way.

    `times_out_s`: when its open transaction times out, by the monotonic clock; None if it has none.
    """

    shard: TransactionShard
    transaction: Transaction
    markers: Markers | None = None
    times_out_s: float | None = None


TransactionsOfPartition: TypeAlias = dict[str, HostedTransaction]  # by transactional id
TransactionShard: TypeAlias = Shard[TransactionsOfPartition]


class TransactionCoordinator:
    """The transactional ids of this broker.

    `clock` is monotonic; `now_ms` is the wall clock, since what it dates is compared after a restart or on another broker: the start of a
    transaction and the last use of an id. A transaction that is open times out by `clock`, of which a new coordinator sets the rest of
    the timeout, at most the whole. `next_id` allocates a producer id. Methods fail with BrokerError.
    """

    topic = TRANSACTIONS_TOPIC
    keys = "transactional id"

    def __init__(
        self,
        clock: Clock,
        now_ms: Callable[[], int],
        state_log: StateLog,
        config: TransactionConfig,
        partition_count: Callable[[], int],
        next_id: Callable[[], Deferred[int]],
        queues: MarkerQueues,
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._config = config
        self._next_id = next_id
        self._queues = queues
        self._writer = ShardWriter(self.topic, self.keys, state_log, now_ms)
        self._shards: Shards[TransactionsOfPartition, TransactionReplay] = Shards(clock, state_log, partition_count, self)
        self._hosted: dict[str, HostedTransaction] = {}
        self._retries: KeyedDeadlines[HostedTransaction] = KeyedDeadlines(clock, lambda hosted, _: self._complete(hosted))
        self._checks = (
            RepeatedCall(clock, config.abort_interval_ms, self.abort_timed_out),
            RepeatedCall(clock, config.expiration_interval_ms, self.remove_expired),
        )
        self._is_stopped = False

    # Leadership

    def load(self, partition_index: int, epoch: int) -> Deferred[None]:
        """Lead a partition of `__transaction_state` in this leader epoch: read its log, and go on with its prepared transactions."""
        return self._shards.load(partition_index, epoch)

    def unload(self, partition_index: int) -> None:
        """Resign from a partition."""
        self._shards.unload(partition_index)

    def start(self) -> None:
        """Start the periodic checks: for timed-out transactions and for expired ids."""
        for check in self._checks:
            check.start()

    def stop(self) -> None:
        """Cancel every timer. Later requests fail with COORDINATOR_NOT_AVAILABLE."""
        self._is_stopped = True
        for check in self._checks:
            check.stop()
        self._shards.unload_all()
        self._queues.stop()
        self._retries.stop()

    @property
    def load_times(self) -> LoadTimes:
        """How long partitions of `__transaction_state` took to load."""
        return self._shards.load_times

    @property
    def retry_count(self) -> int:
        """Transactions whose end could not be written, and is written again."""
        return len(self._retries)

    def __iter__(self) -> Iterator[HostedTransaction]:
        """Every transactional id of the active partitions, as of now."""
        return iter(list(self._hosted.values()))

    # Requests of producers

    async def initialize(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """InitProducerId. `expected`: the producer that recovers from an error (KIP-360).

        An open transaction of an earlier producer is aborted first: CONCURRENT_TRANSACTIONS, and the producer asks again.
        """
        shard = self._route(transactional_id)
        if not 0 < timeout_ms <= self._config.timeout_max_ms:
            raise BrokerError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"transaction.timeout.ms must be at most {self._config.timeout_max_ms}, and above 0"
            )
        if transactional_id not in shard.content:
            producer_id = await self._next_id()
            shard = self._route(transactional_id)
            if transactional_id not in shard.content:
                self._hold(shard, Transaction.new(transactional_id, producer_id, timeout_ms, self._now_ms()))
        hosted, transition = await self._decide(
            transactional_id, lambda transaction, new_id: transaction.initialize(timeout_ms, expected, self._now_ms(), new_id)
        )
        await self._write(hosted, transition)
        if transition.record.state is TransactionState.PREPARE_ABORT:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction of the producer before is being aborted")
        return Producer(transition.record.producer_id, transition.record.producer_epoch)

    async def add_partitions(self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition], version: int) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn. `version`: of the client's transactions, 2 if a partition's leader asks for it."""
        hosted = self._get(transactional_id)
        transition = hosted.transaction.add_partitions(producer, frozenset(partitions), version, self._now_ms())
        if transition is not None:
            await self._write(hosted, transition)

    def verify(self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
        """Whether each partition belongs to the producer's open transaction (KIP-890)."""
        return self._get(transactional_id).transaction.verify(producer, partitions)

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        """EndTxn: answered when the decision is written; markers follow. The producer to use from now on."""
        hosted, transition = await self._decide(
            transactional_id,
            lambda transaction, new_id: transaction.end(producer, commit=commit, version=version, now_ms=self._now_ms(), new_id=new_id),
        )
        if isinstance(transition, Repeated):
            return transition.producer
        await self._write(hosted, transition)
        return answer_after_end(transition)

    # Administration

    def describe(self, transactional_id: str) -> TransactionRecord:
        """The state of an id. TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        hosted = self._route(transactional_id).content.get(transactional_id)
        if hosted is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id}")
        return hosted.transaction.record

    def states(self) -> dict[str, TransactionRecord]:
        """The state of every id of this broker. COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE."""
        if self._is_stopped:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._shards.loading():
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return {hosted.transaction.transactional_id: hosted.transaction.record for hosted in self}

    # Periodic checks

    def abort_timed_out(self) -> None:
        """Abort the transactions that are open for longer than their timeout."""
        now_s = self._clock.seconds()
        for hosted in self:
            if hosted.times_out_s is not None and hosted.times_out_s <= now_s:
                self.abort(hosted)

    def abort(self, hosted: HostedTransaction) -> None:
        """Abort an open transaction as after its timeout, which fences its producer; nothing while another decision is being written."""
        transition = hosted.transaction.abort_timed_out(self._now_ms())
        if transition is not None:
            log.info("transactional id %s: its transaction of producer %d with epoch %d is aborted after its timeout of %d ms",
                     hosted.transaction.transactional_id, *_ids(hosted.transaction.producer), transition.record.timeout_ms)  # fmt: skip
            self._begin(hosted, transition)

    def remove_expired(self) -> None:
        """Remove the ids that were not used for transactional.id.expiration.ms, with tombstones."""
        now_ms = self._now_ms()
        by_shard: dict[TransactionShard, list[HostedTransaction]] = {}
        for hosted in self:
            transition = hosted.transaction.expire(now_ms, self._config.id_expiration_ms)
            if transition is not None:
                hosted.transaction.begin(transition)
                by_shard.setdefault(hosted.shard, []).append(hosted)
        for shard, expired in by_shard.items():
            log.info("%s-%d: removing %s", self.topic, shard.index, amount(len(expired), f"expired {self.keys}"))
            rest = iter(expired)
            while chunk := list(islice(rest, TOMBSTONES_PER_BATCH)):
                pairs: list[Pair] = [(transaction_key(hosted.transaction.transactional_id), None) for hosted in chunk]
                self._writer.append(shard, chunk[0].transaction.transactional_id, pairs).addCallback(partial(self._removed, chunk))

    def _removed(self, chunk: list[HostedTransaction], error: ErrorCode) -> None:
        for hosted in chunk:
            hosted.transaction.settle(written=not error)
            if not error and self._is_current(hosted):
                self._forget(hosted)

    # ShardOwner

    def new_content(self) -> TransactionsOfPartition:
        """No ids."""
        return {}

    def new_replay(self) -> TransactionReplay:
        """What reads states of ids."""
        return TransactionReplay()

    def activate(self, shard: TransactionShard, replayed: TransactionReplay) -> None:
        """Take over the states that the log has."""
        for transactional_id, record in replayed.records.items():
            self._hold(shard, Transaction(transactional_id, record))

    def activated(self, shard: TransactionShard) -> None:
        """Go on with prepared transactions."""
        for hosted in list(shard.content.values()):
            self._go_on(hosted)

    def deactivate(self, shard: TransactionShard) -> None:
        """Stop what concerns the ids of this partition: another broker goes on with it."""
        for hosted in list(shard.content.values()):
            self._forget(hosted)

    # Internals

    def _route(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if self._is_stopped:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.route(transactional_id)
        if isinstance(shard, ErrorCode):
            raise BrokerError(shard)
        return shard

    def _get(self, transactional_id: str) -> HostedTransaction:
        hosted = self._route(transactional_id).content.get(transactional_id)
        if hosted is None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id} is not initialized")
        return hosted

    def _hold(self, shard: TransactionShard, transaction: Transaction) -> None:
        hosted = HostedTransaction(shard, transaction)
        self._time(hosted)
        shard.content[transaction.transactional_id] = self._hosted[transaction.transactional_id] = hosted

    def _time(self, hosted: HostedTransaction) -> None:
        """The state has changed: begin to time a transaction that is open now, or stop."""
        record = hosted.transaction.record
        if record.state is not TransactionState.ONGOING:
            hosted.times_out_s = None
        elif hosted.times_out_s is None:
            left_ms = record.start_ms + record.timeout_ms - self._now_ms()
            hosted.times_out_s = self._clock.seconds() + min(max(left_ms, 0), record.timeout_ms) / 1000

    def _forget(self, hosted: HostedTransaction) -> None:
        transactional_id = hosted.transaction.transactional_id
        hosted.shard.content.pop(transactional_id, None)
        self._hosted.pop(transactional_id, None)
        self._retries.cancel(hosted)
        if hosted.markers is not None:
            self._queues.cancel(hosted.markers)
            hosted.markers = None

    def _is_current(self, hosted: HostedTransaction) -> bool:
        return self._hosted.get(hosted.transaction.transactional_id) is hosted

    async def _decide(self, transactional_id: str, decide: Callable[[Transaction, int | None], T]) -> tuple[HostedTransaction, T]:
        """Decide, if necessary with a new producer id."""
        hosted = self._get(transactional_id)
        try:
            return hosted, decide(hosted.transaction, None)
        except NeedsProducerId:
            new_id = await self._next_id()
        hosted = self._get(transactional_id)
        return hosted, decide(hosted.transaction, new_id)

    async def _write(self, hosted: HostedTransaction, transition: Transition) -> None:
        """Write a decision for a client; BrokerError with the error to answer."""
        error = await self._begin(hosted, transition)
        if error:
            raise BrokerError(_ERRORS.get(error, error))

    def _begin(self, hosted: HostedTransaction, transition: Transition) -> Deferred[ErrorCode]:
        """Write a decision and go on. Fires with NONE when it has taken effect, or with the error of the log; never fails."""
        hosted.transaction.begin(transition)
        transactional_id = hosted.transaction.transactional_id
        pair = transaction_key(transactional_id), transaction_value(transition.record)
        written = self._writer.append(hosted.shard, transactional_id, [pair])
        # A client that disconnects cancels its Deferred; the append goes on.
        outcome: Deferred[ErrorCode] = Deferred()

        def settle(error: ErrorCode) -> None:
            hosted.transaction.settle(written=not error)
            self._time(hosted)
            if not self._is_current(hosted):
                error = ErrorCode.NOT_COORDINATOR  # the record is in the log, perhaps: the next coordinator reads it
            elif not error:
                self._go_on(hosted)
            outcome.callback(error)

        written.addCallback(settle)
        return outcome

    def _go_on(self, hosted: HostedTransaction) -> None:
        """Send the markers of a prepared transaction, or write its end if no partition needs one."""
        transaction = hosted.transaction
        record = transaction.record
        hosted.markers = None
        if not record.state.is_prepared:
            return
        if not transaction.unmarked:
            self._complete(hosted)
            return
        hosted.markers = Markers(
            transactional_id=transaction.transactional_id,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            committed=record.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=hosted.shard.epoch,
            version=record.version,
            marked=partial(self._marked, hosted),
        )
        self._queues.send(hosted.markers, frozenset(transaction.unmarked))

    def _marked(self, hosted: HostedTransaction, partitions: Iterable[TopicPartition]) -> None:
        hosted.transaction.marked(partitions)
        self._complete(hosted)

    def _complete(self, hosted: HostedTransaction) -> None:
        """Write the end of a transaction whose partitions all have their marker, until it is written."""
        transition = hosted.transaction.complete(self._now_ms())
        if transition is None:
            return

        def written(error: ErrorCode) -> None:
            if error and self._is_current(hosted):
                self._retries.set(hosted, monotonic_ms(self._clock) + RETRY_MS)

        self._begin(hosted, transition).addCallback(written)


def _ids(producer: Producer) -> tuple[int, int]:
    return producer.id, producer.epoch
