"""Produce requests that were received together, on one connection or several, and are handled together.

A producer that does not wait for each response sends many small requests for the same partition. Their batches are appended with one
write, and the checks that concern the partition are made once. Each request still gets the response that it would get alone.
"""

from __future__ import annotations

from typing import NamedTuple

from txbroker.wire.known_requests import NO_TAGS
from txbroker.wire.record_loops import Place, find_requests

# So many are handled together, if their frames are small: joining larger batches costs more than writing them one by one.
JOINED_MAX = 16
FRAME_MAX = 4096

# Frames that are looked for may be so much larger than the first one, on average.
_GROWTH = 64


class JoinedRequests(NamedTuple):
    """Requests that differ in correlation id and records only. The first `taken` bytes of `data` are their frames with their sizes."""

    data: bytes
    places: list[Place]
    taken: int

    @property
    def size(self) -> int:
        """The size of a frame without its records."""
        _, begin, end = self.places[0]
        return int.from_bytes(self.data[:4], "big") - (end - begin)


def joined_requests(frame_size: int, received: memoryview, key: bytes, flexible: bool, most: int, base: int = 0) -> JoinedRequests | None:
    """The first requests in `received`, at most `most` and JOINED_MAX, that repeat a known one; None if the first does not or is large.

    `frame_size`: of the first. `key`: of the known request. `base`: the bytes that will be before `data`, which places count.
    """
    if frame_size > FRAME_MAX:
        return None
    most = min(most, JOINED_MAX)
    data = bytes(received[: most * (frame_size + _GROWTH)])
    tail = NO_TAGS if flexible else b""
    places = find_requests(data, key, tail, FRAME_MAX, most, base)
    return JoinedRequests(data, places, places[-1][2] + len(tail) - base) if places else None
