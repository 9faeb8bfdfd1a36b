"""Log entries of any magic: a record batch, or a message of an older set. For whoever walks log files."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.legacy import MessageHeader
from txbroker.wire.records import Record

EntryHeader: TypeAlias = BatchHeader | MessageHeader


class Stop(Enum):
    """Why a scan ended."""

    END = "the buffer ends with a whole entry"
    TORN = "the last entry is not all there"
    CORRUPT = "an entry is nonsense, or its CRC is wrong"


class Scan:
    """One walk over the whole entries of a buffer: iterate it for (position, header), then ask where it stopped and why.

    `position`: end of the last good entry. `stop`, `problem`: why it ended there, and in words. `needed`: how many bytes from
    `position` on the next entry takes, as far as it says (0 at the end), for callers that read a file piecewise.
    """

    def __init__(self, buffer: Buffer, position: int = 0, *, check_crc: bool = False) -> None:
        self.position = position
        self.stop = Stop.END
        self.problem = ""
        self.needed = 0
        self._buffer = buffer
        self._check_crc = check_crc

    def __iter__(self) -> Iterator[tuple[int, EntryHeader]]:
        raise NotImplementedError


def read_header(buffer: Buffer, position: int = 0) -> EntryHeader:
    """The header of the entry at `position`, by its magic; CorruptRecords as the formats' own."""
    raise NotImplementedError


def check_crc(buffer: Buffer, position: int, header: EntryHeader) -> None:
    """Raise CorruptRecords unless the entry's checksum holds."""
    raise NotImplementedError


def read_records(buffer: Buffer, position: int, header: EntryHeader, bytes_max: int) -> Iterator[Record]:
    """The records of the entry at `position`; errors as `records.read_records`."""
    raise NotImplementedError
