"""Reads and rebuilds messages of the old formats (magic 0 and 1)."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.errors import CorruptRecords
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.file_chunks import Chunk, SegmentReader
from txbroker.wire import legacy
from txbroker.wire.legacy import MessageHeader
from txbroker.wire.records import Record

Message = Record


@lazy_dataclass(slots=True)
class Entry:
    """A message, or a compressed wrapper with its messages. `at`: its position in the chunk."""

    at: int
    header: MessageHeader
    messages: list[Message]


def read_messages(reader: SegmentReader, chunk: Chunk, unpacked_bytes_max: int) -> Iterator[Entry]:
    """The entries of a chunk. CorruptRecords with the position."""
    for at in chunk.at.tolist():
        try:
            header = legacy.read_header(chunk.buffer, at)
            legacy.check_crc(chunk.buffer, at, header)
            messages = list(legacy.read_records(chunk.buffer, at, header, unpacked_bytes_max))
        except CorruptRecords as error:
            raise reader.corrupt_at(chunk.position + at, str(error)) from None
        reader.check_offset(header.last_offset, chunk.position + at)
        yield Entry(at, header, messages)


def with_messages(entry: Entry, kept: list[Message]) -> bytes:
    """The wrapper with only these of its messages."""
    header = entry.header
    append_time = header.max_timestamp if header.log_append_time else None
    return legacy.build(kept, magic=header.magic, codec=header.codec, log_append_time=append_time)
