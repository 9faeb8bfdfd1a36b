"""How many records a log entry holds, and how many bytes of keys and values: counted without making the records.

A consumer that only measures throughput would spend most of its time on creating `Record`s.
"""

from __future__ import annotations

from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.entries import EntryHeader, read_records
from txbroker.wire.records import walk_records


def content_size(buffer: Buffer, position: int, header: EntryHeader, bytes_max: int) -> tuple[int, int]:
    """Records, and bytes of their keys and values, of the entry at `position`; transaction markers are not counted.

    Errors as `records.read_records`.
    """
    if not isinstance(header, BatchHeader):
        found = list(read_records(buffer, position, header, bytes_max))
        return len(found), sum(len(record.key or b"") + len(record.value or b"") for record in found)
    if header.control or not header.count:
        return 0, 0
    return header.count, walk_records(buffer, position, header, bytes_max, False).content_bytes
