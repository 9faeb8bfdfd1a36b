"""How the segment that a cleaning made takes the place of others, so that a kill or a loss of power leaves the log before it or after it.

1. The cleaner has synced the `.cleaned` files, and their names.
2. `begin`: the mark `txbroker-swap` says which offsets the new segment covers, and the files become `.swap`.
3. `sync`, in a worker: the mark and these names are durable.
4. The log marks the old files as deleted, and the new ones lose their suffix, in one turn. Until the next sync a loss of power may undo
   each of these renames by itself.
5. `end`, in a worker: the names are durable, and the mark is removed.

`settle` is for the next start: with the mark and without `.cleaned` files step 3 is done, and step 4 is repeated; else it is undone.
Kafka has no such mark. It ignores the file, and its own `.swap` files are treated as it does (`recovery.py`).
"""

from __future__ import annotations

import logging

from txbroker.errors import StorageError
from txbroker.log.checkpoints import OFFSET_MAX, MalformedCheckpoint, format_lines, number, parse_lines
from txbroker.log.disk import Disk, unless_renamed
from txbroker.log.file_names import CLEANED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, SWAP, file_path, parse_name

SWAP_MARK = "txbroker-swap"

logger = logging.getLogger("txbroker.log")


class SegmentSwap:
    """A segment of `directory` that covers the offsets [base_offset, next_offset)."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, next_offset: int) -> None:
        self.directory = directory
        self._disk = disk
        self._base_offset = base_offset
        self._next_offset = next_offset

    def begin(self) -> None:
        """Step 2. StorageError; after OutOfResources the old segments stay in use, and `undo` removes what is left."""
        self._disk.write(f"{self.directory}/{SWAP_MARK}", format_lines([f"{self._base_offset} {self._next_offset}"]))
        self._rename(CLEANED, SWAP)

    def sync(self) -> None:
        """Step 3."""
        with unless_renamed(self._disk, self.directory):
            self._disk.sync(f"{self.directory}/{SWAP_MARK}")
            self._disk.sync(self.directory)

    def take_names(self) -> None:
        """The second half of step 4: the new files lose their suffix."""
        self._rename(SWAP, "")

    def end(self) -> None:
        """Step 5. The mark must not come back after other segments have got these offsets."""
        with unless_renamed(self._disk, self.directory):
            self._disk.sync(self.directory)
            self._disk.remove(f"{self.directory}/{SWAP_MARK}")
            self._disk.sync(self.directory)

    def _rename(self, mark: str, new_mark: str) -> None:
        for suffix in SEGMENT_SUFFIXES:
            path = file_path(self.directory, self._base_offset, suffix)
            if self._disk.size(path + mark) is not None:
                self._disk.rename(path + mark, path + new_mark)


def undo(disk: Disk, directory: str) -> None:
    """Remove what an unfinished cleaning has left in a directory, which may be gone. In a worker."""
    with unless_renamed(disk, directory):
        _undo(disk, directory)


def _undo(disk: Disk, directory: str) -> None:
    # In this order: with the mark or with `.swap` files alone the next start would go on with step 4.
    marked = _marked(disk, directory, SWAP)
    for name in marked:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}{CLEANED}")
    if disk.size(f"{directory}/{SWAP_MARK}") is not None:
        disk.sync(directory)
        disk.remove(f"{directory}/{SWAP_MARK}")
        marked = [SWAP_MARK]
    if marked:
        disk.sync(directory)
    for name in _marked(disk, directory, CLEANED):
        disk.remove(f"{directory}/{name}")


def _marked(disk: Disk, directory: str, mark: str) -> list[str]:
    """The segments' files with this mark, log files first, because the others mean nothing without them."""
    names = [name for name in disk.names(directory) if (parsed := parse_name(name)) is not None and parsed[2] == mark]
    return sorted(names, key=lambda name: not name.endswith(LOG + mark))


def settle(disk: Disk, directory: str) -> None:
    """Complete or undo the swap that the end of a process has interrupted, if there is one."""
    covered = _read_mark(disk, directory)
    if covered is None:
        if disk.size(f"{directory}/{SWAP_MARK}") is not None:
            undo(disk, directory)
        return
    base, end = covered
    names = {name: parsed for name in disk.names(directory) if (parsed := parse_name(name)) is not None}
    if not {(base, LOG, ""), (base, LOG, SWAP), (base, LOG, CLEANED)} & set(names.values()):
        raise StorageError(f"{file_path(directory, base, LOG)} is missing: {SWAP_MARK} says that it replaces segments up to offset {end}")
    if any(offset == base and mark == CLEANED for offset, _, mark in names.values()):
        undo(disk, directory)
        return
    swap = SegmentSwap(disk, directory, base, end)
    for name, (offset, suffix, mark) in names.items():
        # A file of the segment itself is the new one, unless there is a `.swap` file, which replaces it.
        if not mark and suffix != SNAPSHOT and base < offset < end:
            logger.info("%s: removing %s, which a cleaned segment replaces", directory, name)
            disk.remove(f"{directory}/{name}")
    disk.sync(directory)
    swap.take_names()
    swap.end()


def _read_mark(disk: Disk, directory: str) -> tuple[int, int] | None:
    """The offsets of the mark; None if there is none, or if it was not synced."""
    try:
        ((base, end),) = parse_lines(disk.read(f"{directory}/{SWAP_MARK}") or b"", 2)
        return number(base, 0, OFFSET_MAX), number(end, 0, OFFSET_MAX)
    except (MalformedCheckpoint, ValueError):
        return None
