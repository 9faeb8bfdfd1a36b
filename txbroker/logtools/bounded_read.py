"""Reads small files as a whole, up to a limit: a hostile file must not exhaust the memory."""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk

# Enough for a snapshot of 250,000 producers, or the checkpoint of 100,000 partitions.
SMALL_BYTES_MAX = 16 * 1024 * 1024


def read_small(disk: Disk, path: str, bytes_max: int = SMALL_BYTES_MAX) -> bytes | None:
    """The content of a file; None when it does not exist. StorageError; CorruptRecords when it is larger than `bytes_max`."""
    file = disk.open_existing(path)
    if file is None:
        return None
    if file.size > bytes_max:
        raise CorruptRecords(f"it has {file.size} bytes, more than brokers write into it")
    return file.pread(0, bytes_max)
