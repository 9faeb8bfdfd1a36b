"""Small files read whole, up to a limit: who made a directory hostile cannot make it eat memory."""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk

# A snapshot of a quarter of a million producers, the checkpoint of a hundred thousand partitions.
SMALL_BYTES_MAX = 16 * 1024 * 1024


def read_small(disk: Disk, path: str, bytes_max: int = SMALL_BYTES_MAX) -> bytes | None:
    """A file's bytes, None when it does not exist; CorruptRecords when there are too many."""
    file = disk.open_existing(path)
    if file is None:
        return None
    if file.size > bytes_max:
        raise CorruptRecords(f"it has {file.size} bytes, more than any broker writes")
    return file.pread(0, bytes_max)
