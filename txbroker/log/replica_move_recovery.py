"""Moves between directories that a crash interrupted.

If only the old log has its final name, the unfinished copy is continued. If both have it, the one with the file `CURRENT_COPY` is the copy.
It has all records of the old one, and later ones, unless power was lost before the copy was synced: then the copy is deleted. If only the
copy has the final name, the move is finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from txbroker.errors import StartError, StorageError
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
    which log is complete; the operator must decide. A directory whose disk fails has an `error` afterwards. What it shares with another
    directory is left there as it is: it may be the older copy.
    """
    in_use: dict[TopicPartition, _Replica] = {}
    for loading in loadings:
        for path, topic_partition in loading.paths(DirectoryState.IN_USE):
            replica, other = _Replica(disk, loading, path), in_use.get(topic_partition)
            in_use[topic_partition] = replica if other is None else _settled(topic_partition, replica, other, unique_id)
    failed = [loading for loading in loadings if loading.error is not None]
    for topic_partition in [name for name, replica in in_use.items() if replica.loading in failed or replica.left]:
        del in_use[topic_partition]
    _settle_copies([one for one in loadings if one not in failed], in_use, unique_id, complete=complete and not failed)


class _Replica:
    """The directory `path` of a partition; when its disk fails, all of `loading` does. `left`: it is not served."""

    def __init__(self, disk: Disk, loading: Loading, path: str) -> None:
        self.loading = loading
        self.path = path
        self.left = False
        self._disk = disk

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self.loading.error is not None:
            raise self.loading.error
        try:
            yield
        except StorageError as error:
            self.loading.error = error
            raise

    @property
    def is_current_copy(self) -> bool:
        """Whether it has the mark. StorageError."""
        with self._reading():
            return self._disk.size(f"{self.path}/{CURRENT_COPY}") is not None

    def segments(self) -> list[int]:
        """Their base offsets, ascending. StorageError."""
        with self._reading():
            return sorted(offset for name in self._disk.names(self.path) if (offset := _base_offset(name)) is not None)

    def records(self) -> Iterator[tuple[int, int]]:
        """The offsets with batches that can be read, ascending, as ranges [first, end) that do not touch. StorageError."""
        with self._reading():
            yield from _records(self._disk, self.path, self.segments())

    def leave(self) -> None:
        """Leave it as it is, for the next start."""
        if self.loading.error is None and not self.left:
            logger.error("leaving %s as it is: the other log of the partition may be newer, and its directory has failed", self.path)
            self.loading.ignore(self.path)
            self.left = True


def _settled(topic_partition: TopicPartition, replica: _Replica, other: _Replica, unique_id: Callable[[], str]) -> _Replica:
    """The one of two logs of a partition that is kept; the other one is deleted."""
    try:
        kept, dropped = (replica, other) if _replaces(topic_partition, replica, other) else (other, replica)
    except StorageError:
        replica.leave()
        other.leave()
        return other if replica.loading.error is not None else replica
    logger.warning("%s is in %s; deleting the older copy %s", topic_partition, kept.path, dropped.path)
    dropped.loading.drop(dropped.path, unique_id())
    return kept


def _replaces(topic_partition: TopicPartition, replica: _Replica, other: _Replica) -> bool:
    """Whether `replica` is kept, and not `other`. StorageError."""
    newer = replica.is_current_copy
    if newer == other.is_current_copy:
        where = f"{topic_partition} is both in {other.path} and in {replica.path}"
        raise StartError(f"{where}; move one of them out of log.dirs, that of the disk that failed if one did")
    copy, original = (replica, other) if newer else (other, replica)
    return newer == _is_complete(copy, original)


def _is_complete(copy: _Replica, original: _Replica) -> bool:
    """Whether a copy has all offsets with records that the original has, from its first segment on: also none is missing between two."""
    start = min(copy.segments(), default=0)
    copied = copy.records()
    low, high = next(copied, (start, start))
    for first, end in original.records():
        while high < end:
            following = next(copied, None)
            if following is None:
                return False
            low, high = following
        if max(first, start) < low < end:
            return False
    copied_end = max((end for _, end in copied), default=high)
    return max(original.segments(), default=-1) <= max(copied_end, *copy.segments())


def _records(disk: Disk, directory: str, segments: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = end = -1
    for base_offset in segments:
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


def _base_offset(name: str) -> int | None:
    parsed = parse_name(name)
    return None if parsed is None or parsed[1:] != (LOG, "") else parsed[0]


def _settle_copies(
    loadings: Sequence[Loading],
    in_use: Mapping[TopicPartition, _Replica],
    unique_id: Callable[[], str],
    *,
    complete: bool,
) -> None:
    copied: set[TopicPartition] = set()
    for loading in loadings:
        for path, topic_partition in loading.paths(DirectoryState.FUTURE):
            current = in_use.get(topic_partition)
            if current is not None and current.loading is not loading and topic_partition not in copied:
                copied.add(topic_partition)
            elif current is None and not complete:
                logger.warning("leaving %s as it is: the log that it copies may be in a directory that is offline", path)
                loading.ignore(path)
            else:
                loading.drop(path, unique_id())
