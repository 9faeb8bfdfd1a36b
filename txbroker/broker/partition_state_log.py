"""A coordinator's log: the partitions of its internal topic that this broker leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from txbroker.api.parking import park
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.cluster.replicas import Replicas
from txbroker.coordinators.state_log import Pair, TransactionalProducer
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log_results import Origin
from txbroker.purgatory import Purgatory
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

NO_TIMEOUT_MS = 2**31  # 24 days: a wait of a coordinator that is loading ends when it is unloaded

InWorker: TypeAlias = Callable[[Callable[[], bytes | memoryview]], "Deferred[bytes | memoryview]"]


class PartitionStateLog:
    """Implements `coordinators.state_log.StateLog`."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        purgatory: Purgatory,
        *,
        codec: Codec,
        timeout_ms: int,
        load_bytes: Callable[[], int],
        in_worker: InWorker,
    ) -> None:
        """`timeout_ms`: for the in-sync replicas, such as offsets.commit.timeout.ms; `load_bytes`: offsets.load.buffer.size."""
        self._topic = topic
        self._replicas = replicas
        self._purgatory = purgatory
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._load_bytes = load_bytes
        self._in_worker = in_worker

    def append(
        self, partition_index: int, records: list[Pair], now_ms: int, producer: TransactionalProducer | None = None
    ) -> Deferred[None]:
        """Append one batch with acks=all."""
        made = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(records)]
        if producer is None:
            batch = build(made, codec=self._codec)
        else:
            batch = build(made, codec=self._codec, producer_id=producer.id, producer_epoch=producer.epoch, transactional=True)
        try:
            partition = self._replicas.get(self._topic, partition_index)
        except BrokerError as error:
            return fail(error)
        return append_batch(partition, batch, now_ms, self._purgatory, self._timeout_ms, Origin.COORDINATOR)

    def committed(self, partition_index: int, end: int) -> Deferred[None]:
        """Wait for the high watermark. A new leader epoch of this leader changes nothing: its log stays as it is."""
        try:
            partition = self._replicas.get(self._topic, partition_index)
        except BrokerError as error:
            return fail(error)
        if partition.high_watermark >= end:
            return succeed(None)
        keys = [partition.topic_partition]
        return park(self._purgatory, keys, NO_TIMEOUT_MS, lambda done: _Committed(partition, end, done), internal=True)

    def read(self, partition_index: int, offset: int) -> Deferred[bytes | memoryview]:
        """Read at most `load_bytes` bytes, in a worker."""
        try:
            partition = self._replicas.get(self._topic, partition_index)
            log = partition.log
            region = partition.read(max(offset, log.log_start_offset), self._load_bytes(), log.log_end_offset, True).region
        except BrokerError as error:
            return fail(error)
        return self._in_worker(region.read).addErrback(_report, partition)


def append_batch(
    partition: Partition, batch: bytes, now_ms: int, purgatory: Purgatory, timeout_ms: int, origin: Origin
) -> Deferred[None]:
    """Append a batch of this broker's own with acks=all, however many clients wait in the purgatory. Fails with BrokerError."""
    try:
        appended = partition.append(memoryview(bytearray(batch)), now_ms, all_in_sync=True, origin=origin)
    except BrokerError as error:
        return fail(error)
    if partition.acknowledged(appended.last_offset):
        return succeed(None)
    done: Deferred[None] = Deferred()
    pending = PendingAppend(partition, partition.leadership, appended.last_offset)
    purgatory.park(_Replicated(pending, done), [partition.topic_partition], timeout_ms, internal=True)
    return done


def _report(failure: Failure, partition: Partition) -> Failure:
    if isinstance(failure.value, StorageError):
        partition.storage_failed(failure.value)
    return failure


class _Replicated:
    """An append of the coordinator that waits for the in-sync replicas."""

    def __init__(self, append: PendingAppend, done: Deferred[None]) -> None:
        self._append = append
        self._done = done

    def try_complete(self) -> bool:
        """All in-sync replicas have the record, or never will."""
        outcome = self._append.outcome()
        if outcome is None:
            return False
        if outcome:
            self._done.errback(BrokerError(outcome))
        else:
            self._done.callback(None)
        return True

    def on_expired(self) -> None:
        """The in-sync replicas have not copied the records within the timeout."""
        self._done.errback(BrokerError(ErrorCode.REQUEST_TIMED_OUT))


class _Committed:
    """A load that waits for the records that it has read."""

    def __init__(self, partition: Partition, end: int, done: Deferred[None]) -> None:
        self._partition = partition
        self._end = end
        self._done = done

    def try_complete(self) -> bool:
        """All in-sync replicas have them."""
        if self._partition.high_watermark < self._end:
            return False
        self._done.callback(None)
        return True

    def on_expired(self) -> None:
        """The broker stops."""
        self._done.errback(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
