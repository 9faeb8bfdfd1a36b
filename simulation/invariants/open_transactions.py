"""The transactions of a partition, from its committed batches: what the last stable offset of each replica may be (I9)."""

from __future__ import annotations

from typing import NamedTuple

from simulation.invariants.batches import batches
from txbroker.log.log import Log
from txbroker.wire.batch import BatchHeader


class Ended(NamedTuple):
    """A transaction that has ended: the offsets of its first record and of its marker."""

    producer_id: int
    first: int
    marker: int


class OpenTransactions:
    """Of one partition. `open`: the first offset of each producer's open transaction."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._ended: list[Ended] = []  # in the order of the markers

    def committed(self, header: BatchHeader) -> None:
        """A batch was committed; in the order of the log."""
        if not header.transactional:
            return
        if not header.control:
            self.open.setdefault(header.producer_id, header.base_offset)
        elif header.producer_id in self.open:
            self._ended.append(Ended(header.producer_id, self.open.pop(header.producer_id), header.base_offset))

    def problem(self, log: Log, last_stable_offset: int, replicated: int, committed: int) -> str | None:
        """Why a replica must not have this last stable offset. `replicated`: its high watermark, or the end of the log that it has loaded.

        As in Kafka, a log that was loaded does not know which of its transactions ended above the high watermark. Their markers are in the
        log, so that they are decided for good; above `committed`, where the known batches end, they are not known here.
        A replica that has copied a cleaned log may lack the first batches of a transaction.
        """
        for producer_id, first in self.open.items():
            if first < last_stable_offset and replicated <= committed and _has(log, producer_id, first, last_stable_offset):
                return f"producer {producer_id} has an open transaction from offset {first} on"
        for producer_id, first, marker in reversed(self._ended):
            if marker < replicated:
                break
            if first < last_stable_offset and _has(log, producer_id, first, last_stable_offset):
                return f"the transaction from offset {first} on ends with the marker at {marker}, which is not below {replicated}"
        return None


def _has(log: Log, producer_id: int, first: int, end: int) -> bool:
    """Whether a log has a batch of a producer's transaction from `first` on below `end`."""
    return any(header.producer_id == producer_id and first <= header.base_offset < end for header in batches(log))
