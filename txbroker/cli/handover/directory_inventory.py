"""What is in the log directories of a broker that does not run. Nothing is opened for writing, and nothing is recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from txbroker.cli.failures import CommandFailed
from txbroker.cluster.zookeeper_migration.kafka_metadata import FoundLog, FoundLogs
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
from txbroker.names import NULL_TOPIC_ID, TopicPartition

SMALL_FILE_MAX = 64 * 1024 * 1024
# A directory's name may claim any partition, and all below it would have to be made.
PARTITION_MAX = 1_000_000

Told = Callable[[int, int], None]


@contextmanager
def held(disk: Disk, directories: Sequence[str]) -> Iterator[None]:
    """Keep every broker away from the directories meanwhile; CommandFailed when one is there."""
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


def identity_of(disk: Disk, directories: Sequence[str]) -> Identity:
    """What their meta.properties say together. CommandFailed: they contradict each other, or are of a broker without ZooKeeper."""
    together, together_path = NO_IDENTITY, ""
    for directory in directories:
        path = f"{directory}/{meta_properties.FILE_NAME}"
        if not disk.is_directory(directory):
            raise CommandFailed(f"{directory} is no directory: name the log.dirs of the broker")
        content = _small(disk, path, META_PROPERTIES_SIZE_MAX)
        if content is None:
            continue
        try:
            identity = meta_properties.parse(content, path)
            together = meta_properties.join(together, together_path, identity, path)
        except StartError as error:
            raise CommandFailed(f"{error}; the tools that need no broker read its logs where they are: txbroker dump-log") from error
        together_path = together_path or path
    return together


def look(disk: Disk, directories: Sequence[str], told: Told) -> FoundLogs:
    """Every partition's log in these directories. `told(done, total)` as it goes. CommandFailed; StorageError."""
    identity = identity_of(disk, directories)
    places: dict[TopicPartition, str] = {}
    for directory in directories:
        for name in disk.names(directory):
            parsed = directory_names.parse(name)
            if parsed is None or parsed.state is not DirectoryState.IN_USE or not disk.is_directory(f"{directory}/{name}"):
                continue
            if parsed.topic_partition.partition > PARTITION_MAX:
                raise CommandFailed(f"{directory}/{name} is of a partition above {PARTITION_MAX}, which no topic has: move it away")
            if parsed.topic_partition in places:
                raise CommandFailed(
                    f"{name} is in {places[parsed.topic_partition].rpartition('/')[0]} and in {directory}: "
                    "start and stop the broker that wrote them, which decides, or move one away"
                )
            places[parsed.topic_partition] = f"{directory}/{name}"
    logs = {}
    for done, (topic_partition, path) in enumerate(places.items()):
        told(done, len(places))
        logs[topic_partition] = look_at(disk, path)
    return FoundLogs(
        directories=tuple(directories),
        identity=identity,
        logs=logs,
        clean=all(disk.size(f"{directory}/{clean_shutdown.FILE_NAME}") is not None for directory in directories),
        cleaned=frozenset(topic_partition for directory in directories for topic_partition in _cleaned(disk, directory)),
    )


def look_at(disk: Disk, path: str) -> FoundLog:
    """One partition's directory."""
    offsets = [each[0] for each in map(parse_name, disk.names(path)) if each is not None and each[1:] == (SNAPSHOT, "")]
    metadata = _small(disk, f"{path}/{PARTITION_METADATA}", 1024)
    producer_id, open_transactions = -1, 0
    if offsets:
        try:
            for state in parse_snapshot(_small(disk, file_path(path, max(offsets), SNAPSHOT)) or b""):
                producer_id = max(producer_id, state.producer_id)
                open_transactions += state.txn_first_offset >= 0
        except CorruptRecords:
            pass  # the broker makes it anew, and says so
    return FoundLog(
        directory=path,
        topic_id=NULL_TOPIC_ID if metadata is None else parse_metadata(metadata, f"{path}/{PARTITION_METADATA}"),
        leader_epoch=_last_epoch(disk, f"{path}/{LEADER_EPOCHS}"),
        producer_id_max=producer_id,
        open_transactions=open_transactions,
    )


def _last_epoch(disk: Disk, path: str) -> int:
    content = _small(disk, path)
    try:
        epochs = [checkpoints.number(epoch, 0, 2**31 - 1) for epoch, _ in checkpoints.parse_lines(content or b"", 2)]
    except MalformedCheckpoint as error:
        raise CommandFailed(f"{path}: {error}; move it away, and the broker takes the epochs from the records when it starts") from error
    return max(epochs, default=-1)


def _cleaned(disk: Disk, directory: str) -> Iterator[TopicPartition]:
    content = _small(disk, f"{directory}/{checkpoints.CLEANER_OFFSETS}")
    try:
        yield from checkpoints.parse_offsets(content or b"")
    except MalformedCheckpoint:
        return  # it only makes cleaning quicker


def _small(disk: Disk, path: str, size_max: int = SMALL_FILE_MAX) -> bytes | None:
    size = disk.size(path)
    if size is not None and size > size_max:
        raise StorageError(f"{path} has {size} bytes, which no broker writes: is this a log directory?")
    return disk.read(path)
