"""Rewrites batches without some of their records (Kafka's MemoryRecords.filterTo).

Base offset, last offset, leader epoch, codec and the producer's fields stay. Records stay byte for byte, because their deltas are relative
to the base offset and the base timestamp. Count, length, CRC and the largest timestamp are computed again. A delete horizon (KIP-534)
replaces the base timestamp; then the timestamp deltas are computed again too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from crc32c import crc32c

from txbroker.log.cleaner.batch_columns import Batches, Section
from txbroker.log.cleaner.record_columns import Records
from txbroker.log.cleaner.unaligned_reads import Flags, Ints, zigzag
from txbroker.log.disk import Buffer
from txbroker.wire.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from txbroker.wire.compression import CODECS, compress

_NO_TIMESTAMP = -1
_CRC_END = 21  # the CRC covers what follows it


def _sealed(fields: Sequence[int], payload: bytes) -> bytes:
    """The header with these fields, and length and CRC computed for the payload."""
    base_offset, _, epoch, magic, _, *rest = fields
    covered = HEADER.pack(base_offset, 0, epoch, magic, 0, *rest)[_CRC_END:]
    crc = crc32c(payload, crc32c(covered))
    return HEADER.pack(base_offset, HEADER_SIZE - LOG_OVERHEAD + len(payload), epoch, magic, crc, *rest)


def emptied(buffer: Buffer, at: int) -> bytes:
    """The batch at a position without its records. It stays for the sequence of its producer, or for its last offset."""
    base_offset, _, epoch, magic, _, attributes, delta, _, max_timestamp, *producer, _ = HEADER.unpack_from(buffer, at)
    attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    return _sealed((base_offset, 0, epoch, magic, 0, attributes, delta, _NO_TIMESTAMP, max_timestamp, *producer, 0), b"")


def rewritten(buffer: Buffer, at: int, pieces: list[Buffer], count: int, max_timestamp: int, horizon: int | None) -> tuple[bytes, bytes]:
    """Header and payload of the batch at a position with only these records. `horizon` None: the base timestamp stays."""
    base_offset, _, epoch, magic, _, attributes, delta, base_timestamp, _, *producer, _ = HEADER.unpack_from(buffer, at)
    if horizon is not None:
        base_timestamp, attributes = horizon, attributes | DELETE_HORIZON
    payload = b"".join(pieces)
    if attributes & CODEC_MASK:
        payload = compress(CODECS[attributes & CODEC_MASK], payload)
    fields = (base_offset, 0, epoch, magic, 0, attributes, delta, base_timestamp, max_timestamp, *producer, count)
    return _sealed(fields, payload), payload


class Rewriter:
    """Rewrites the `selected` batches of a section with the records to `keep`. `horizons`: the batches that get a delete horizon."""

    def __init__(
        self,
        buffer: Buffer,
        batches: Batches,
        section: Section,
        records: Records,
        keep: Flags,
        selected: Flags,
        horizons: Flags,
        horizon: int,
    ) -> None:
        self._buffer = buffer
        self._batches = batches
        self._section = section
        self._horizons = horizons
        self._horizon = horizon
        kept = np.flatnonzero(keep & selected[records.batch])
        batch = records.batch[kept]
        of = batch + section.low
        times = batches.base_timestamp[of] + records.time_delta[kept]
        append_time = batches.attributes[of] & LOG_APPEND_TIME != 0
        times[append_time] = batches.max_timestamp[of][append_time]
        numbers = np.arange(len(selected) + 1)
        batch_of_run, self._pieces = self._runs(records, kept, batch)
        self._borders: list[int] = np.searchsorted(batch_of_run, numbers).tolist()
        shifted = horizons[batch] & ~append_time
        self._shifted_borders: list[int] = []
        self._shifted_pieces: list[Buffer] = []
        if shifted.any():
            batch_of_shifted, self._shifted_pieces = self._shifted(records, kept[shifted], batch[shifted], times[shifted])
            self._shifted_borders = np.searchsorted(batch_of_shifted, numbers).tolist()
        self.max_timestamp = np.full(len(selected), _NO_TIMESTAMP, dtype=np.int64)
        if len(kept):
            first = np.flatnonzero(np.concatenate(([True], batch[1:] != batch[:-1])))
            self.max_timestamp[batch[first]] = np.maximum(np.maximum.reduceat(times, first), _NO_TIMESTAMP)
        self._counts: list[int] = np.bincount(batch, minlength=len(selected)).tolist()
        self._timestamps: list[int] = self.max_timestamp.tolist()
        self._at: list[int] = batches.at[section.low : section.high].tolist()

    def _runs(self, records: Records, kept: Ints, batch: Ints) -> tuple[Ints, list[Buffer]]:
        """The bytes of runs of neighbouring records, and the batch of each run."""
        view = memoryview(self._section.buffer)
        if not len(kept):
            return kept, []
        borders = np.flatnonzero((kept[1:] != kept[:-1] + 1) | (batch[1:] != batch[:-1]))
        first, last = np.concatenate(([0], borders + 1)), np.concatenate((borders, [len(kept) - 1]))
        starts, ends = records.start[kept[first]].tolist(), records.end[kept[last]].tolist()
        return batch[first], [view[start:end] for start, end in zip(starts, ends, strict=True)]

    def _shifted(self, records: Records, kept: Ints, batch: Ints, times: Ints) -> tuple[Ints, list[Buffer]]:
        """Records with timestamp deltas relative to the horizon: a new start of each, followed by the rest as it was."""
        view = memoryview(self._section.buffer)
        delta, delta_size = _varint_bytes(times - self._horizon)
        rest, ends = records.offset_at[kept], records.end[kept]
        length, length_size = _varint_bytes(1 + delta_size + ends - rest)
        width = 10
        line = np.zeros((len(kept), 2 * width + 1), dtype=np.uint8)
        line[:, :width] = length
        rows = np.arange(len(kept))[:, None]
        line[rows, length_size[:, None]] = self._section.data[records.time_at[kept] - 1][:, None]
        line[rows, length_size[:, None] + 1 + np.arange(width)] = delta
        flat = memoryview(line.tobytes())
        start = np.arange(len(kept)) * (2 * width + 1)
        pieces: list[Buffer] = []
        for begin, end, first, last in zip(
            start.tolist(), (start + length_size + 1 + delta_size).tolist(), rest.tolist(), ends.tolist(), strict=True
        ):
            pieces += (flat[begin:end], view[first:last])
        return np.repeat(batch, 2), pieces

    def make(self, number: int) -> tuple[bytes, bytes]:
        """Header and payload of the batch with this index in its section."""
        horizon = self._horizon if self._horizons[number] else None
        shifted = horizon is not None and not self._batches.attributes[self._section.low + number] & LOG_APPEND_TIME
        borders, pieces = (self._shifted_borders, self._shifted_pieces) if shifted else (self._borders, self._pieces)
        return rewritten(
            self._buffer,
            self._at[number],
            pieces[borders[number] : borders[number + 1]],
            self._counts[number],
            self._timestamps[number],
            horizon,
        )


def _varint_bytes(signed: Ints) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.uint8]], Ints]:
    """Numbers as varints in rows of ten bytes, and the size of each varint."""
    raw = zigzag(signed)
    rows = np.zeros((len(raw), 10), dtype=np.uint8)
    size = np.ones(len(raw), dtype=np.int64)
    for column in range(10):
        rows[:, column] = (raw & np.uint64(0x7F)).astype(np.uint8)
        raw >>= np.uint64(7)
        more = raw != 0
        if not more.any():
            break
        rows[:, column] |= more.astype(np.uint8) << 7
        size += more
    return rows, size
