"""The directories of partitions in log.dirs of one or several brokers, and what their checkpoints say. They are only read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.errors import CorruptRecords, StorageError
from txbroker.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.cleaner import cleaning_history_file
from txbroker.log.disk import Disk
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.compaction_plan import log_ends
from txbroker.logtools.log_paths import NoLogDirectory, PartitionPlace, survey
from txbroker.logtools.partition_files import find_files
from txbroker.names import INTERNAL_TOPICS, TopicPartition
from txbroker.spark.segment_plan import log_start_offset, replicas

_TASKS_MAX = 64
PlaceKey = tuple[str, str, int]
"""Replica, topic and partition."""


class Place(NamedTuple):
    """A partition's directory. `data`: the data directory that it is in; "" if it is in none, as a copy."""

    replica: str
    path: str
    topic: str
    partition: int
    live: bool
    clean: bool
    data: str
    identity: Mapping[str, str]

    @property
    def key(self) -> PlaceKey:
        """Its key; no other place has the same."""
        return self.replica, self.topic, self.partition


class Ends(NamedTuple):
    """The offsets of a partition's log. Without an open transaction the last stable offset is the log end offset."""

    log_start: int
    last_stable: int
    log_end: int


def find_places(log_dirs: str, topics: Sequence[str], include: str | None, flag: str = "--log-dir") -> list[Place]:
    """The partitions' directories, by topic and partition; BadUsage, CommandFailed. `flag`: what has the directories, for errors."""
    disk = OsDisk()
    found: list[Place] = []
    for replica, path in replicas(log_dirs):
        try:
            places = survey(disk, [path]).partitions
        except (NoLogDirectory, StorageError) as error:
            raise CommandFailed(f"{error}; correct {flag}") from None
        found += [_place(replica, place) for place in places if _is_selected(place.topic_partition.topic, topics, include)]
    missing = sorted(set(topics) - {place.topic for place in found})
    if missing or not found:
        raise CommandFailed(f"there is no partition of {missing[0] if missing else include} in {log_dirs}; "
                            "specify log.dirs of the brokers that have it")
    found.sort(key=lambda place: (place.topic, place.partition, place.replica))
    for one, other in pairwise(found):
        if (one.replica, one.topic, one.partition) == (other.replica, other.topic, other.partition):
            raise BadUsage(f"{one.topic}-{one.partition} is in {one.path} and {other.path}: give the brokers different names in {flag}")
    return found


def _is_selected(topic: str, topics: Sequence[str], include: str | None) -> bool:
    return topic in topics if include is None else topic not in INTERNAL_TOPICS and re.fullmatch(include, topic) is not None


def _place(replica: str, place: PartitionPlace) -> Place:
    topic, partition = place.topic_partition
    data = place.data
    identity = {} if data is None else dict(one.split("=", 1) for one in data.identity.split(", ") if "=" in one)
    return Place(replica, place.path, topic, partition, place.live, place.clean, "" if data is None else data.path, identity)


def ends_of_places(spark: Any, places: Sequence[Place]) -> dict[PlaceKey, Ends]:
    """The offsets of each place, found by executors, since that reads the active segments. CommandFailed through Spark."""
    tasks = min(len(places), _TASKS_MAX)
    return {row[:3]: Ends(*row[3:]) for row in spark.sparkContext.parallelize(places, tasks).mapPartitions(_ends).collect()}


def _ends(places: Iterable[Place]) -> Iterator[tuple[Any, ...]]:
    disk = OsDisk()
    for place in places:
        (found,) = survey(disk, [place.path]).partitions
        ends = log_ends(disk, place.path, found.topic_partition)
        # Retention may have deleted segments since the checkpoint was written.
        start = max([log_start_offset(disk, found), *find_files(disk, place.path).logs[:1]])
        yield *place.key, min(start, ends.log_end_offset), ends.last_stable_offset, ends.log_end_offset


def clean_ends_of_places(places: Sequence[Place]) -> dict[tuple[str, str, int], int]:
    """Up to where the cleaner has come by its checkpoint and by txbroker's history; 0 where neither has the partition. CommandFailed.

    It is not known of directories that are in no data directory.
    """
    disk = OsDisk()
    known = [place for place in places if place.data]
    checkpoints = {data: _checkpoint(disk, data) for data in {place.data for place in known}}
    return {place.key: checkpoints[place.data].get(TopicPartition(place.topic, place.partition), 0) for place in known}


def _checkpoint(disk: Disk, directory: str) -> dict[TopicPartition, int]:
    try:
        found = parse_offsets(read_small(disk, f"{directory}/{CLEANER_OFFSETS}", SIZE_MAX) or b"")
        content = read_small(disk, f"{directory}/{cleaning_history_file.FILE_NAME}", SIZE_MAX) or b""
        for known, history in cleaning_history_file.parse_histories(content).items():
            found[known] = max(found.get(known, 0), history.clean_end)
        return found
    except (MalformedCheckpoint, CorruptRecords, StorageError) as error:
        raise CommandFailed(f"the cleaner's checkpoint in {directory} cannot be read: {error}; see `txbroker log verify`") from None


def high_watermarks(places: Sequence[Place]) -> dict[PlaceKey, int]:
    """The high watermarks in the checkpoints of the data directories, of the partitions that they have. CommandFailed."""
    disk = OsDisk()
    found = {}
    for data in {place.data for place in places if place.data}:
        path = f"{data}/{HIGH_WATERMARKS}"
        try:
            offsets = parse_offsets(read_small(disk, path, SIZE_MAX) or b"")
        except (MalformedCheckpoint, StorageError) as error:
            raise CommandFailed(f"{path} cannot be read: {error}; see `txbroker log verify`") from None
        for place in places:
            offset = offsets.get(TopicPartition(place.topic, place.partition))
            if place.data == data and offset is not None:
                found[place.key] = offset
    return found


def segment_sizes(places: Sequence[Place]) -> dict[str, dict[str, int]]:
    """By directory, the names of its log files, in order, with their sizes."""
    disk = OsDisk()
    found = {}
    for place in places:
        names = sorted(name for name in disk.names(place.path) if name.endswith(".log"))
        found[place.path] = {name: disk.size(f"{place.path}/{name}") or 0 for name in names}
    return found


def has_only_grown(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether a directory with these `segment_sizes` has more at its end only: a broker that cleans or deletes changes closed segments."""
    *closed, active = before or ("",)
    return all(now.get(name) == before[name] for name in closed) and now.get(active, 0) >= before.get(active, 0)
