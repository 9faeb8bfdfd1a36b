"""Which batches of a log belong to aborted transactions (KIP-98), for everything that reads a log like a read_committed consumer.

`TransactionScan` finds the aborted and the open transactions of a log in its batches. `AbortedBatches` looks batches up in a list of
aborted transactions: from a scan, from transaction indexes (`txn_index.py`), or from a Fetch response (`aborted_in`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from txbroker.errors import BrokerError
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.markers import read_marker
from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.entries import EntryHeader
from txbroker.wire.records import INT64_MAX

if TYPE_CHECKING:  # the log cleaner's process reads no messages, and loads none
    from txbroker.wire.messages.fetch import PartitionData

UNKNOWN_END = INT64_MAX  # last_offset of a transaction whose marker has not been read


def aborted_in(fetched: PartitionData) -> list[AbortedTransaction]:
    """The aborted transactions of a partition in a Fetch response. It does not have their last offsets: UNKNOWN_END.

    Empty if the request was not read_committed.
    """
    return [AbortedTransaction(one.producer_id, one.first_offset, UNKNOWN_END, -1) for one in fetched.aborted_transactions or ()]


class TransactionScan:
    """Follows transactions through all batches of a log, in the order of their offsets.

    `aborted`: in the order of their markers, `last_stable_offset` -1. `open`: by producer id, the first offset of its open transaction.
    """

    def __init__(self) -> None:
        self.aborted: list[AbortedTransaction] = []
        self.open: dict[int, int] = {}

    def add(self, buffer: Buffer, position: int, header: EntryHeader) -> None:
        """The next batch, its header parsed. A control batch that is no readable transaction marker ends no transaction."""
        if not isinstance(header, BatchHeader) or not (header.transactional or header.control):
            return
        if not header.control:
            self.open.setdefault(header.producer_id, header.base_offset)
            return
        try:
            marker = read_marker(buffer, position, header)
        except BrokerError:
            return
        first_offset = self.open.pop(header.producer_id, None) if marker is not None else None
        if marker is not None and not marker.committed and first_offset is not None:
            self.aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset, -1))

    def hidden(self) -> list[AbortedTransaction]:
        """The transactions that a read_committed consumer does not see: aborted ones, and open ones with UNKNOWN_END."""
        unfinished = [AbortedTransaction(producer_id, first, UNKNOWN_END, -1) for producer_id, first in self.open.items()]
        return [*self.aborted, *unfinished]


class AbortedBatches:
    """Finds the aborted transaction of a batch. Batches are looked up in the order of their offsets; some may be left out."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._later = [(transaction.first_offset, transaction.last_offset, transaction) for transaction in aborted]
        heapq.heapify(self._later)
        self._begun: dict[int, AbortedTransaction] = {}  # by producer id

    def find(self, producer_id: int, base_offset: int, last_offset: int) -> AbortedTransaction | None:
        """The aborted transaction that holds a transactional batch, or that a marker ends; None for other transactions."""
        while self._later and self._later[0][0] <= last_offset:
            transaction = heapq.heappop(self._later)[2]
            self._begun[transaction.producer_id] = transaction
        found = self._begun.get(producer_id)
        if found is not None and found.last_offset < base_offset:  # its marker was left out
            del self._begun[producer_id]
            return None
        return found

    def hides(self, buffer: Buffer, position: int, header: EntryHeader) -> bool:
        """Whether the next batch belongs to an aborted transaction, or is the marker that ends it. CorruptRecords for a bad marker."""
        if not isinstance(header, BatchHeader) or not header.transactional:
            return False
        hidden = self.find(header.producer_id, header.base_offset, header.last_offset) is not None
        if hidden and header.control:
            marker = read_marker(buffer, position, header)
            if marker is not None and not marker.committed:
                self.end(header.producer_id)
        return hidden

    def end(self, producer_id: int) -> None:
        """The marker of the transaction that `find` returned has been read."""
        self._begun.pop(producer_id, None)
