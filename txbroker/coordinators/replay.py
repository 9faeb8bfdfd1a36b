"""Reads a partition of an internal topic: from record batches to the state of a coordinator."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred

from txbroker.coordinators.state_log import StateLog
from txbroker.errors import CorruptRecords, ProtocolError
from txbroker.wire import entries
from txbroker.wire.control import Marker, read_marker
from txbroker.wire.records import Record

log = logging.getLogger("txbroker.coordinators")

BATCH_BYTES_MAX = 256 * 1024 * 1024  # of one batch's records when decompressed; brokers write much less
RECORDS_PER_TURN = 500  # a few milliseconds of work between two pauses


class Replay(ABC):
    """The state that the records of one partition lead to, replayed record by record."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.record_count = 0
        self.skipped_count = 0  # records of unknown kinds, or malformed

    @abstractmethod
    def record(self, record: Record, producer_id: int | None) -> bool:
        """Replay a record; `producer_id` if it belongs to a transaction. False for one of an unknown kind; ProtocolError: malformed."""

    @abstractmethod
    def marker(self, producer_id: int, marker: Marker) -> None:
        """The end of a producer's transaction in this partition."""

    def batches(self, chunk: bytes | memoryview) -> Iterator[int]:
        """Replay a chunk of whole batches of any magic; yields the offset after each. CorruptRecords if one is malformed."""
        scan = entries.Scan(chunk, check_crc=True)
        for position, header in scan:
            for record in entries.read_records(chunk, position, header, BATCH_BYTES_MAX):
                self.record_count += 1
                if header.control:
                    ended = read_marker(record)
                    if ended is not None:
                        self.marker(header.producer_id, ended)
                elif not self._is_known(record, header.producer_id if header.transactional else None):
                    self.skipped_count += 1
            yield header.last_offset + 1
        scan.raise_if_corrupt()

    def _is_known(self, record: Record, producer_id: int | None) -> bool:
        try:
            return self.record(record, producer_id)
        except ProtocolError as error:
            log.warning("%s: skipping the malformed record at offset %d: %s", self.topic, record.offset, error)
            return False


async def replay_partition(state_log: StateLog, partition_index: int, replay: Replay, pause: Callable[[], Deferred[None]]) -> None:
    """Replay a whole partition, with a `pause` every `RECORDS_PER_TURN` records. BrokerError if the log cannot be read.

    A new leader may have records that not all in-sync replicas have. It must not answer from them before they are replicated: with the
    next leader they could be gone, and with them a committed offset that a client has seen, or a member.
    """
    offset = 0
    paused_at = 0
    while chunk := await state_log.read(partition_index, offset):
        start = offset
        for next_offset in replay.batches(chunk):
            offset = next_offset
            if replay.record_count - paused_at >= RECORDS_PER_TURN:
                paused_at = replay.record_count
                await pause()
        if offset <= start:
            raise CorruptRecords(f"{replay.topic}-{partition_index}: no whole batch at offset {start}")
    replicated = state_log.committed(partition_index, offset)
    if not replicated.called:
        log.info("%s-%d: read up to offset %d; waiting until the in-sync replicas have it all", replay.topic, partition_index, offset)
    await replicated
