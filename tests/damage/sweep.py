"""Every file of a log directory is damaged in every way before a start: only written records are read, and undamaged logs are complete."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.log.support import append as append_batch
from tests.log.support import end_transaction, rows
from tests.log_directories.support import NOW, T0, T1, U0, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.errors import CorruptRecords, StartError, StorageError
from txbroker.log.log import Log
from txbroker.names import TopicPartition
from txbroker.wire.compression import Codec

V0 = TopicPartition("v", 0)
START = 3  # the log start offset of each log
CONFIG = {"segment_bytes": 1500, "index_interval_bytes": 100, "retention_ms": -1}

Rows = dict[TopicPartition, list[tuple[int, int, bytes | None, bytes | None]]]
Damage = Callable[[DiskPath, random.Random], None]


def cut(path: DiskPath, chance: random.Random) -> None:
    size = path.size()
    path.truncate(chance.randrange(size) if size else 0)


def emptied(path: DiskPath, chance: random.Random) -> None:
    path.write_bytes(b"")


def zeroed(path: DiskPath, chance: random.Random) -> None:
    """The whole file, or its end: what a file system leaves when it wrote the file's length and not its data."""
    data = path.read_bytes()
    start = chance.choice([0, chance.randrange(len(data) + 1)])
    path.write_bytes(data[:start] + bytes(len(data) - start))


def flipped(path: DiskPath, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def extended(path: DiskPath, chance: random.Random) -> None:
    path.disk.append(str(path), chance.choice([bytes(4096), chance.randbytes(100)]))


def removed(path: DiskPath, chance: random.Random) -> None:
    path.unlink()


def unreadable(path: DiskPath, chance: random.Random) -> None:
    """Replace the file by a directory: not even root can read or write it."""
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Damage, ...] = (cut, emptied, zeroed, flipped, extended, removed, unreadable)


def fill(log: Log, count: int, worker: Worker) -> None:
    for number in range(count):
        worker.run()  # a full segment stays active until a worker has synced its name
        codec = (Codec.NONE, Codec.GZIP)[number % 2]
        append_batch(log, b"%d" % number, bytes(30), timestamp=NOW + number, codec=codec, leader_epoch=number // 20)
        if number % 5 == 0:
            append_batch(log, b"t%d" % number, producer_id=5, producer_epoch=0, base_sequence=number // 5, leader_epoch=number // 20)
    append_batch(log, b"gone", producer_id=6, producer_epoch=0, base_sequence=0, transactional=True, leader_epoch=9)
    end_transaction(log, 6, committed=False)


def make_template(root: DiskPath) -> Rows:
    """Write two directories with two logs each and all kinds of files, cleanly closed; the records written."""
    broker = DirectoryHarness(root, 2, **CONFIG)
    broker.start()
    written: Rows = {}
    for topic_partition in (T0, U0, T1, V0):
        log = broker.create(topic_partition)
        fill(log, 60, broker.worker)
        written[topic_partition] = rows(log)
        log.advance_start(START)
    broker.directories.checkpoints.write_high_watermarks({tp: len(found) for tp, found in written.items()})
    broker.worker.run()
    broker.stop()
    return written


def files(root: DiskPath) -> list[str]:
    """The files of the first directory, and of one log in it: those of a closed and of the active segment, and the others."""
    log = sorted(path.name for path in (root / "a" / "t-0").iterdir() if path.is_file())
    bases = sorted({name[:20] for name in log if name.endswith(".log")})
    assert len(bases) >= 3
    wanted = [name for name in log if name[:20] in (bases[1], bases[-2], bases[-1]) or not name[:20].isdigit()]
    wanted += [name for name in log if name.endswith((".snapshot", ".txnindex"))][-2:]
    others = sorted(path.name for path in (root / "a").iterdir() if path.is_file())
    found = sorted({f"t-0/{name}" for name in wanted}) + [name for name in others if name != ".lock"]
    assert len(found) > 14
    return found


def seen(log: Log) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """The records that a client can read that verifies CRCs."""
    try:
        yield from rows(log)
    except CorruptRecords:
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                yield from (row for row in rows(log, offset, end=offset + 1) if row[0] == offset)
            except CorruptRecords:
                return
            offset += 1


def check(root: DiskPath, written: Rows, name: str) -> str:
    """Start on the damaged directory and check all logs; the outcome in one word."""
    broker = DirectoryHarness(root, 2, **CONFIG)
    try:
        directories = broker.start()
    except StartError as error:
        assert "meta.properties" in str(error), error
        return "refused"
    outcome = "whole"
    for topic_partition, expected in written.items():
        log = directories.get(topic_partition)
        try:
            if log is None:
                raise StorageError("offline")
            found = list(seen(log))
            assert append_batch(log, b"new", leader_epoch=10).first_offset == log.log_end_offset - 1
        except StorageError as error:
            if log is not None:
                directories.fail(log, error)
            assert topic_partition in (T0, T1), f"damage to {name} affects {topic_partition}: {error}"
            outcome = "offline"
            continue
        kept = [row for row in expected if row[0] >= START]
        if topic_partition == T0:
            # The CRC of a batch does not cover its offset and epoch: a record may be read at another offset, as in Kafka.
            known = {row[1:] for row in expected}
            wrong = [row for row in found if row[1:] not in known]
            assert not wrong, f"{name}: {wrong[0]} was never written"
            if [row for row in found if row[0] >= START] != kept:
                outcome = "less"
        elif topic_partition == T1 and name == "log-start-offset-checkpoint":
            # Lines of digits without a checksum, as in Kafka: a changed number is used.
            assert found == expected[len(expected) - len(found) :], f"damage to {name} affects {topic_partition}"
        elif topic_partition == T1 and not name.startswith("t-0/"):
            # Without the checkpoint the log starts where its files start.
            assert [row for row in found if row[0] >= START] == kept, f"damage to {name} affects {topic_partition}"
        else:
            assert found == kept, f"damage to {name} affects {topic_partition}"
    assert ("offline" in outcome) == bool(directories.offline()), "logs are offline in the offline directory only"
    broker.worker.run()
    broker.stop()
    return outcome


def sweep(root: DiskPath, written: Rows, scratch: DiskPath, damage: Damage, *, clean: bool, seed: str) -> dict[str, str]:
    """Damage each file in this way before a start, after a clean stop or a kill; the outcomes by file."""
    chance = random.Random(seed)
    outcomes: dict[str, str] = {}
    for number, name in enumerate(files(root)):
        copy = root.copy_to(scratch / f"{number}")
        if not clean:
            for directory in "ab":
                (copy / directory / ".kafka_cleanshutdown").unlink()
        path = copy / "a" / name
        if path.exists():
            damage(path, chance)
            outcomes[name] = check(copy, written, name)
        copy.remove_tree()
    return outcomes
