"""Messages of the old formats in a cleaning, one at a time: they are rare. They stay in their format, as Kafka's cleaner leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.file_chunks import Chunk, SegmentReader
from txbroker.wire import legacy
from txbroker.wire.legacy import MessageHeader
from txbroker.wire.records import Record

Message = Record


@dataclass(slots=True)
class Entry:
    """A message, or a wrapper with those inside it; its place in the chunk."""

    at: int
    header: MessageHeader
    messages: list[Message]


def read_messages(reader: SegmentReader, chunk: Chunk, unpacked_bytes_max: int) -> Iterator[Entry]:
    """The entries of a chunk; CorruptRecords names the position of one that is not sound."""
    for at in chunk.at.tolist():
        try:
            header = legacy.read_header(chunk.buffer, at)
            legacy.check_crc(chunk.buffer, at, header)
            messages = list(legacy.read_records(chunk.buffer, at, header, unpacked_bytes_max))
        except CorruptRecords as error:
            raise reader.corrupt_at(chunk.position + at, str(error)) from None
        reader.follows(header.last_offset, chunk.position + at)
        yield Entry(at, header, messages)


def with_messages(entry: Entry, kept: list[Message]) -> bytes:
    """A wrapper with these of its messages alone."""
    header = entry.header
    append_time = header.max_timestamp if header.log_append_time else None
    return legacy.build(kept, magic=header.magic, codec=header.codec, log_append_time=append_time)
