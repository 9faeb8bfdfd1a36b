"""Chunks of a partition's log, wherever they come from, made into rows: what a consumer would be given, without the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from txbroker.cli.audit.latest import DELETED, VERSIONED, Hashes, Rows
from txbroker.cli.failures import CommandFailed
from txbroker.errors import BrokerError
from txbroker.wire.batch import BatchHeader
from txbroker.wire.control import read_marker
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.records import Record

# As much of one batch, decompressed, as the broker itself would read.
BATCH_BYTES_MAX = 256 * 1024 * 1024
VERSION_BYTES = 8  # a big-endian number; any other length is no version (KIP-280)


class Aborted(NamedTuple):
    """An aborted transaction, as Fetch tells it: its producer, and the offset of its first record."""

    producer_id: int
    first_offset: int


class Chunk(NamedTuple):
    """Batches from offset `start` on (records before it are not meant, the last batch may be cut), and what was aborted of them."""

    data: bytes | memoryview
    start: int
    aborted: Sequence[Aborted]


class Bounds(NamedTuple):
    """The offsets of a partition that are there to be read: [start, end)."""

    start: int
    end: int


class TopicSource(Protocol):
    """A topic that can be read, more than once, up to an end that is fixed before."""

    name: str

    def bounds(self) -> Mapping[int, Bounds]:
        """Those of each partition."""
        ...

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """What lies at an offset, which is before `end`, or at the next one that is still there; None when there is nothing up to the end.

        CommandFailed when it cannot be read.
        """
        ...


class Decoded(NamedTuple):
    """What a chunk held: records with a key, how many had none, the offset behind it, and how many records it was in all."""

    rows: Rows
    keyless: int
    next_offset: int
    records: int


def decode(chunk: Chunk, end: int, header: str | None) -> Decoded:
    """The records of a chunk before `end`, without markers and what was aborted. CommandFailed for what cannot be read.

    `header`: the record header that holds versions (KIP-280), if any does.
    """
    columns = _Columns(header)
    scan = Scan(chunk.data, check_crc=True)
    ended = _Ended(chunk.aborted)
    next_offset = chunk.start
    try:
        for position, entry in scan:
            if entry.last_offset >= chunk.start:
                if ended.shows(chunk.data, position, entry):
                    for record in read_records(chunk.data, position, entry, BATCH_BYTES_MAX):
                        if chunk.start <= record.offset < end:
                            columns.add(record)
                next_offset = entry.last_offset + 1
        scan.raise_if_corrupt()
    except BrokerError as error:
        advice = "look at the broker's log and at the files with `txbroker dump-log`"
        raise CommandFailed(f"the records at offset {next_offset} cannot be read: {error}; {advice}") from None
    return Decoded(columns.rows(), columns.keyless, next_offset, columns.count)


class _Ended:
    """Which batches a consumer with isolation.level=read_committed is shown, in the order of a log."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def shows(self, data: bytes | memoryview, position: int, entry: EntryHeader) -> bool:
        while self._coming and self._coming[-1].first_offset <= entry.last_offset:
            self._aborting.add(self._coming.pop().producer_id)
        if not isinstance(entry, BatchHeader):
            return True
        if entry.control:
            if entry.producer_id in self._aborting:
                markers = [read_marker(record) for record in read_records(data, position, entry, BATCH_BYTES_MAX)]
                if any(marker is not None and not marker.committed for marker in markers):
                    self._aborting.discard(entry.producer_id)
            return False
        return not (entry.transactional and entry.producer_id in self._aborting)


class _Columns:
    """Rows in the making."""

    def __init__(self, header: str | None) -> None:
        self.count = self.keyless = 0
        self._header = header
        self._numbers: list[tuple[int, int, int, int]] = []
        self._keys: list[bytes] = []

    def add(self, record: Record) -> None:
        self.count += 1
        if record.key is None:
            self.keyless += 1
            return
        version = None
        for name, value in record.headers if self._header is not None else ():
            if name == self._header:
                version = value
        flags = DELETED if record.value is None else 0
        number = 0
        if version is not None and len(version) == VERSION_BYTES:
            number = int.from_bytes(version, "big", signed=True)
            flags |= VERSIONED
        self._numbers.append((record.offset, record.timestamp, number, flags))
        self._keys.append(record.key)

    def rows(self) -> Rows:
        numbers = np.array(self._numbers, np.int64).reshape(-1, 4)
        high, low = hashes(self._keys)
        size = np.fromiter(map(len, self._keys), np.int32, len(self._keys))
        start = np.cumsum(size, dtype=np.int64) - size
        keys = np.frombuffer(b"".join(self._keys), np.uint8)
        offset, timestamp, version, flags = numbers.T
        return Rows(high, low, offset, timestamp, version, flags.astype(np.uint8), start, size, keys)


def hashes(keys: Sequence[bytes]) -> tuple[Hashes, Hashes]:
    """128 bits of each key, the same ones whenever they are asked for: a sample of keys is made by them."""
    digests = b"".join([blake2b(key, digest_size=16).digest() for key in keys])
    words = np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)
    return words[:, 0].copy(), words[:, 1].copy()
