"""Reads the log directories of a stopped broker without changing or recovering anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txbroker.cli.step_progress import OnProgress
from txbroker.cluster.zookeeper_migration.kafka_metadata import FoundLog, FoundLogs
from txbroker.console.failures import CommandFailed
from txbroker.errors import CorruptRecords, StartError, StorageError
from txbroker.log import checkpoints, clean_shutdown, directory_names, meta_properties
from txbroker.log.checkpoints import MalformedCheckpoint
from txbroker.log.directory import LOCK_FILE, META_PROPERTIES_SIZE_MAX
from txbroker.log.directory_names import DirectoryState
from txbroker.log.disk import Disk
from txbroker.log.file_names import LEADER_EPOCHS, PARTITION_METADATA, SNAPSHOT, file_path, parse_name
from txbroker.log.meta_properties import NO_IDENTITY, Identity
from txbroker.log.partition_metadata import parse_metadata
from txbroker.log.producer_snapshots import parse_snapshot
from txbroker.logtools.process_directories import process_directories
from txbroker.names import NULL_TOPIC_ID, TopicPartition

SMALL_FILE_MAX = 64 * 1024 * 1024
# A damaged directory name may have any partition number, and an import creates all partitions below it.
PARTITION_MAX = 1_000_000


@contextmanager
def locked(disk: Disk, directories: Sequence[str]) -> Iterator[None]:
    """Lock the directories, so that no broker starts on them. CommandFailed when a broker is running on one."""
    locks = []
    try:
        for directory in directories:
            lock = disk.lock(f"{directory}/{LOCK_FILE}")
            if lock is None:
                raise CommandFailed(f"a broker is running on {directory}: stop it first")
            locks.append(lock)
        yield
    finally:
        for lock in locks:
            lock.release()


def read_identity(disk: Disk, directories: Sequence[str]) -> Identity:
    """The broker and cluster id in their meta.properties. CommandFailed: they differ, or belong to KRaft or several processes."""
    joined, joined_path = NO_IDENTITY, ""
    for directory in directories:
        path = f"{directory}/{meta_properties.FILE_NAME}"
        if not disk.is_directory(directory):
            raise CommandFailed(f"{directory} is not a directory: specify the log.dirs of the broker")
        if process_directories(disk, directory):
            raise CommandFailed(
                f"{directory} has the data of several processes: make it that of one process first, as docs/processes.md says under "
                "'Back to one process'"
            )
        content = _read_small(disk, path, META_PROPERTIES_SIZE_MAX)
        if content is None:
            continue
        try:
            identity = meta_properties.parse(content, path)
            joined = meta_properties.join(joined, joined_path, identity, path)
        except StartError as error:
            raise CommandFailed(f"{error}; to read its logs without a broker, use txbroker dump-log") from error
        joined_path = joined_path or path
    return joined


def read_directories(disk: Disk, directories: Sequence[str], on_progress: OnProgress) -> FoundLogs:
    """The identity of these directories, and the log of every partition in them. CommandFailed; StorageError."""
    identity = read_identity(disk, directories)
    paths: dict[TopicPartition, str] = {}
    for directory in directories:
        for name in disk.names(directory):
            parsed = directory_names.parse(name)
            if parsed is None or parsed.state is not DirectoryState.IN_USE or not disk.is_directory(f"{directory}/{name}"):
                continue
            if parsed.topic_partition.partition > PARTITION_MAX:
                raise CommandFailed(f"{directory}/{name} has a partition number above {PARTITION_MAX}: move it to another directory")
            if parsed.topic_partition in paths:
                raise CommandFailed(
                    f"{name} is in {paths[parsed.topic_partition].rpartition('/')[0]} and in {directory}: "
                    "start and stop the broker that wrote them, which removes one, or move one to another directory"
                )
            paths[parsed.topic_partition] = f"{directory}/{name}"
    new = [directory for directory in directories if disk.size(f"{directory}/{meta_properties.FILE_NAME}") is None]
    logs = {}
    for done, (topic_partition, path) in enumerate(paths.items()):
        on_progress(done, len(paths))
        logs[topic_partition] = read_log(disk, path)
    return FoundLogs(
        directories=tuple(directories),
        identity=identity,
        logs=logs,
        clean=all(disk.size(f"{directory}/{clean_shutdown.FILE_NAME}") is not None for directory in directories),
        new=tuple(new) if len(new) < len(directories) else (),
        cleaned=frozenset(topic_partition for directory in directories for topic_partition in _cleaned(disk, directory)),
    )


def read_log(disk: Disk, path: str) -> FoundLog:
    """Read one partition's directory."""
    offsets = [each[0] for each in map(parse_name, disk.names(path)) if each is not None and each[1:] == (SNAPSHOT, "")]
    metadata = _read_small(disk, f"{path}/{PARTITION_METADATA}", 1024)
    producer_id, open_transactions = -1, 0
    if offsets:
        try:
            for state in parse_snapshot(_read_small(disk, file_path(path, max(offsets), SNAPSHOT)) or b""):
                producer_id = max(producer_id, state.producer_id)
                open_transactions += state.txn_first_offset >= 0
        except CorruptRecords:
            pass  # the broker rebuilds it and logs a warning
    return FoundLog(
        directory=path,
        topic_id=NULL_TOPIC_ID if metadata is None else parse_metadata(metadata, f"{path}/{PARTITION_METADATA}"),
        leader_epoch=_last_epoch(disk, f"{path}/{LEADER_EPOCHS}"),
        producer_id_max=producer_id,
        open_transactions=open_transactions,
    )


def _last_epoch(disk: Disk, path: str) -> int:
    content = _read_small(disk, path)
    try:
        epochs = [checkpoints.number(epoch, 0, 2**31 - 1) for epoch, _ in checkpoints.parse_lines(content or b"", 2)]
    except MalformedCheckpoint as error:
        raise CommandFailed(f"{path}: {error}; move it to another directory, and the broker rebuilds it when it starts") from error
    return max(epochs, default=-1)


def _cleaned(disk: Disk, directory: str) -> Iterator[TopicPartition]:
    content = _read_small(disk, f"{directory}/{checkpoints.CLEANER_OFFSETS}")
    try:
        yield from checkpoints.parse_offsets(content or b"")
    except MalformedCheckpoint:
        return  # the broker can do without it: cleaning only takes longer


def _read_small(disk: Disk, path: str, size_max: int = SMALL_FILE_MAX) -> bytes | None:
    size = disk.size(path)
    if size is not None and size > size_max:
        raise StorageError(f"{path} has {size} bytes, more than a broker writes: check that its directory is a log directory")
    return disk.read(path)
