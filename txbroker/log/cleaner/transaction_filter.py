"""Which transactional batches and markers a pass may remove (the rules of Kafka's CleanedTransactionMetadata).

Data of aborted transactions is removed. A marker may be removed once the pass has found no data of its transaction before it; it then
stays until its delete horizon. Where a pass does not read some segments, a transaction that may have data in them counts as having data.
"""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.errors import CorruptRecords
from txbroker.log.aborted_transactions import AbortedBatches
from txbroker.log.disk import Disk
from txbroker.log.file_names import TXN_INDEX, file_path, parse_name
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.txn_index import ENTRY, parse_entries

Gap = tuple[int, int]


def read_aborted(disk: Disk, directory: str, first_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions of a log that ended at `first_offset` or above, from all of its transaction indexes.

    StorageError; CorruptRecords for an entry that cannot be one.
    """
    found: list[AbortedTransaction] = []
    for name in disk.names(directory):
        parsed = parse_name(name)
        if parsed is None or parsed[1:] != (TXN_INDEX, ""):
            continue
        content = disk.read(file_path(directory, parsed[0], TXN_INDEX)) or b""
        whole = len(content) - len(content) % ENTRY.size  # the active segment's index may be growing
        try:
            found += [entry for entry in parse_entries(content[:whole]) if entry.last_offset >= first_offset]
        except CorruptRecords as error:
            raise CorruptRecords(f"{directory}/{name}: {error.message}") from None
    return found


class Transactions:
    """The transactions of one walk over a log's transactional batches, in the order of their offsets.

    `gaps`: ranges of offsets [low, high) that the walk leaves out.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction], gaps: Sequence[Gap] = ()) -> None:
        self._aborted = AbortedBatches(aborted)
        self._gaps = gaps
        self._aborted_with_data: set[AbortedTransaction] = set()
        self._committed_with_data: set[int] = set()  # producer ids
        self._kept: list[AbortedTransaction] = []

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers stay, since the last call: the transaction index of the new segment."""
        kept, self._kept = self._kept, []
        return kept

    def may_remove_data(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional data batch may be removed: its transaction was aborted."""
        transaction = self._aborted.find(producer_id, base_offset, last_offset)
        if transaction is not None:
            self._aborted_with_data.add(transaction)
            return True
        self._committed_with_data.add(producer_id)
        return False

    def may_remove_marker(self, producer_id: int, offset: int, committed: bool | None, *, has_horizon: bool) -> bool:
        """Whether a control batch may be removed.

        `committed` None: it is no transaction marker. `has_horizon`: an earlier pass found no data before it and set its delete horizon.
        """
        transaction = self._aborted.find(producer_id, offset, offset)
        if committed is None:
            return False
        if committed or transaction is None:
            data = committed and producer_id in self._committed_with_data
            if committed:
                self._committed_with_data.discard(producer_id)
            return not data and (has_horizon or not any(low < offset for low, _ in self._gaps))
        data = transaction in self._aborted_with_data
        self._aborted.end(producer_id)
        may_have_data = any(low <= offset and transaction.first_offset < high for low, high in self._gaps)
        if data or (may_have_data and not has_horizon):
            self._kept.append(transaction)
            return False
        return True
