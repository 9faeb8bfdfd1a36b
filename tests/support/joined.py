"""Produce requests that were received together, made of their batches."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.wire.joined_requests import JoinedRequests
from txbroker.wire.record_loops import Place


def joined(batches: Sequence[bytes | memoryview]) -> JoinedRequests:
    """Requests with these batches, and nothing of a request beside them."""
    places: list[Place] = []
    data = b""
    for number, records in enumerate(batches):
        data += b"\xee" * 4
        places.append((number, len(data), len(data) + len(records)))
        data += records
    return JoinedRequests(data, places, len(data))
