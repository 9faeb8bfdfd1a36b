"""The batches of a log, read from its segments."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.log.log import Log
from txbroker.wire.batch import HEADER_SIZE, BatchHeader, read_header
from txbroker.wire.records import Record, read_records

READ_BYTES = 1 << 20


def batches(log: Log) -> Iterator[BatchHeader]:
    """All of them, in order."""
    return (header for _, _, header in _located(log))


def batches_with_records(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The same with their records."""
    return ((header, read_batch(data, at, header)) for data, at, header in _located(log))


def read_batch(data: bytes, at: int, header: BatchHeader) -> list[Record]:
    """The records of a batch; none of an empty one, as the cleaner leaves them."""
    return list(read_records(data, at, header, READ_BYTES)) if header.count else []


def _located(log: Log) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Each batch with the bytes that it is in, and its place in them."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, READ_BYTES, offset_end=end, whole_first_batch=True).region.read()
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            yield data, at, header
            offset = header.last_offset + 1
            at += header.size
        if not at:
            return
