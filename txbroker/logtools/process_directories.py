"""The directories of brokers that are processes of one machine (`txbroker run --processes`), below each directory of log.dirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txbroker.config.process_layout import process_directory, process_number
from txbroker.errors import StorageError
from txbroker.log import directory_names, meta_properties
from txbroker.log.directory_names import DirectoryState
from txbroker.log.disk import Disk


def process_directories(disk: Disk, directory: str) -> dict[int, str]:
    """The directory of each process below a directory of log.dirs, by number; empty if there are none. StorageError."""
    numbers = (process_number(name) for name in disk.names(directory))
    found = {number: f"{directory}/{process_directory(number)}" for number in sorted(number for number in numbers if number is not None)}
    return {number: path for number, path in found.items() if disk.is_directory(path)}


def data_directories(disk: Disk, paths: Sequence[str]) -> list[str]:
    """The directories with partitions: those of the processes instead of a directory of log.dirs that has such.

    A directory that cannot be read stays: who reads it reports the error.
    """
    return [directory for path in paths for directory in _data_directories(disk, path)]


def _data_directories(disk: Disk, path: str) -> Iterator[str]:
    try:
        of_processes = process_directories(disk, path)
    except StorageError:
        of_processes = {}
    if not of_processes or disk.size(f"{path}/{meta_properties.FILE_NAME}") is not None:
        yield path
    yield from of_processes.values()


def metadata_directories(paths: Sequence[str]) -> list[str]:
    """Where the metadata of these directories can be: the processes' is in the directory above theirs."""
    found = []
    for path in paths:
        parent, _, name = path.rstrip("/").rpartition("/")
        found.append(path)
        if process_number(name) is not None:
            found.append(parent)
    return list(dict.fromkeys(found))


def first_log(disk: Disk, directory: str) -> str | None:
    """The name of a log in this directory, None if it has none. Deleted logs, and those that a cluster does not have, do not count."""
    for name in disk.names(directory):
        parsed = directory_names.parse(name)
        is_log = parsed is not None and parsed.state in (DirectoryState.IN_USE, DirectoryState.FUTURE)
        if is_log and disk.is_directory(f"{directory}/{name}"):
            return name
    return None
