"""Finds the partitions and files that paths name: data directories (log.dirs), partitions' directories, or single files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txbroker.config.process_layout import process_number
from txbroker.config.properties import parse_properties
from txbroker.errors import ConfigError, CorruptRecords, StorageError
from txbroker.log import clean_shutdown, meta_properties
from txbroker.log.directory import LOCK_FILE, META_PROPERTIES_SIZE_MAX
from txbroker.log.directory_names import DirectoryState, parse
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, file_path
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.findings import Findings
from txbroker.logtools.partition_files import find_files
from txbroker.logtools.process_directories import data_directories
from txbroker.names import TopicPartition

_STATES = {
    DirectoryState.DELETE: "belongs to a deleted partition: a broker removes it",
    DirectoryState.FUTURE: "is an unfinished copy of a partition that is being moved here",
    DirectoryState.STRAY: "was renamed by a broker whose cluster does not have the partition",
}


class NoLogDirectory(Exception):
    """A path that does not belong to a log directory; the text says why."""


@dataclass(slots=True)
class DataDirectory:
    """One of a broker's log.dirs. `live`: a broker runs on it; `clean`: the last one shut down cleanly; `kraft`: of a KRaft node."""

    path: str
    live: bool = False
    clean: bool = False
    kraft: bool = False
    identity: str = ""
    problem: str = ""  # of meta.properties


@dataclass(slots=True)
class PartitionPlace:
    """A partition's directory. `data`: the data directory that it is in, if any. `size`: bytes of its log files."""

    path: str
    topic_partition: TopicPartition
    data: DataDirectory | None
    size: int

    @property
    def live(self) -> bool:
        """Whether a broker is using it."""
        return self.data is not None and self.data.live

    @property
    def clean(self) -> bool:
        """Whether the last broker that used it shut down cleanly."""
        return self.data is not None and self.data.clean


@dataclass(slots=True)
class Survey:
    """What paths name. `directories`: the named data directories. `findings`: about directories that are not partitions."""

    directories: list[DataDirectory] = field(default_factory=list)
    partitions: list[PartitionPlace] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    @property
    def size(self) -> int:
        """Bytes of all log files of partitions."""
        return sum(place.size for place in self.partitions)


def survey(disk: Disk, paths: Sequence[str], *, topic: str | None = None, partition: int | None = None) -> Survey:
    """Find what absolute paths name; of partitions only those of `topic` and `partition`, if given.

    NoLogDirectory for paths that do not belong to a log directory; StorageError when they cannot be read.
    """
    found = Survey()
    for path in paths:
        path = path.rstrip("/") or "/"
        if not disk.is_directory(path):
            if disk.size(path) is None:
                raise NoLogDirectory(f"{path} does not exist; specify a directory of log.dirs, a directory of a partition, or a file")
            found.files.append(path)
        elif _is_partition(disk, path):
            found.partitions.append(_partition(disk, path, _parent(disk, path)))
        else:
            for directory in data_directories(disk, [path]):
                _survey_directory(disk, directory, found)
    found.partitions = [
        place
        for place in found.partitions
        if topic in (None, place.topic_partition.topic) and partition in (None, place.topic_partition.partition)
    ]
    return found


def _is_partition(disk: Disk, path: str) -> bool:
    """Whether a directory has a log's files, or is named like a partition and in a data directory: other programs have such names, too."""
    return find_files(disk, path).any or (parse(_name(path)) is not None and _parent(disk, path) is not None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _parent(disk: Disk, path: str) -> DataDirectory | None:
    parent = path.rpartition("/")[0] or "/"
    there = any(disk.size(f"{parent}/{name}") is not None for name in (meta_properties.FILE_NAME, LOCK_FILE))
    return look_at(disk, parent) if there else None


def _partition(disk: Disk, path: str, data: DataDirectory | None) -> PartitionPlace:
    named = parse(_name(path))
    topic_partition = named.topic_partition if named is not None else TopicPartition(_name(path), 0)
    return PartitionPlace(path, topic_partition, data, log_bytes(disk, path))


def log_bytes(disk: Disk, directory: str) -> int:
    """Bytes of a partition's log files."""
    return sum(disk.size(file_path(directory, base, LOG)) or 0 for base in find_files(disk, directory).logs)


def _survey_directory(disk: Disk, path: str, found: Survey) -> None:
    names = disk.names(path)
    directories = [name for name in names if disk.is_directory(f"{path}/{name}")]
    parsed = {name: parse(name) for name in directories}
    if meta_properties.FILE_NAME not in names and not any(what and find_files(disk, f"{path}/{name}").any for name, what in parsed.items()):
        raise NoLogDirectory(f"{path} is not a log directory: it has no meta.properties and no log segments; see log.dirs")
    data = look_at(disk, path)
    found.directories.append(data)
    for name, what in parsed.items():
        if what is None:
            if process_number(name) is None:
                found.findings.note(f"{path}/{name}", "is not a directory of a partition")
        elif what.state is not DirectoryState.IN_USE:
            found.findings.note(f"{path}/{name}", _STATES[what.state])
        else:
            found.partitions.append(_partition(disk, f"{path}/{name}", data))


def look_at(disk: Disk, path: str) -> DataDirectory:
    """The state and identity of a data directory."""
    data = DataDirectory(path)
    try:
        data.live = disk.locked(f"{path}/{LOCK_FILE}")
    except StorageError as error:
        data.problem = str(error)
    data.clean = disk.size(f"{path}/{clean_shutdown.FILE_NAME}") is not None
    meta_path = f"{path}/{meta_properties.FILE_NAME}"
    try:
        content = read_small(disk, meta_path, META_PROPERTIES_SIZE_MAX)
        if content is None:
            return data
        values = {key: found.text.strip() for key, found in parse_properties(content, meta_path, {}).items()}
    except (CorruptRecords, ConfigError, UnicodeError) as error:
        data.problem = str(error)
        return data
    version = values.get("version")
    if version not in ("0", "1"):
        data.problem = f"it has the unknown version {version!r}; known are 0 and 1"
    data.kraft = version == "1"
    names = ("node.id", "cluster.id", "directory.id") if data.kraft else ("broker.id", "cluster.id")
    data.identity = ", ".join(f"{name}={values[name]}" for name in names if name in values)
    return data
