"""The file `txbroker-missing` in a partition's directory: which records are missing, for the next starts and for `log verify`.

What shows that records are missing may be gone after one start: indexes and snapshots are removed, checkpoints are written again. The file
is a checkpoint (see `checkpoints.py`) of lines `start end epoch evidence`. A range leaves it when the log start offset has passed it, when
the log is truncated below it, and at the next start if the records are back. Kafka ignores the file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from txbroker.errors import OutOfResources
from txbroker.log.checkpoints import OFFSET_MAX, MalformedCheckpoint, format_lines, number, parse_lines
from txbroker.log.disk import Disk
from txbroker.log.missing_records import EPOCH_MAX, Missing

FILE_NAME = "txbroker-missing"
SIZE_MAX = 16 * 1024 * 1024
RANGES_MAX = 1000  # the broker's log has the others

logger = logging.getLogger("txbroker.log")


def path_of(directory: str) -> str:
    """The file of a partition's directory."""
    return f"{directory}/{FILE_NAME}"


def parse_missing(content: bytes) -> list[Missing]:
    """The ranges of a file; MalformedCheckpoint when it cannot be one. No broker writes an empty file."""
    if not content:
        raise MalformedCheckpoint("it is empty")
    found = []
    for start_text, end_text, epoch_text, evidence in parse_lines(content, 4, ends_with_text=True):
        start = number(start_text, 0, OFFSET_MAX)
        found.append(Missing(start, number(end_text, start + 1, OFFSET_MAX), evidence, number(epoch_text, -1, EPOCH_MAX)))
    return found


def lasting(missing: Iterable[Missing]) -> list[Missing]:
    """The ranges that the file has."""
    return [one for one in missing if one.lasts][:RANGES_MAX]


def write_missing(disk: Disk, directory: str, missing: Iterable[Missing], *, sync: bool) -> bool:
    """Replace the file; without `sync` a flush must sync it. StorageError.

    Without space it stays as it is, the log has a warning, and the result is False.
    """
    lines = (f"{one.start} {one.end} {one.epoch} {_one_line(one.evidence)}" for one in lasting(missing))
    try:
        disk.replace(path_of(directory), format_lines(lines), sync=sync)
    except OutOfResources as error:
        logger.warning("%s cannot be written, and the next start may not know what is missing: %s", path_of(directory), error)
        return False
    return True


class KnownMissing:
    """The file while a log is loaded. `ranges`: those that earlier starts have found."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """A malformed file has no ranges, and stays: each start has an error in the log. StorageError."""
        self.ranges: list[Missing] = []
        self._written: list[Missing] = []
        self._disk = disk
        self._directory = directory
        self._exists = False
        size = disk.size(path_of(directory))
        if size is None:
            return
        try:
            if size > SIZE_MAX:
                raise MalformedCheckpoint(f"it has {size} bytes, more than any broker writes")
            self.ranges = parse_missing(disk.read(path_of(directory)) or b"")
            self._written, self._exists = self.ranges, True
        except MalformedCheckpoint as error:
            what = "it is not known which records an earlier start has found missing"
            logger.error("%s is malformed (%s), and %s; txbroker log repair renames it", path_of(directory), error, what)

    def add(self, found: Iterable[Missing]) -> None:
        """Write also what this start has found, before what shows it is removed. StorageError."""
        self._write(lasting([*self.ranges, *found]))

    def settle(self, missing: Iterable[Missing]) -> None:
        """Write what is missing at the end of loading; without anything the file is removed. StorageError."""
        ranges = lasting(missing)
        if ranges:
            self._write(ranges)
        elif self._exists:
            self._disk.remove(path_of(self._directory))

    def _write(self, ranges: list[Missing]) -> None:
        if ranges != self._written and write_missing(self._disk, self._directory, ranges, sync=True):
            self._written, self._exists = ranges, True


def still_missing(
    missing: Iterable[Missing],
    segments: Sequence[tuple[int, int]],
    epochs: Sequence[tuple[int, int]],
    log_start_offset: int,
    *,
    has_gaps: bool,
) -> list[Missing]:
    """The ranges that the start of the log has not passed, and whose records are not back, from a backup or from the leader.

    Other records may have got offsets at the end of the log: they have a later leader epoch. `segments`: the base offset of each, and one
    above its last offset, ascending; `epochs`: with their start offsets.
    """
    return [
        one
        for one in missing
        if log_start_offset <= one.end
        and not (_has_offsets(one, segments, has_gaps=has_gaps) and _epoch_of(one.end - 1, epochs) <= one.epoch)
    ]


def _has_offsets(missing: Missing, segments: Sequence[tuple[int, int]], *, has_gaps: bool) -> bool:
    """Whether the segments have all offsets of a range, or, in a log with gaps, some of them."""
    at = missing.start
    for base, end in segments:
        if base >= missing.end or end <= missing.start:
            continue
        if has_gaps:
            return True
        if base > at:
            return False
        at = end
    return at >= missing.end


def _epoch_of(offset: int, epochs: Sequence[tuple[int, int]]) -> int:
    return max((epoch for epoch, start in epochs if start <= offset), default=-1)


def _one_line(text: str) -> str:
    """A path may have any character."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode("utf-8").split())
