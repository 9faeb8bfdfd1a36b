"""Which batches of a fetch response belong to aborted transactions, as Kafka's consumers decide it.

It is a separate implementation on purpose: the simulated brokers' log cleaner uses `log/aborted_transactions.py`, and the consumers would
not find a defect that they share with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from txbroker.wire.batch import BatchHeader
from txbroker.wire.control import read_marker
from txbroker.wire.messages.fetch import AbortedTransaction
from txbroker.wire.records import Record


class AbortedTransactions:
    """Of one partition in one response; its batches must come in their order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()  # producers in an aborted transaction

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch is part of one."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        return header.transactional and header.producer_id in self._open

    def marker(self, header: BatchHeader, record: Record) -> None:
        """A control batch."""
        self.has(header)
        marker = read_marker(record)
        if marker is not None and not marker.committed:
            self._open.discard(header.producer_id)
