"""The port through which the coordinator reads and writes the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.defer import Deferred

Pair = tuple[bytes, bytes | None]  # a record's key and value; None is a tombstone


class OffsetsStore(Protocol):
    """The log of `__consumer_offsets`, as the coordinator sees it."""

    def append(self, partition_index: int, records: list[Pair], now_ms: int) -> Deferred[None]:
        """Append one batch of records stamped `now_ms`; fires when acks=all is fulfilled, fails with BrokerError otherwise."""

    def read(self, partition_index: int) -> Iterator[bytes | memoryview]:
        """The whole partition from its first to its last offset, as chunks of whole record batches; one chunk is read at a time."""
