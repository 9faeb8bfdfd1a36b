"""What the end of a process left in a log's directory: deletions, cleanings and swaps of segments, which are finished or undone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.disk import Disk
from txbroker.log.file_names import CLEANED, DELETED, LOG, SNAPSHOT, SWAP, TXN_INDEX, parse_name
from txbroker.log.scan import Walk
from txbroker.log.segment_swap import settle

logger = logging.getLogger("txbroker.log")

Parsed = tuple[str, tuple[int, str, str]]  # a name, and its offset, suffix and mark


@lazy_dataclass(slots=True)
class Remaining:
    """The files of segments, as (offset, suffix).

    `deleted`: base offsets of segments whose deletion is finished; `marked_indexes`: of those whose transaction index had the same mark.
    `renamed`: whether files have new names, which the next flush must sync.
    """

    files: list[tuple[int, str]]
    deleted: set[int] = field(default_factory=set)
    marked_indexes: set[int] = field(default_factory=set)
    renamed: bool = False


def finish_changes(disk: Disk, directory: str) -> Remaining:
    """Finish or undo them; StorageError."""
    settle(disk, directory)
    names = _parsed_names(disk, directory)
    remaining = Remaining([(offset, suffix) for _, (offset, suffix, _) in names])
    if not any(mark for _, (_, _, mark) in names):
        return remaining
    if any(mark == DELETED for _, (_, _, mark) in names):
        disk.sync(directory)  # as after each deletion, which may not have come so far
        remaining.deleted = _finish_deletions(disk, directory, names)
    cleaned = [offset for _, (offset, _, mark) in names if mark == CLEANED]
    swaps: list[str] = []
    for name, (offset, suffix, mark) in names:
        path = f"{directory}/{name}"
        if mark == DELETED and suffix == TXN_INDEX:
            remaining.marked_indexes.add(offset)  # a loss of power may have undone the same for its log file
        if mark in (DELETED, CLEANED):
            disk.remove(path)
        elif mark == SWAP:
            # Not all files of a new segment have this mark yet, or a segment was being split: the old segments are still complete.
            if cleaned and offset >= min(cleaned):
                disk.remove(path)
            else:
                swaps.append(name)
    if swaps:
        _finish_swaps(disk, directory, swaps)
        remaining.renamed = True
    remaining.files = [(offset, suffix) for _, (offset, suffix, mark) in _parsed_names(disk, directory) if not mark]
    return remaining


def _parsed_names(disk: Disk, directory: str) -> list[Parsed]:
    return [(name, parsed) for name in disk.names(directory) if (parsed := parse_name(name)) is not None]


def _finish_deletions(disk: Disk, directory: str, names: Sequence[Parsed]) -> set[int]:
    """Remove the other files of segments that were being deleted first: without the mark they would look like those of a lost one."""
    logs = {offset for _, (offset, suffix, mark) in names if suffix == LOG and not mark}
    deleted = {offset for _, (offset, suffix, mark) in names if suffix == LOG and mark == DELETED} - logs
    for name, (offset, _, mark) in names:
        if offset in deleted and not mark:
            disk.remove(f"{directory}/{name}")
    return deleted


def _finish_swaps(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Replace the segments whose offsets a complete new segment covers."""
    logs = [name for name in names if name.endswith(LOG + SWAP)]
    covered = [_covered(disk, directory, name) for name in logs]
    for name, (offset, suffix, mark) in _parsed_names(disk, directory):
        if not mark and suffix != SNAPSHOT and any(low <= offset < high for low, high in covered):
            logger.info("%s: replacing %s by a cleaned segment", directory, name)
            disk.remove(f"{directory}/{name}")
    disk.sync(directory)  # a loss of power must not bring one of them back once the marks are gone
    # Log files first: if one has its final name already, only the other files of its segment must be renamed.
    for name in sorted(names, key=lambda name: name not in logs):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _covered(disk: Disk, directory: str, name: str) -> tuple[int, int]:
    """The offsets of a `.log.swap` file, as [base, end)."""
    path = f"{directory}/{name}"
    parsed = parse_name(name)
    assert parsed is not None
    end = parsed[0]
    for entry in Walk(disk.open(path), 0, disk.size(path) or 0):
        end = entry.header.last_offset + 1
    return parsed[0], end
