"""Reads a partition of `__consumer_offsets`: from record batches to groups and their offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred

from txbroker.errors import CorruptRecords, ProtocolError
from txbroker.groups.group_effects import GroupRecord
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.group_records import GroupEntry, OffsetEntry, read
from txbroker.groups.offsets_store import OffsetsStore
from txbroker.wire import entries
from txbroker.wire.control import read_marker
from txbroker.wire.records import Record

log = logging.getLogger("txbroker.groups")

BATCH_BYTES_MAX = 256 * 1024 * 1024  # of one batch's records when decompressed; brokers write much less
RECORDS_PER_TURN = 500  # a few milliseconds of work between two pauses


class LoadedPartition:
    """The groups and offsets of one partition, replayed record by record."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupRecord] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.record_count = 0
        self.skipped_count = 0  # records of unknown kinds, or malformed
        self._transactions: dict[int, set[str]] = {}  # producer id -> groups with offsets in its open transaction

    def batches(self, chunk: bytes | memoryview) -> Iterator[int]:
        """Replay a chunk of whole batches of any magic; yields the offset after each. CorruptRecords if one is malformed."""
        scan = entries.Scan(chunk, check_crc=True)
        for position, header in scan:
            for record in entries.read_records(chunk, position, header, BATCH_BYTES_MAX):
                self.record_count += 1
                if header.control:
                    self._end_transaction(header.producer_id, record)
                else:
                    self._replay(record, header.producer_id if header.transactional else None)
            yield header.last_offset + 1
        scan.raise_if_corrupt()

    def _replay(self, record: Record, producer_id: int | None) -> None:
        try:
            entry = read(record.key, record.value)
        except ProtocolError as error:
            log.warning("__consumer_offsets: skipping the malformed record at offset %d: %s", record.offset, error)
            entry = None
        match entry:
            case None:
                self.skipped_count += 1
            case GroupEntry(group_id, None):
                self.groups.pop(group_id, None)
            case GroupEntry(group_id, group):
                assert group is not None
                self.groups[group_id] = group
            case OffsetEntry(group_id, partition, offset):
                offsets = self.offsets.setdefault(group_id, GroupOffsets())
                if producer_id is None:
                    offsets.replay(partition, offset)
                else:
                    self._transactions.setdefault(producer_id, set()).add(group_id)
                    offsets.replay_transactional(producer_id, partition, offset)

    def _end_transaction(self, producer_id: int, marker: Record) -> None:
        ended = read_marker(marker)
        if ended is None:
            return
        for group_id in self._transactions.pop(producer_id, ()):
            self.offsets[group_id].end_transaction(producer_id, ended.committed)


async def load(store: OffsetsStore, partition_index: int, pause: Callable[[], Deferred[None]]) -> LoadedPartition:
    """Read a whole partition, with a `pause` every `RECORDS_PER_TURN` records. BrokerError if the log cannot be read.

    A new leader may have records that not all in-sync replicas have. It must not answer from them before they are replicated: with the
    next leader they could be gone, and with them a committed offset that a client has seen, or a member.
    """
    loaded = LoadedPartition()
    offset = 0
    paused_at = 0
    while chunk := await store.read(partition_index, offset):
        start = offset
        for next_offset in loaded.batches(chunk):
            offset = next_offset
            if loaded.record_count - paused_at >= RECORDS_PER_TURN:
                paused_at = loaded.record_count
                await pause()
        if offset <= start:
            raise CorruptRecords(f"__consumer_offsets-{partition_index}: no whole batch at offset {start}")
    replicated = store.committed(partition_index, offset)
    if not replicated.called:
        log.info("__consumer_offsets-%d: read up to offset %d; waiting until the in-sync replicas have it all", partition_index, offset)
    await replicated
    return loaded
