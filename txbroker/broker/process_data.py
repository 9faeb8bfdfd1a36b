"""What a start with `--processes` finds in log.dirs, and when it is refused: when replicas would have no process, or no data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.broker.stored_identity import replicas_by_broker
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import data_of, read_tree
from txbroker.config.process_layout import process_directory
from txbroker.errors import StartError
from txbroker.log import meta_properties
from txbroker.log.directory import LOCK_FILE
from txbroker.log.disk import Disk
from txbroker.log.meta_properties import Identity
from txbroker.logtools.process_directories import first_log, process_directories
from txbroker.names import amount

MOVE = "move all their replicas to other brokers first (txbroker reassign-partitions), while all processes run"
PAGE = "docs/processes.md"


class ProcessData(NamedTuple):
    """The path of the metadata file, which may not exist yet, and the broker id of process 0."""

    metadata: str
    broker_id: int


def path_in_use(disk: Disk, directories: Sequence[str]) -> str | None:
    """The directory of a process, or the metadata, that another process has locked; None if there is none. StorageError."""
    for directory in directories:
        if not disk.is_directory(directory):
            continue
        locks = {path: f"{path}/{LOCK_FILE}" for path in process_directories(disk, directory).values()}
        metadata = f"{directory}/{FILE_NAME}"
        for path, lock in {**locks, metadata: metadata}.items():
            if disk.locked(lock):
                return path
    return None


def check_process_data(disk: Disk, directories: Sequence[str], processes: int, broker_id: int) -> ProcessData:
    """Check the directories of log.dirs, which may not exist yet. `broker_id`: as configured, -1 if it is not. StartError; StorageError."""
    existing = [directory for directory in directories if disk.is_directory(directory)]
    candidates = [f"{directory}/{FILE_NAME}" for directory in existing]
    found = [path for path in candidates if disk.size(path) is not None]
    of_processes: dict[int, list[str]] = defaultdict(list)
    for directory in existing:
        _refuse_one_process(disk, directory)
        for number, path in process_directories(disk, directory).items():
            of_processes[number].append(path)
    first_id = _first_id(disk, of_processes, broker_id)
    for number in sorted(of_processes):
        logs = [f"{path}/{log}" for path in of_processes[number] if (log := first_log(disk, path)) is not None]
        if logs and number >= processes:
            raise StartError(f"{logs[0]} is a log of process {number}: use --processes {number + 1} or more, or {MOVE}; see {PAGE}")
        if logs and not (found and disk.size(found[0])):
            problem = f"{found[0]} is empty" if found else f"no directory of log.dirs has the metadata ({FILE_NAME})"
            raise StartError(f"{problem}, and {logs[0]} is a log: restore this file from a backup; see {PAGE}")
    if found:
        _check_replicas(found[0], of_processes, processes, first_id)
    return ProcessData(found[0] if found else f"{directories[0]}/{FILE_NAME}", first_id)


def _refuse_one_process(disk: Disk, directory: str) -> None:
    """Refuse the data of a broker without --processes: its topics would be empty."""
    what = meta_properties.FILE_NAME if disk.size(f"{directory}/{meta_properties.FILE_NAME}") is not None else first_log(disk, directory)
    if what is not None:
        raise StartError(
            f"{directory} has the data of one process ({what}): start it without --processes, or move all but {FILE_NAME} to "
            f"{directory}/{process_directory(0)} as {PAGE} says"
        )


def _first_id(disk: Disk, of_processes: Mapping[int, Sequence[str]], broker_id: int) -> int:
    """The id of process 0: the configured one, the stored one, or 0. All stored ones must fit it."""
    stored = []
    for number, paths in of_processes.items():
        for path in paths:
            file = f"{path}/{meta_properties.FILE_NAME}"
            identity = meta_properties.parse(disk.read(file) or b"", file)
            if identity.broker_id is not None:
                stored.append((number, file, identity))
    if broker_id < 0:
        broker_id = next((identity.broker_id - number for number, _, identity in sorted(stored) if identity.broker_id is not None), 0)
    for number, file, identity in stored:
        meta_properties.check(identity, file, Identity(broker_id + number, identity.cluster_id))
    return broker_id


def _check_replicas(metadata: str, of_processes: Mapping[int, Sequence[str]], processes: int, first_id: int) -> None:
    """Each replica in the metadata needs a process, and the directory of it."""
    try:
        on_brokers = replicas_by_broker(data_of(read_tree(metadata), node_paths.TOPICS))
    except MalformedNode as error:
        raise StartError(f"{metadata} is damaged: {error}; restore it from a backup") from error
    for broker, partitions in sorted(on_brokers.items()):
        number = broker - first_id
        has = f"broker {broker} has {amount(len(partitions), 'replica')}, such as {partitions[0]}"
        if number < 0:
            raise StartError(f"{has}, and the ids of the processes begin with {first_id}: correct broker.id")
        if number >= processes:
            raise StartError(f"{has}: use --processes {number + 1} or more, or {MOVE}; see {PAGE}")
        if number not in of_processes:
            raise StartError(
                f"{has}, and no directory of log.dirs has its data in {process_directory(number)}: mount or restore it, "
                "or create this directory to start without these records"
            )
