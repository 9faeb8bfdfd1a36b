"""Moves between directories that a crash interrupted.

If only the old log has its final name, the unfinished copy is continued. If both have it, the one with the file `CURRENT_COPY` is the copy.
It has all records of the old one, and later ones, unless power was lost before the copy was synced: then the copy is deleted. If only the
copy has the final name, the move is finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from txbroker.errors import StartError
from txbroker.log.directory_names import DirectoryState
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, file_path, parse_name
from txbroker.log.loading import Loading
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Walk
from txbroker.names import TopicPartition

CURRENT_COPY = "txbroker-current-copy"  # Kafka ignores files with names that it does not use

logger = logging.getLogger("txbroker.log")


def settle(loadings: Sequence[Loading], disk: Disk, unique_id: Callable[[], str], *, complete: bool) -> None:
    """Settle interrupted moves, so that each partition has one log in use, and copies belong to one.

    `complete`: no directory is offline, in which a log could be. StartError when two directories have a partition and it is not known
    which log is complete; the operator must decide.
    """
    in_use: dict[TopicPartition, tuple[Loading, str]] = {}
    for loading in loadings:
        for path, topic_partition in loading.paths(DirectoryState.IN_USE):
            other = in_use.get(topic_partition)
            kept = (loading, path)
            if other is not None:
                kept, dropped = (kept, other) if _replaces(disk, topic_partition, path, other[1]) else (other, kept)
                logger.warning("%s is in %s; deleting the older copy %s", topic_partition, kept[1], dropped[1])
                dropped[0].drop(dropped[1], unique_id())
            in_use[topic_partition] = kept
    _settle_copies(loadings, in_use, unique_id, complete=complete)


def _replaces(disk: Disk, topic_partition: TopicPartition, path: str, other: str) -> bool:
    """Whether the log in `path` is kept, and not the one in `other`."""
    newer = disk.size(f"{path}/{CURRENT_COPY}") is not None
    if newer == (disk.size(f"{other}/{CURRENT_COPY}") is not None):
        raise StartError(
            f"{topic_partition} is both in {other} and in {path}; move one of them out of log.dirs, that of the disk that failed if one did"
        )
    copy, original = (path, other) if newer else (other, path)
    return newer == _is_complete(disk, copy, original)


def _is_complete(disk: Disk, copy: str, original: str) -> bool:
    """Whether a copy has all offsets with records that the original has, from its first segment on: also none is missing between two."""
    start = min(_segments(disk, copy), default=0)
    copied = _records(disk, copy)
    low, high = next(copied, (start, start))
    for first, end in _records(disk, original):
        while high < end:
            following = next(copied, None)
            if following is None:
                return False
            low, high = following
        if max(first, start) < low < end:
            return False
    copied_end = max((end for _, end in copied), default=high)
    return _last_base(disk, original) <= max(copied_end, _last_base(disk, copy))


def _records(disk: Disk, directory: str) -> Iterator[tuple[int, int]]:
    """The offsets with batches that can be read, ascending, as ranges [first, end) that do not touch."""
    first = end = -1
    for base_offset in _segments(disk, directory):
        path = file_path(directory, base_offset, LOG)
        walk = Walk(disk.open(path), 0, disk.size(path) or 0, check_crc=True)
        for entry in walk:
            following = first_offset_of(entry.header)
            if following > end:
                if end > first:
                    yield first, end
                first = following
            end = entry.header.last_offset + 1
        if walk.problem:
            break
    if end > first:
        yield first, end


def _segments(disk: Disk, directory: str) -> list[int]:
    return sorted(offset for name in disk.names(directory) if (offset := _base_offset(name)) is not None)


def _last_base(disk: Disk, directory: str) -> int:
    return max(_segments(disk, directory), default=-1)


def _base_offset(name: str) -> int | None:
    parsed = parse_name(name)
    return None if parsed is None or parsed[1:] != (LOG, "") else parsed[0]


def _settle_copies(
    loadings: Sequence[Loading],
    in_use: Mapping[TopicPartition, tuple[Loading, str]],
    unique_id: Callable[[], str],
    *,
    complete: bool,
) -> None:
    copied: set[TopicPartition] = set()
    for loading in loadings:
        for path, topic_partition in loading.paths(DirectoryState.FUTURE):
            current = in_use.get(topic_partition)
            if current is not None and current[0] is not loading and topic_partition not in copied:
                copied.add(topic_partition)
            elif current is None and not complete:
                logger.warning("leaving %s as it is: the log that it copies may be in a directory that is offline", path)
                loading.ignore(path)
            else:
                loading.drop(path, unique_id())
