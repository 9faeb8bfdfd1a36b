"""The log of an internal topic in memory: real record batches, appends that can be hosted back or fail."""

from __future__ import annotations

from collections import defaultdict

from twisted.internet.defer import Deferred, fail, succeed

from tests.wire.record_samples import batches
from txbroker.coordinators.state_log import Pair, TransactionalProducer
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire import batch
from txbroker.wire.records import Record, build


class MemoryLog:
    def __init__(self, batches_a_read: int = 3) -> None:
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.ends: dict[int, int] = defaultdict(int)
        self.batches_a_read = batches_a_read
        self.hold = False
        self.hosted: list[Deferred[None]] = []
        self.hold_reads = False
        self.held_reads: list[tuple[Deferred[bytes], bytes]] = []
        self.append_error: Exception | None = None
        self.read_error: Exception | None = None
        self.appends: list[tuple[int, list[Pair]]] = []

    def append(
        self, partition_index: int, records: list[Pair], now_ms: int, producer: TransactionalProducer | None = None
    ) -> Deferred[None]:
        if self.append_error is not None:
            return fail(self.append_error)
        self.appends.append((partition_index, records))
        in_transaction = {} if producer is None else {"producer_id": producer.id, "producer_epoch": producer.epoch, "transactional": True}
        self.put(partition_index, records, now_ms, **in_transaction)
        if not self.hold:
            return succeed(None)
        hosted: Deferred[None] = Deferred()
        self.hosted.append(hosted)
        return hosted

    def put(self, partition_index: int, records: list[Pair], now_ms: int = 0, **of_batch: object) -> None:
        """Append a batch without a word to anyone."""
        base = self.ends[partition_index]
        made = [Record(base + n, now_ms, key, value, ()) for n, (key, value) in enumerate(records)]
        self.logs[partition_index].append(build(made, base_offset=base, **of_batch))  # type: ignore[arg-type]
        self.ends[partition_index] += len(records)

    def put_log(self, partition_index: int, log: bytes) -> None:
        for position, header in batches(log):
            self.logs[partition_index].append(log[position : position + header.size])
            self.ends[partition_index] = header.last_offset + 1

    def committed(self, partition_index: int, end: int) -> Deferred[None]:
        return succeed(None)

    def read(self, partition_index: int, offset: int) -> Deferred[bytes | memoryview]:
        if self.read_error is not None:
            return fail(self.read_error)
        wanted = [b for b in self.logs[partition_index] if batch.read_header(b).last_offset >= offset]
        chunk = b"".join(wanted[: self.batches_a_read])
        if not self.hold_reads:
            return succeed(chunk)
        hosted: Deferred[bytes | memoryview] = Deferred()
        self.held_reads.append((hosted, chunk))
        return hosted

    def complete(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest append that is hosted back ends."""
        hosted = self.hosted.pop(0)
        if error:
            hosted.errback(BrokerError(error))
        else:
            hosted.callback(None)
