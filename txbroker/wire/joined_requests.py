"""Produce requests of one connection that were received together, and are handled together.

A producer that does not wait for each response sends many small requests for the same partition. Their batches are appended with one
write, and the checks that concern the partition are made once. Each request still gets the response that it would get alone.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from txbroker.wire.known_requests import Known, KnownRequest

# So many are handled together, if their frames are small: joining larger batches costs more than writing them one by one.
JOINED_MAX = 16
FRAME_MAX = 4096

# The frame's size, the API key and version, and the correlation id.
_BEGIN = struct.Struct(">iIi")
_SIZE_BYTES = 4
_FRAME_MIN = _BEGIN.size - _SIZE_BYTES

# The correlation id, the records, and the size of the frame without them.
JoinedRequest: TypeAlias = tuple[int, memoryview, int]


def joined_requests(
    frame: memoryview, correlation_id: int, following: memoryview, known: Known, found: KnownRequest, position: int, most: int
) -> list[JoinedRequest]:
    """The request in `frame`, and at most `most` - 1 that follow it at once and differ from it in their records only.

    `found`: what it repeats, with its records. `position`: where the length of these is.
    """
    records = found.changing.records
    joined = [(correlation_id, records, len(frame) - len(records))]
    at, end = 0, len(following)
    most = min(most, JOINED_MAX) if len(frame) <= FRAME_MAX else 1
    while len(joined) < most and at + _BEGIN.size <= end:
        size, _, correlation_id = _BEGIN.unpack_from(following, at)
        at += _SIZE_BYTES
        frame_end = at + size
        if not _FRAME_MIN <= size <= FRAME_MAX or frame_end > end:
            break
        other = known.find(following[at:frame_end], position)
        if other is not found:
            if other is not None:
                other.changing.records = b""  # a view of the frame, which is found again when it is its turn
            break
        records = found.changing.records
        joined.append((correlation_id, records, size - len(records)))
        at = frame_end
    return joined
