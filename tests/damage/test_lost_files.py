"""A closed segment's file is lost, and a rename finds no space, while the broker runs: it says so, and loses nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from tests.metrics.scraping import Scrape
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, fetch_request, produce
from tests.support.records import Sample
from tests.support.server import Server
from tests.support.waiting import until

TOPIC, COUNT, STORAGE_ERROR = "t", 60, 56
ROLLING = {"log.segment.bytes": "4000", "log.index.interval.bytes": "200", "log.segment.delete.delay.ms": "0"}


def value(number: int) -> bytes:
    return b"%d" % number + bytes(300)


def send(connection: RawConnection, numbers: range, partition: int = 0) -> None:
    for number in numbers:
        data = batch([Sample(b"k", value(number), (), 1_700_000_000_000 + number)])
        assert produce(connection, TOPIC, data, partition=partition).error_code == 0


def read(connection: RawConnection, offset: int, partition: int = 0) -> tuple[list[int], int]:
    """The offsets from `offset` to the end, whose values are right, and the error that ended them, 0 for none."""
    found: list[int] = []
    while True:
        request = fetch_request(TOPIC, offset)
        request.topics[0].partitions[0].partition = partition
        answer = connection.call(request, 11).responses[0].partitions[0]
        if answer.error_code or not answer.records:
            return found, int(answer.error_code)
        batches = MemoryRecords(bytes(answer.records))
        while batches.has_next():
            part = batches.next_batch()
            assert part.validate_crc()
            for record in part:
                assert record.value == value(record.offset)
                if record.offset >= offset:
                    found.append(record.offset)
        offset = found[-1] + 1


def test_the_file_of_a_closed_segment_is_lost(start_broker: Callable[..., Server], tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    server = start_broker(ROLLING | {"txbroker.metrics.port": "0", "log.dirs": ",".join(map(str, paths))})
    create_topic(server, TOPIC, 4, {"retention.ms": "-1"})
    victim = next(number for number in range(4) if (paths[1] / f"{TOPIC}-{number}").is_dir())  # the metadata is in the first directory
    outside = next(number for number in range(4) if (paths[0] / f"{TOPIC}-{number}").is_dir())
    with RawConnection(server.address) as connection:
        send(connection, range(COUNT), victim)
        send(connection, range(COUNT), outside)
    server.restart()  # its segments are closed, and no file of them is open
    segments = sorted((paths[1] / f"{TOPIC}-{victim}").glob("*.log"))
    lost, after = segments[2:4]
    start, end = int(lost.stem), int(after.stem)
    lost.unlink()
    with RawConnection(server.address) as connection:
        assert read(connection, 0, victim) == (list(range(start)), STORAGE_ERROR)
        assert read(connection, start, victim) == ([], STORAGE_ERROR)
        assert read(connection, 0, outside) == (list(range(COUNT)), 0)
        assert not lost.exists(), "nothing is made in its place"
        assert f"cannot open {lost}" in server.log()
        assert Scrape(server)("txbroker_missing_files_total") == 1
        server.kill()
    for _ in range(2):
        before = server.log_size()
        server.start()
        assert f"the records from offset {start} to {end - 1} are missing: {lost} is gone" in server.log(before)
        assert Scrape(server)("txbroker_missing_records") == end - start
        with RawConnection(server.address) as connection:
            assert read(connection, 0, victim) == ([*range(start), *range(end, COUNT)], 0)
            assert read(connection, 0, outside) == (list(range(COUNT)), 0)
        assert server.stop() == 0
        assert not lost.exists()
    command = [sys.executable, "-m", "txbroker", "log"]
    verified = subprocess.run([*command, "verify", str(paths[1])], capture_output=True, text=True, cwd=CHECKOUT)
    assert verified.returncode == 1
    assert f"the records from offset {start} to {end - 1} are missing" in verified.stdout
    repaired = subprocess.run([*command, "repair", str(paths[1]), "--yes"], capture_output=True, text=True, cwd=CHECKOUT)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    before = server.log_size()
    server.start()
    assert "are missing" not in server.log(before)
    assert server.stop() == 0


@pytest.fixture
def no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """While this file exists, every second rename that marks a file as deleted finds no space, in brokers that start from now on."""
    control, patches = tmp_path / "no space", tmp_path / "patches"
    patches.mkdir()
    (patches / "sitecustomize.py").write_text(f"""
import errno, itertools, os
rename, numbers = os.rename, itertools.count(1)
def limited(old, new, **options):
    if str(new).endswith(".deleted") and os.path.exists({str(control)!r}) and next(numbers) % 2 == 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), old)
    return rename(old, new, **options)
os.rename = limited
""")
    environment = BrokerProcess._environment
    monkeypatch.setattr(BrokerProcess, "_environment", lambda self: {**environment(self), "PYTHONPATH": f"{patches}:{CHECKOUT}"})
    control.touch()
    yield control


def test_a_rename_finds_no_space_in_the_middle_of_a_deletion(start_broker: Callable[..., Server], no_space: Path) -> None:
    server = start_broker(ROLLING | {"log.retention.check.interval.ms": "100", "log.retention.bytes": "4000"})
    create_topic(server, TOPIC, 1, {"retention.ms": "-1"})
    with RawConnection(server.address) as connection:
        send(connection, range(COUNT))
        until(lambda: server.log().count("No space left on device; the log directory") > 1, "retention has failed twice")
        assert read(connection, 0) == (list(range(COUNT)), 0)
        send(connection, range(COUNT, COUNT + 5))
        directory = server.partition_directory(TOPIC)
        assert read(connection, 0) == (list(range(COUNT + 5)), 0)
        server.kill()
    server.start()
    assert "missing" not in server.log()
    with RawConnection(server.address) as connection:
        assert read(connection, 0) == (list(range(COUNT + 5)), 0)
        no_space.unlink()
        until(lambda: not (directory / f"{0:020d}.log").exists(), "retention deletes segments")
        send(connection, range(COUNT + 5, COUNT + 10))
        kept, error = read(connection, COUNT)
        assert (kept[-1], error) == (COUNT + 9, 0)
    assert server.stop() == 0
