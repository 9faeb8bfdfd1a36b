"""The transactions of a partition, from its committed batches: what the last stable offset of each replica may be (I9)."""

from __future__ import annotations

from txbroker.wire.batch import BatchHeader


class OpenTransactions:
    """Of one partition. `open`: the first offset of each producer's open transaction."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []  # offset of the marker, first offset of its transaction; in the order of the markers

    def committed(self, header: BatchHeader) -> None:
        """A batch was committed; in the order of the log."""
        if not header.transactional:
            return
        if not header.control:
            self.open.setdefault(header.producer_id, header.base_offset)
        elif header.producer_id in self.open:
            self._ended.append((header.base_offset, self.open.pop(header.producer_id)))

    def problem(self, last_stable_offset: int, replicated: int, committed: int) -> str | None:
        """Why a replica must not have this last stable offset. `replicated`: its high watermark, or the end of the log that it has loaded.

        As in Kafka, a log that was loaded does not know which of its transactions ended above the high watermark. Their markers are in the
        log, so that they are decided for good; above `committed`, where the known batches end, they are not known here.
        """
        for producer_id, first in self.open.items():
            if first < last_stable_offset and replicated <= committed:
                return f"producer {producer_id} has an open transaction from offset {first} on"
        for marker, first in reversed(self._ended):
            if marker < replicated:
                break
            if first < last_stable_offset:
                return f"the transaction from offset {first} on ends with the marker at {marker}, which is not below {replicated}"
        return None
