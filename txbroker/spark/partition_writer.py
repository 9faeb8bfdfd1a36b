"""Writes records to one partition of a replay's target, each exactly once, whatever process does it and however often it is begun again.

`replay_progress` has the idea. Executors run this; it needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import RequestFailed
from txbroker.client.offset_requests import EARLIEST
from txbroker.client.topic_reader import READ_UNCOMMITTED
from txbroker.errors import ErrorCode, error_name
from txbroker.names import NULL_TOPIC_ID, amount
from txbroker.spark.brokers import Brokers
from txbroker.spark.replay_progress import SEQUENCES, Positions, ReplayProgress
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.entries import EntryHeader, Scan
from txbroker.wire.messages.fetch import PartitionData
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.records import Record, build

ACKS_ALL = -1
TIMEOUT_MS = 30_000
FETCH_BYTES = 1024 * 1024
EPOCH = 0
_OVERHEAD_BYTES = 40  # of a record beside key, value and headers
# What to do about errors of Produce.
_ADVICE = {
    ErrorCode.INVALID_TIMESTAMP: "set message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target so that it takes "
                                 "the records' timestamps",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the target",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the target",
    ErrorCode.INVALID_RECORD: "a compacted target requires keys; set its cleanup.policy=delete",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "permit this client to write to the target",
}
_OVERTAKEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID)


class ReplayStopped(Exception):
    """A partition cannot be written any further; the text says what to do."""


@dataclass(frozen=True)
class Target:
    """Where to write, the same for all partitions. `batch_bytes`: of a batch, about, before it is compressed; `batch_records`: at most."""

    brokers: Brokers
    topic: str
    group: str
    batch_bytes: int
    batch_records: int
    codec: Codec = Codec.NONE


class PartitionWriter:
    """Continues where the replay is in this partition. ReplayStopped and ClientError from every method."""

    def __init__(self, target: Target, partition: int) -> None:
        self._target = target
        self.partition = partition
        self.added = 0
        self._commits = target.brokers.commits(target.group)
        self._reader = target.brokers.reader(target.topic, READ_UNCOMMITTED)
        self._records: list[Record] = []
        self._bytes = 0
        self._checked: BlockingConnection | None = None  # to the leader, since when it has not restarted
        try:
            self._progress, self._leave_out = self._resume()
        except BaseException:
            self.close()
            raise
        self._next = dict(self._progress.before)

    def __str__(self) -> str:
        return f"{self._target.topic}-{self.partition}"

    def _resume(self) -> tuple[ReplayProgress, int]:
        """Where to continue, and how many records to leave out there."""
        target = self._target
        found = self._commits.fetch(target.topic, [self.partition]).get(self.partition)
        if found is None:
            raise ReplayStopped(f"the progress of {self} is gone from group {target.group}; replay into another topic, with another --id")
        committed = ReplayProgress.of(found, target.group)
        return committed.resume(self._batches_since(committed))

    def close(self) -> None:
        """Close the connections."""
        self._commits.close()
        self._reader.close()

    def add(self, source: int, offset: int, record: Record) -> None:
        """Add a record from an offset of a source partition, unless it was written before. Its own offset does not matter."""
        if offset < self._next.get(source, 0):
            return
        if self._leave_out:
            self._leave_out -= 1
            self._progress = self._progress._replace(written=self._progress.written + 1)
            self._moved(source, offset)
            self._progress = self._progress._replace(before=dict(self._next))
            return
        size = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
        if self._records and (self._bytes + size > self._target.batch_bytes or len(self._records) >= self._target.batch_records):
            self.flush()
        self._records.append(record._replace(offset=len(self._records)))
        self._bytes += size
        self._moved(source, offset)

    def flush(self) -> None:
        """Write what was added."""
        if not self._records:
            return
        progress = self._progress
        first = progress.written % SEQUENCES
        batch = build(self._records, codec=self._target.codec, producer_id=progress.producer_id, producer_epoch=EPOCH, base_sequence=first)
        count = len(self._records)
        self._progress = progress._replace(in_flight=count, after=dict(self._next))
        self._commits.commit(self._target.topic, {self.partition: self._progress.committed()})
        base_offset = self._produce(batch)
        end = base_offset + count if base_offset >= 0 else progress.target_offset  # unknown of a batch that was there already
        self._progress = progress._replace(written=progress.written + count, before=dict(self._next), target_offset=end)
        self.added += count
        self._records.clear()
        self._bytes = 0

    def finish(self, ends: Positions) -> None:
        """Write what was added, and commit that nothing is in flight, and that the source was read up to these offsets."""
        self.flush()
        if self._leave_out:
            raise ReplayStopped(f"{self} has {self._leave_out} records of this replay that the source does not have any more: "
                                "it was compacted or expired meanwhile; compare the target with the source")
        position = {**self._next, **{source: max(end, self._next.get(source, 0)) for source, end in ends.items()}}
        progress = self._progress._replace(in_flight=0, before=position, after=position)
        self._commits.commit(self._target.topic, {self.partition: progress.committed()})

    def _moved(self, source: int, offset: int) -> None:
        self._next[source] = offset + 1

    def _produce(self, batch: bytes) -> int:
        """The base offset; -1 if the log had the batch already, and the broker does not say where."""
        data = [PartitionProduceData(index=self.partition, records=batch)]
        topic_id = self._reader.topic_id
        topics = [TopicProduceData(name=self._target.topic, topic_id=topic_id, partition_data=data)]
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=topics)
        by_name = 12 if topic_id == NULL_TOPIC_ID else None

        def ask(leader: BlockingConnection) -> tuple[int, int]:
            if leader is not self._checked:
                # A broker that has restarted does not know the producer if its records are old, and would take a batch again.
                if self._is_written():
                    return 0, -1
                self._checked = leader
            answer: ProduceResponse = leader.call(request, version_max=by_name)
            (result,) = answer.responses[0].partition_responses
            if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._is_written()  # ReplayStopped if another process has written on
                return 0, -1
            return result.error_code, result.base_offset

        try:
            return self._reader.ask_leader(self.partition, ask, "cannot be written")
        except RequestFailed as refused:
            if refused.code in _OVERTAKEN:
                raise self._overtaken(error_name(refused.code)) from None
            at = ", ".join(f"{source}:{offset}" for source, offset in sorted(self._progress.before.items()))
            advice = _ADVICE.get(ErrorCode(refused.code), "see the broker's log")
            raise ReplayStopped(f"{self} refuses a batch of {amount(len(self._records), 'record')} ({error_name(refused.code)}); the "
                                f"source is at {at} (partition:offset); {advice}, and run this again") from None

    def _is_written(self) -> bool:
        """Whether the log has the batch that is in flight; ReplayStopped if another process has written on."""
        found, leave_out = self._progress.resume(self._batches_since(self._progress))
        if leave_out:
            raise self._overtaken(f"its log has {amount(leave_out, 'record')} more")
        return found.written > self._progress.written

    def _overtaken(self, evidence: str) -> ReplayStopped:
        return ReplayStopped(f"another run of this replay writes to {self} ({evidence}); wait until it has ended, and run this again")

    def _batches_since(self, progress: ReplayProgress) -> Iterator[tuple[int, int]]:
        """First sequence number and count of each batch of the replay's producer in the log."""
        offset = progress.target_offset
        if offset < self._reader.offset(self.partition, EARLIEST):
            raise ReplayStopped(f"the target deleted records of {self} from offset {offset} on, so that it cannot be known how far the "
                                "replay came; replay into another topic, with another --id")
        while True:
            data = self._reader.fetch(self.partition, offset, FETCH_BYTES)
            if data.error_code:
                raise ReplayStopped(f"{self} has no offset {offset} ({error_name(data.error_code)}): its log lost records; "
                                    "replay into another topic, with another --id")
            headers = _headers(data)
            if not headers:
                return
            for header in headers:
                if isinstance(header, BatchHeader) and header.producer_id == progress.producer_id:
                    yield header.base_sequence, header.last_offset_delta + 1
            offset = headers[-1].last_offset + 1


def _headers(data: PartitionData) -> Sequence[EntryHeader]:
    """The headers of the batches in a response, without one that is incomplete there. CorruptRecords."""
    assert isinstance(data.records, memoryview | None)
    scan = Scan(data.records or b"")
    headers = [header for _, header in scan]
    scan.raise_if_corrupt()
    return headers
