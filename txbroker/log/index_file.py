"""A file of fixed-size entries in ascending order: what the offset index and the time index have in common.

Entries on disk are mapped on first use. Newer ones stay in memory until there are some hundred, or the log is rolled or closed; a
crash loses them, and recovery rebuilds the index anyway. So an append needs no system call, an index that is not used needs no
memory, and files need not be preallocated as Kafka's are.

Cython compiles this module and the two indexes where it can (`setup.py`; types in the .pxd files).

A search in the mapped part first searches the keys of every 16th entry, which are kept in memory, and then 16 entries.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from txbroker.errors import MissingFile
from txbroker.log.disk import Disk, File, Mapped

PENDING_BYTES_MAX = 4096
_STRIDE = 16


class IndexFile:
    """Entries that begin with their key, which is not negative, in `key_format` (of `struct`). `count`: how many entries there are."""

    __slots__ = (
        "_block",
        "_disk",
        "_entry_bytes",
        "_fence",
        "_fence_post",
        "_key",
        "_key_bytes",
        "_pending",
        "_pending_keys",
        "_stored",
        "_stored_count",
        "count",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry_bytes: int, key_format: str) -> None:
        self.path = path
        self._disk = disk
        self._entry_bytes = entry_bytes
        self._key = struct.Struct(key_format)
        self._key_bytes = self._key.size
        self._fence_post = struct.Struct(f"{key_format}{_STRIDE * entry_bytes - self._key_bytes}x")
        self._block = struct.Struct(key_format[0] + f"{key_format[1]}{entry_bytes - self._key_bytes}x" * _STRIDE)
        self._fence = array("q")
        self._pending = bytearray()
        self._pending_keys = array("q")
        self._stored: Mapped | None = disk.map(path)
        self._stored_count = self.count = len(self._stored) // entry_bytes

    @property
    def whole(self) -> bool:
        """Whether the file ends with a whole entry, and not with zeros as a preallocated file."""
        if len(self._mapped()) % self._entry_bytes:
            return False
        return self._stored_count == 0 or self.entry(self._stored_count - 1) != bytes(self._entry_bytes)

    def _mapped(self) -> Mapped:
        if self._stored is None:
            stored = self._disk.map(self.path)
            self._check_size(len(stored))
            self._stored = stored
        return self._stored

    def _check_size(self, size: int) -> None:
        """MissingFile if the file is gone or shorter than the entries that it had."""
        wanted = self._stored_count * self._entry_bytes
        if size < wanted:
            raise MissingFile(f"{self.path} has {size} bytes, but {wanted} were written to it")

    def _file(self) -> File:
        file = self._disk.open(self.path)
        self._check_size(file.size)
        return file

    def entry(self, number: int) -> bytes:
        """The bytes of one entry; `number` must be below `count`."""
        size = self._entry_bytes
        if number >= self._stored_count:
            at = (number - self._stored_count) * size
            return bytes(self._pending[at : at + size])
        return bytes(self._mapped()[number * size : number * size + size])

    def floor(self, key: int) -> int:
        """The number of the last entry whose key is not above `key`; -1 when there is none."""
        if key < 0:
            return -1
        pending = self._pending_keys
        if pending and pending[0] <= key:
            return self._stored_count + bisect_right(pending, key) - 1
        stored = self._stored or self._mapped()
        if len(self._fence) * _STRIDE < self._stored_count:
            self._extend_fence(stored)
        low = (bisect_right(self._fence, key) - 1) * _STRIDE
        if low < 0:
            return -1
        size, high = self._entry_bytes, low + _STRIDE
        if high <= self._stored_count:
            return low + bisect_right(self._block.unpack_from(stored, low * size), key) - 1
        # Big-endian keys that are not negative sort as their bytes do.
        key_bytes, high = self._key_bytes, self._stored_count
        wanted = key.to_bytes(key_bytes, "big")
        return bisect_right(range(high), wanted, low, high, key=lambda number: stored[number * size : number * size + key_bytes]) - 1

    def _extend_fence(self, stored: Mapped) -> None:
        stride_bytes = _STRIDE * self._entry_bytes
        known, whole = len(self._fence), self._stored_count // _STRIDE
        self._fence.extend(key for (key,) in self._fence_post.iter_unpack(stored[known * stride_bytes : whole * stride_bytes]))
        if self._stored_count % _STRIDE:
            self._fence.append(self._key.unpack_from(stored, whole * stride_bytes)[0])

    @property
    def pending(self) -> bool:
        """Whether entries are in memory only."""
        return bool(self._pending)

    def make_room(self) -> None:
        """Write pending entries out when they are many. Called before a log write, so that a full disk fails the append as a whole."""
        if len(self._pending) >= PENDING_BYTES_MAX:
            self.write_out()
        if self.count and not self._pending:
            self._mapped()  # else the look-up of the last entry may fail after the log write

    def last_key(self) -> int:
        """The key of the last entry; -1 when there is none."""
        pending = self._pending_keys
        if pending:
            return pending[len(pending) - 1]  # Cython compiles it without negative indexes
        return int(self._key.unpack_from(self.entry(self.count - 1))[0]) if self.count else -1

    def append(self, key: int, entry: bytes) -> None:
        """Add an entry in memory; its key must be larger than all others."""
        self._pending += entry
        self._pending_keys.append(key)
        self.count += 1

    def write_out(self) -> bool:
        """Write the pending entries to the file; whether there were any."""
        if not self._pending:
            return False
        self._file().append(self._pending)
        self._stored = None
        self._stored_count = self.count
        self._forget_pending(0)
        return True

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self._stored_count:
            self._forget_pending(count - self._stored_count)
        else:
            self._forget_pending(0)
            self._stored = None  # a mapping must not outlive its bytes
            self._file().truncate(count * self._entry_bytes)
            self._stored_count = count
            del self._fence[(count + _STRIDE - 1) // _STRIDE :]
        self.count = min(self.count, count)

    def _forget_pending(self, keep: int) -> None:
        del self._pending[keep * self._entry_bytes :]
        del self._pending_keys[keep:]

    def rewrite(self) -> None:
        """Drop all entries and the content of the file."""
        self._forget_pending(0)
        self._stored = None
        self._disk.write(self.path, b"")
        self._stored_count = self.count = 0
        self._fence = array("q")
