"""The transaction index of a segment: the aborted transactions that ended in it (Kafka's TransactionIndex, KIP-98).

An entry is 34 bytes, big-endian: version int16 (0) | producer id int64 | first offset int64 | last offset int64 | last stable
offset int64, the last stable offset after this transaction had ended. Segments without aborted transactions have no such file.
"""

from __future__ import annotations

import struct

from txbroker.errors import CorruptRecords, OutOfResources, StorageError
from txbroker.log.disk import Disk
from txbroker.log.log_results import AbortedTransaction

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class TxnIndex:
    """All entries in memory: aborted transactions are few. Read on first use."""

    __slots__ = ("_disk", "_entries", "has_new", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None
        self.has_new = False  # whether `append` has added entries

    @property
    def entries(self) -> list[AbortedTransaction]:
        """In the order in which the transactions ended; CorruptRecords when the file is malformed."""
        if self._entries is None:
            self._entries = parse_entries(self._disk.read(self.path) or b"")
        return self._entries

    @property
    def sound(self) -> bool:
        """Whether the file can be read."""
        try:
            return self.entries is not None
        except CorruptRecords:
            return False

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry, in the file too."""
        entries, entry = self.entries, ENTRY.pack(_VERSION, *aborted)
        try:
            if entries:
                self._disk.append(self.path, entry)
            else:
                self._disk.write(self.path, entry)
        except OutOfResources as error:
            # The marker is in the log already, and without this entry aborted records would be read as committed. Recovery rebuilds it.
            raise StorageError(str(error)) from error
        entries.append(aborted)
        self.has_new = True

    def truncate_to(self, offset: int) -> None:
        """Remove transactions that ended at `offset` or above."""
        entries = self.entries
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._disk.truncate(self.path, len(kept) * ENTRY.size)
            self._entries = kept

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replace all entries; without any the file is removed."""
        if entries:
            self._disk.write(self.path, b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries))
        else:
            self._disk.remove(self.path)
        self._entries = entries


def parse_entries(content: bytes) -> list[AbortedTransaction]:
    """The entries in a file's content; CorruptRecords when it is malformed."""
    if len(content) % ENTRY.size:
        raise CorruptRecords(f"a transaction index of {len(content)} bytes does not end with a whole entry")
    entries: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(content):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or entry.last_offset < entry.first_offset or (entries and entry.last_offset <= entries[-1].last_offset):
            raise CorruptRecords(f"a transaction index has an entry of version {version}: {entry}")
        entries.append(entry)
    return entries
