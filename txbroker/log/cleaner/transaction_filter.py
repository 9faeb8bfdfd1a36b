"""What transactions allow a cleaning to drop (the rules of Kafka's CleanedTransactionMetadata).

Data of aborted transactions goes. A marker may go once nothing of its transaction was met before it; how long it stays even then
is the delete horizon's matter. Where some segments are not read in a pass, a transaction that may have data in them has.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk
from txbroker.log.file_names import TXN_INDEX, file_path, parse_name
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.txn_index import ENTRY

Gap = tuple[int, int]


def read_aborted(disk: Disk, directory: str, first_offset: int) -> list[AbortedTransaction]:
    """All aborted transactions of a log that ended at `first_offset` or above, of living segments also beyond the job's own."""
    found: list[AbortedTransaction] = []
    for name in disk.names(directory):
        parsed = parse_name(name)
        if parsed is None or parsed[1:] != (TXN_INDEX, ""):
            continue
        content = disk.read(file_path(directory, parsed[0], TXN_INDEX)) or b""
        whole = len(content) - len(content) % ENTRY.size  # the active segment's may just be growing
        for version, *fields in ENTRY.iter_unpack(content[:whole]):
            entry = AbortedTransaction(*fields)
            if version != 0 or entry.last_offset < entry.first_offset:
                raise CorruptRecords(f"{directory}/{name} holds {entry} of version {version}")
            if entry.last_offset >= first_offset:
                found.append(entry)
    return found


class Transactions:
    """One walk over a log's transactional batches, in the order of their offsets. `gaps`: ranges of offsets that are not walked."""

    def __init__(self, aborted: Sequence[AbortedTransaction], gaps: Sequence[Gap] = ()) -> None:
        self._waiting = [(entry.first_offset, entry.last_offset, entry) for entry in aborted]
        heapq.heapify(self._waiting)
        self._gaps = gaps
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer id; whether data of it was met
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met and stay since this was asked last: the new segment's index."""
        kept, self.kept = self.kept, []
        return kept

    def _begin(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            entry = heapq.heappop(self._waiting)[2]
            self._aborted[entry.producer_id] = (entry, False)

    def _of(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """The producer's aborted transaction that holds `offset`; one that has ended (its marker may be in a gap) is forgotten."""
        known = self._aborted.get(producer_id)
        if known is None:
            return None
        if known[0].last_offset < offset:
            del self._aborted[producer_id]
            return None
        return known[0]

    def data(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """A transactional batch of data: whether it may go, as its transaction was aborted."""
        self._begin(last_offset)
        entry = self._of(producer_id, base_offset)
        if entry is not None:
            self._aborted[producer_id] = (entry, True)
            return True
        self._committed.add(producer_id)
        return False

    def marker(self, producer_id: int, offset: int, committed: bool | None, *, emptied_before: bool) -> bool:
        """A control batch: whether it may go. `committed` None: it is no transaction's end; `emptied_before`: it has a delete horizon."""
        self._begin(offset)
        if committed is None:
            return False
        if committed:
            met = producer_id in self._committed
            self._committed.discard(producer_id)
            unread = not emptied_before and any(low < offset for low, _ in self._gaps)
            return not met and not unread
        entry = self._of(producer_id, offset)
        if entry is None:
            return emptied_before or not any(low < offset for low, _ in self._gaps)
        met = self._aborted.pop(producer_id)[1]
        if met or (not emptied_before and any(low <= offset and entry.first_offset < high for low, high in self._gaps)):
            self.kept.append(entry)
            return False
        return True
