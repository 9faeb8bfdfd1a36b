"""Decodes chunks of a partition's log, from a broker or from files, into rows: the records that a consumer gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np

from txbroker.cli.audit.latest_versions import DELETED, VERSIONED, Hashes, Ints, Rows, empty, joined
from txbroker.console.failures import CommandFailed
from txbroker.errors import BrokerError
from txbroker.log.aborted_transactions import AbortedBatches
from txbroker.log.cleaner.batch_columns import Batches, Section, read_batches, sections
from txbroker.log.cleaner.compaction_strategy import HeaderVersions, record_times
from txbroker.log.cleaner.key_hash import KeyHash
from txbroker.log.cleaner.record_columns import Records, read_records
from txbroker.log.cleaner.unaligned_reads import PADDING, Flags, words_of
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan
from txbroker.wire.entries import read_records as read_entry

# Of one batch, decompressed; the limit of the broker itself.
BATCH_BYTES_MAX = 256 * 1024 * 1024
# Of the hash of keys, which selects samples: another seed is another sample.
SEED = 280


class Chunk(NamedTuple):
    """Batches that hold the records from offset `start` on, and perhaps some before it, and their aborted transactions."""

    data: bytes | memoryview
    start: int
    aborted: Sequence[AbortedTransaction]


class Bounds(NamedTuple):
    """The offsets of a partition that can be read: [start, end)."""

    start: int
    end: int


class TopicSource(Protocol):
    """A topic that can be read several times, up to a fixed end."""

    name: str

    def bounds(self) -> Mapping[int, Bounds]:
        """The bounds of each partition, now."""
        ...

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """Batches from an offset before `end` on, or from the next one that still exists; None when there is none before the end.

        CommandFailed when it cannot be read.
        """
        ...


class Decoded(NamedTuple):
    """A chunk's chosen records, how many of all its records had no key, the offset after it, and how many records it had."""

    rows: Rows
    keyless: int
    next_offset: int
    records: int


Chosen = Callable[[Hashes], Flags]
"""Selects keys by the first word of their hashes."""


class Decoder:
    """Decodes chunks with the cleaner's columns. `header`: the record header that holds versions (KIP-280), if any."""

    def __init__(self, header: str | None) -> None:
        self._hash = KeyHash(SEED)
        self._versions = None if header is None else HeaderVersions(header)

    def hashes(self, keys: Sequence[bytes]) -> tuple[Hashes, Hashes]:
        """128 bits of hash of each key, the same in every run: they select samples."""
        return self._hash.of_keys(keys)

    def rows(self, chunk: Chunk, end: int, chosen: Chosen) -> Decoded:
        """The records of a chunk before `end`, without markers and aborted records. CommandFailed for records that cannot be read."""
        buffer = b"".join((chunk.data, bytes(PADDING + 8)))
        scan = Scan(chunk.data, check_crc=True)
        aborted = AbortedBatches(chunk.aborted)
        found = _Found(chunk.start, end)
        try:
            for is_batch, some in groupby(scan, lambda entry: isinstance(entry[1], BatchHeader)):
                entries = list(some)
                shown = [header.last_offset >= chunk.start and _is_shown(buffer, at, header, aborted) for at, header in entries]
                if is_batch:
                    self._add_batches(found, buffer, entries, shown, chosen)
                else:
                    self._add_messages(found, buffer, [entry for entry, wanted in zip(entries, shown, strict=True) if wanted], chosen)
                found.next_offset = max(found.next_offset, entries[-1][1].last_offset + 1)
            scan.raise_if_corrupt()
        except BrokerError as error:
            advice = "look at the broker's log and at the files with `txbroker dump-log`"
            raise CommandFailed(f"the records at offset {found.next_offset} cannot be read: {error}; {advice}") from None
        return Decoded(joined(found.parts) if found.parts else empty(), found.keyless, found.next_offset, found.records)

    def _add_batches(
        self, found: _Found, buffer: bytes, entries: Sequence[tuple[int, EntryHeader]], shown: Sequence[bool], chosen: Chosen
    ) -> None:
        words = words_of(buffer)
        at = np.array([position for position, _ in entries], np.int64)
        batches = read_batches(words, at, np.array([header.size for _, header in entries], np.int64))
        wanted = np.array(shown, np.bool_) & (batches.base_offset < found.end)
        for section in sections(buffer, words, batches, wanted, BATCH_BYTES_MAX):
            records = read_records(section, batches, wanted)
            inside = (records.offset >= found.start) & (records.offset < found.end)
            found.records += int(inside.sum())
            found.keyless += int((inside & (records.key_size < 0)).sum())
            keyed = np.flatnonzero(inside & (records.key_size >= 0))
            high, low = self._hash(section.words, section.data, records.key_at[keyed], records.key_size[keyed])
            some = np.flatnonzero(chosen(high))
            if len(some):
                found.parts.append(self._taken(section, batches, _some_of(records, keyed[some]), high[some], low[some]))

    def _taken(self, section: Section, batches: Batches, records: Records, high: Hashes, low: Hashes) -> Rows:
        flags = np.where(records.null, DELETED, 0).astype(np.uint8)
        version = np.zeros(len(records), np.int64)
        if self._versions is not None:
            version, has = self._versions.of(section, batches, records)
            version = np.where(has, version, 0)
            flags[has] |= VERSIONED
        times = record_times(section, batches, records)
        rows = Rows(high, low, records.offset, times, version, flags, records.key_at, records.key_size.astype(np.int32), section.data)
        return rows.take(np.arange(len(rows)))

    def _add_messages(self, found: _Found, buffer: bytes, entries: Sequence[tuple[int, EntryHeader]], chosen: Chosen) -> None:
        """Messages of formats 0 and 1, one by one."""
        all_records = [record for at, header in entries for record in read_entry(buffer, at, header, BATCH_BYTES_MAX)]
        inside = [record for record in all_records if found.start <= record.offset < found.end]
        found.records += len(inside)
        keyed = [(record, record.key) for record in inside if record.key is not None]
        found.keyless += len(inside) - len(keyed)
        keys = [key for _, key in keyed]
        high, low = self.hashes(keys)
        size = np.fromiter(map(len, keys), np.int32, len(keys))
        start = np.cumsum(size, dtype=np.int64) - size
        offset = np.array([record.offset for record, _ in keyed], np.int64)
        timestamp = np.array([record.timestamp for record, _ in keyed], np.int64)
        flags = np.array([DELETED if record.value is None else 0 for record, _ in keyed], np.uint8)
        no_version = np.zeros(len(keys), np.int64)
        rows = Rows(high, low, offset, timestamp, no_version, flags, start, size, np.frombuffer(b"".join(keys), np.uint8))
        found.parts.append(rows.take(np.flatnonzero(chosen(high))))


@dataclass(slots=True)
class _Found:
    """What was found in a chunk so far, of the offsets in [start, end)."""

    start: int
    end: int
    parts: list[Rows] = field(default_factory=list)
    records: int = 0
    keyless: int = 0
    next_offset: int = -1

    def __post_init__(self) -> None:
        self.next_offset = self.start


def _some_of(records: Records, indexes: Ints) -> Records:
    return Records(*(getattr(records, each.name)[indexes] for each in fields(records)))


def _is_shown(buffer: bytes, at: int, header: EntryHeader, aborted: AbortedBatches) -> bool:
    """Whether a consumer gets the records of a batch; the batches of a chunk are passed in order."""
    return not aborted.hides(buffer, at, header) and not header.control
