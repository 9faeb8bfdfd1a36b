"""Log entries of any magic: a record batch, or a message of an older set."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

from txbroker.errors import CorruptRecords
from txbroker.wire import batch, legacy, records
from txbroker.wire.batch import LOG_OVERHEAD, MAGIC_POSITION, BatchHeader, Buffer
from txbroker.wire.legacy import MessageHeader
from txbroker.wire.records import Record

EntryHeader: TypeAlias = BatchHeader | MessageHeader

SIZE_MIN = 26  # of an entry of any magic: a message of magic 0 without key and value
_SIZE = struct.Struct(">i")


class Stop(Enum):
    """Why a scan ended."""

    END = "the buffer ends with a whole entry"
    TORN = "the last entry is incomplete"
    CORRUPT = "an entry is malformed, or its CRC is wrong"


class Scan:
    """One walk over the whole entries of a buffer: iterate it for (position, header), then see where it stopped and why.

    `position`: end of the last good entry. `stop`, `problem`: why it ended there, also as text. `needed`: how many bytes from
    `position` on the next entry needs, by its size field (0 at the end), for callers that read a file in pieces.
    """

    def __init__(self, buffer: Buffer, position: int = 0, *, check_crc: bool = False) -> None:
        self.position = position
        self.stop = Stop.END
        self.problem = ""
        self.needed = 0
        self._buffer = buffer
        self._check_crc = check_crc

    def __iter__(self) -> Iterator[tuple[int, EntryHeader]]:
        buffer, position, end = self._buffer, self.position, len(self._buffer)
        check = check_crc if self._check_crc else None
        try:
            while position < end:
                size = size_of(buffer, position)
                if size is None or size > end - position:
                    self._torn(position, size)
                    return
                header = read_header(buffer, position)
                if check is not None:
                    check(buffer, position, header)
                self.position = position + size
                yield position, header
                position += size
        except CorruptRecords as error:
            self.stop, self.problem = Stop.CORRUPT, str(error)

    def _torn(self, position: int, size: int | None) -> None:
        available = len(self._buffer) - position
        self.stop = Stop.TORN
        self.needed = LOG_OVERHEAD if size is None else size
        self.problem = f"of the entry at {position} only {available} of at least {self.needed} bytes are present"

    def raise_if_corrupt(self) -> None:
        """CorruptRecords if that is why the scan ended."""
        if self.stop is Stop.CORRUPT:
            raise CorruptRecords(self.problem)


def size_of(buffer: Buffer, position: int = 0) -> int | None:
    """The size of the entry at `position` by its own field; None if the buffer ends before it, CorruptRecords if it is impossible."""
    if len(buffer) - position < LOG_OVERHEAD:
        return None
    size: int = _SIZE.unpack_from(buffer, position + 8)[0] + LOG_OVERHEAD
    if size < SIZE_MIN:
        raise CorruptRecords(f"the entry at {position} has a size of {size} bytes, fewer than any entry")
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] > 2:
        raise CorruptRecords(f"the entry at {position} has the unknown magic {buffer[position + MAGIC_POSITION]}")
    return size


def read_header(buffer: Buffer, position: int = 0) -> EntryHeader:
    """The header of the entry at `position`; CorruptRecords as `batch.read_header` and `legacy.read_header`."""
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] < 2:
        return legacy.read_header(buffer, position)
    return batch.read_header(buffer, position)


def check_crc(buffer: Buffer, position: int, header: EntryHeader) -> None:
    """Raise CorruptRecords unless the entry's CRC is right."""
    if isinstance(header, BatchHeader):
        batch.check_crc(buffer, position, header)
    else:
        legacy.check_crc(buffer, position, header)


def read_records(buffer: Buffer, position: int, header: EntryHeader, bytes_max: int) -> Iterator[Record]:
    """The records of the entry at `position`; errors as `records.read_records`."""
    if isinstance(header, BatchHeader):
        return records.read_records(buffer, position, header, bytes_max)
    return legacy.read_records(buffer, position, header, bytes_max)
