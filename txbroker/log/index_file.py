"""A file of fixed-size entries in ascending order: what the offset index and the time index have in common.

Entries that are on disk are mapped on first use; newer ones wait in memory until the log is flushed, rolled or closed, or
until there are many. A crash loses those that waited, and recovery makes the index anew anyway. So an append costs no
system call here, an untouched index costs nothing, and files never need Kafka's preallocation.

Big-endian keys that are not negative sort as their bytes do; both indexes search by comparing bytes.
"""

from __future__ import annotations

from txbroker.log.disk import Disk, Mapped

PENDING_BYTES_MAX = 64 * 1024


class IndexFile:
    """Entries of `entry_bytes`, the first `key_bytes` of which are the key. `count` is the number of entries."""

    __slots__ = ("_disk", "_entry_bytes", "_key_bytes", "_pending", "_stored", "_stored_count", "count", "path")

    def __init__(self, disk: Disk, path: str, entry_bytes: int, key_bytes: int) -> None:
        self.path = path
        self._disk = disk
        self._entry_bytes = entry_bytes
        self._key_bytes = key_bytes
        self._pending = bytearray()
        self._stored: Mapped | None = disk.map(path)
        self._stored_count = self.count = len(self._stored) // entry_bytes

    @property
    def whole(self) -> bool:
        """Whether the file ends with a whole entry, and not with the zeros of a file that was preallocated."""
        stored = self._mapped()
        if len(stored) % self._entry_bytes:
            return False
        return self._stored_count == 0 or self.entry(self._stored_count - 1) != bytes(self._entry_bytes)

    def _mapped(self) -> Mapped:
        if self._stored is None:
            self._stored = self._disk.map(self.path)
        return self._stored

    def entry(self, number: int) -> bytes:
        """The bytes of one entry; `number` must be below `count`."""
        size = self._entry_bytes
        if number >= self._stored_count:
            at = (number - self._stored_count) * size
            return bytes(self._pending[at : at + size])
        return bytes(self._mapped()[number * size : number * size + size])

    def floor(self, key: bytes) -> int:
        """The number of the last entry whose key is not above `key`; -1 when there is none."""
        pending, key_bytes = self._pending, self._key_bytes
        if pending and pending[:key_bytes] <= key:
            return self._stored_count + self._search(pending, len(pending) // self._entry_bytes, key)
        return self._search(self._mapped(), self._stored_count, key)

    def _search(self, entries: Mapped | bytearray, count: int, key: bytes) -> int:
        size, key_bytes = self._entry_bytes, self._key_bytes
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            at = middle * size
            if entries[at : at + key_bytes] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def make_room(self) -> None:
        """Keep the entries that wait few. Called before a log write, so that a full disk fails the append as a whole."""
        if len(self._pending) >= PENDING_BYTES_MAX:
            self.write_out()

    def append(self, entry: bytes) -> None:
        """Add an entry in memory; its key must be above all others."""
        self._pending += entry
        self.count += 1

    def write_out(self) -> bool:
        """Put the entries that wait into the file; whether there were any."""
        if not self._pending:
            return False
        self._disk.append(self.path, self._pending)
        self._stored = None
        self._stored_count = self.count
        self._pending = bytearray()
        return True

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self._stored_count:
            del self._pending[(count - self._stored_count) * self._entry_bytes :]
        else:
            self._pending = bytearray()
            self._stored = None  # a mapping must not outlive the bytes that it shows
            self._disk.truncate(self.path, count * self._entry_bytes)
            self._stored_count = count
        self.count = min(self.count, count)

    def rewrite(self) -> None:
        """Drop all entries and whatever else the file holds."""
        self._pending = bytearray()
        self._stored = None
        self._disk.write(self.path, b"")
        self._stored_count = self.count = 0
