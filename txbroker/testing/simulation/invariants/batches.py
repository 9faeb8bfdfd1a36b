"""The batches of a log, read from its segments."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.log.log import Log
from txbroker.wire.batch import HEADER_SIZE, BatchHeader, read_header

READ_BYTES = 1 << 20


def batches(log: Log) -> Iterator[BatchHeader]:
    """All of them, in order."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, READ_BYTES, offset_end=end, whole_first_batch=True).region.read()
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            yield header
            offset = header.last_offset + 1
            at += header.size
        if not at:
            return
