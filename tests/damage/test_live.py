"""Files are damaged while the broker runs: it returns KAFKA_STORAGE_ERROR for what it cannot use, and serves the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords

from tests.support.cache import CHECKOUT
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, fetch_request, produce
from tests.support.records import Sample
from tests.support.server import Server
from tests.support.waiting import until

TOPIC, PARTITIONS, COUNT = "t", 4, 40
STORAGE_ERROR, CORRUPT_MESSAGE = 56, 2
ROLLING = {"log.segment.bytes": "4000", "log.index.interval.bytes": "200", "log.segment.delete.delay.ms": "0"}

Damage = Callable[[Path], None]


def active(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def cut(directory: Path) -> None:
    with active(directory).open("r+b") as file:
        file.truncate(active(directory).stat().st_size // 2)


def zeroed(directory: Path) -> None:
    with active(directory).open("r+b") as file:
        file.write(bytes(active(directory).stat().st_size))


def flipped(directory: Path) -> None:
    """Flip a bit of the first record's value. The CRC does not cover the fields before it: offset, length and epoch, as in Kafka."""
    with min(directory.glob("*.log")).open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 4]))


def length_flipped(directory: Path) -> None:
    """Flip the sign bit of the first batch's length, by which the broker finds the batches after it."""
    with min(directory.glob("*.log")).open("r+b") as file:
        file.seek(8)
        byte = file.read(1)[0]
        file.seek(8)
        file.write(bytes([byte ^ 0x80]))


def first_zeroed(directory: Path) -> None:
    path = min(directory.glob("*.log"))
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def removed(directory: Path) -> None:
    shutil.rmtree(directory)


def replaced(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_bytes(b"no directory")


def all_removed(directory: Path) -> None:
    shutil.rmtree(directory.parent)


def value(partition: int, number: int) -> bytes:
    return b"%d of %d" % (number, partition) + bytes(300)


def send(connection: RawConnection, partition: int, number: int) -> int:
    sample = Sample(b"k", value(partition, number), (), 1_700_000_000_000 + number)
    return int(produce(connection, TOPIC, batch([sample]), partition=partition).error_code)


def read(connection: RawConnection, partition: int, end: int) -> int:
    """Read as a client that verifies CRCs: only what was written may be read. The error at the end, 0 for none."""
    offset = 0
    while offset < end:
        request = fetch_request(TOPIC, offset)
        request.topics[0].partitions[0].partition = partition
        answer = connection.call(request, 11).responses[0].partitions[0]
        if answer.error_code:
            return int(answer.error_code)
        before, batches = offset, MemoryRecords(bytes(answer.records or b""))
        while batches.has_next():
            try:
                found = batches.next_batch()
            except CorruptRecordError:
                return CORRUPT_MESSAGE
            if not found.validate_crc():
                return CORRUPT_MESSAGE
            for record in found:
                if record.offset >= offset:
                    assert record.value == value(partition, record.offset)
                    offset = record.offset + 1
        if offset == before:
            return CORRUPT_MESSAGE
    return 0


@pytest.mark.parametrize("damage", [cut, zeroed, flipped, removed, replaced, all_removed], ids=lambda damage: damage.__name__)
def test_damage_while_it_runs(start_broker: Callable[..., Server], tmp_path: Path, damage: Damage) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    server = start_broker(ROLLING | {"log.dirs": ",".join(map(str, paths))})
    create_topic(server, TOPIC, PARTITIONS, {"retention.ms": "-1"})
    inside = sorted(p for p in range(PARTITIONS) if (paths[1] / f"{TOPIC}-{p}").is_dir())  # the metadata is in the first one
    outside = sorted(set(range(PARTITIONS)) - set(inside))
    victim, beside = inside
    with RawConnection(server.address) as connection:
        for number in range(COUNT):
            assert [send(connection, partition, number) for partition in range(PARTITIONS)] == [0] * PARTITIONS
        damage(paths[1] / f"{TOPIC}-{victim}")
        with RawConnection(server.address) as reader:
            if damage is cut:
                # Part of the response was sent before the broker found the file too short, so it closes the connection.
                with pytest.raises(ConnectionEnded):
                    read(reader, victim, COUNT)
            else:
                assert read(reader, victim, COUNT) in (0, CORRUPT_MESSAGE, STORAGE_ERROR)
        # The damaged log rolls, which needs its directory; other logs are not affected.
        codes = set()
        for number in range(COUNT, 2 * COUNT):
            codes.add(send(connection, victim, number))
            assert [send(connection, partition, number) for partition in outside] == [0, 0]
        offline = STORAGE_ERROR in codes
        assert codes <= {0, STORAGE_ERROR}
        assert offline == (damage in (cut, removed, replaced, all_removed))
        for partition in outside:
            assert read(connection, partition, 2 * COUNT) == 0
        if offline:
            # As in Kafka, all logs of a failed directory are offline.
            until(lambda: send(connection, beside, COUNT) == STORAGE_ERROR, "the directory is offline")
            assert read(connection, beside, 1) == STORAGE_ERROR
        else:
            assert send(connection, beside, COUNT) == 0
            assert read(connection, beside, COUNT + 1) == 0
    assert server.stop() == 0


@pytest.mark.parametrize("damage", [length_flipped, first_zeroed, flipped], ids=lambda damage: damage.__name__)
def test_the_log_names_the_damage_that_a_fetch_finds(start_broker: Callable[..., Server], damage: Damage) -> None:
    """At the first, second, fourth and eighth of the same fetches. As in Kafka, a fetch does not check CRCs: its client does."""
    server = start_broker(ROLLING)
    create_topic(server, TOPIC, 2, {"retention.ms": "-1"})
    with RawConnection(server.address) as connection:
        for number in range(COUNT):
            assert [send(connection, partition, number) for partition in range(2)] == [0, 0]
        server.restart()  # it remembers no positions of batches
    directory = server.partition_directory(TOPIC, 1)
    path = min(directory.glob("*.log"))
    damage(directory)
    with RawConnection(server.address) as connection:
        before = server.log_size()
        request = fetch_request(TOPIC, 0)
        request.topics[0].partitions[0].partition = 1
        codes = [connection.call(request, 11).responses[0].partitions[0].error_code for _ in range(9)]
        lines = [line for line in server.log(before).splitlines() if f"{TOPIC}-1 cannot be read from offset 0 on" in line]
        if damage is flipped:
            assert (set(codes), lines) == ({0}, [])
            assert read(connection, 1, COUNT) == CORRUPT_MESSAGE, "the client finds it"
        else:
            assert set(codes) == {CORRUPT_MESSAGE}
            assert len(lines) == 4, lines
            for times, line in zip(("1 time", "2 times", "4 times", "8 times"), lines, strict=True):
                assert f"({times} so far): {path}: there is no record batch at position 0; `txbroker log verify`" in line
        assert read(connection, 0, COUNT) == 0
    verified = subprocess.run(
        [sys.executable, "-m", "txbroker", "log", "verify", str(directory)], capture_output=True, text=True, cwd=CHECKOUT
    )
    assert verified.returncode == 1
    assert path.name in verified.stdout
    assert server.stop() == 0
