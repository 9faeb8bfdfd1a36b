"""The port through which the coordinator reads and writes the partitions of `__consumer_offsets`."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred

Pair: TypeAlias = tuple[bytes, bytes | None]  # a record's key and value; None is a tombstone


class OffsetsStore(Protocol):
    """The log of `__consumer_offsets`, as the coordinator sees it."""

    def append(self, partition_index: int, records: list[Pair], now_ms: int) -> Deferred[None]:
        """Append one batch of records stamped `now_ms`, in the order of the calls.

        Fires once acks=all is fulfilled; fails with BrokerError otherwise, REQUEST_TIMED_OUT after offsets.commit.timeout.ms among them.
        """

    def read(self, partition_index: int, offset: int) -> Deferred[bytes | memoryview]:
        """Some whole record batches from the one that holds `offset` on; from the log's start if that is later. Empty at the log's end."""
