"""Several log directories on real file systems: where partitions go, and one directory that fills up while the others serve."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.server import Server
from tests.support.waiting import until

TOPIC, PARTITIONS = "spread", 4
SMALL_MIB = 8
VALUE = os.urandom(20_000)


@pytest.fixture
def small_directory(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "tmpfs", str(directory)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def produce(server: Server, partition: int, count: int) -> list[KafkaError | None]:
    """The outcome of each record."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.address, "message.timeout.ms": 5000, "log_level": 0})
    for _ in range(count):
        producer.produce(TOPIC, VALUE, partition=partition, on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
    producer.flush(30)
    return outcomes


def test_a_full_directory_goes_offline_and_the_others_serve_on(
    start_broker: Callable[..., Server], small_directory: Path, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    server = start_broker({"log.dirs": f"{large},{small_directory}"})
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    inside = {p for p in range(PARTITIONS) if (small_directory / f"{TOPIC}-{p}").is_dir()}
    outside = set(range(PARTITIONS)) - inside
    assert len(inside) == len(outside) == PARTITIONS // 2, "new partitions go where the fewest are"

    full, other = min(inside), min(outside)
    outcomes = produce(server, full, 2 * SMALL_MIB * 50)
    stored = sum(error is None for error in outcomes)
    assert 0 < stored < len(outcomes)
    assert all(error is None for error in produce(server, other, 20))

    def leaders() -> dict[int, int]:
        return {p: m.leader for p, m in admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions.items()}

    until(lambda: {p for p, leader in leaders().items() if leader == -1} == inside, "no leaders for what was in the full directory")
    assert str(small_directory) in server.log(0)

    server.stop()
    assert (large / ".kafka_cleanshutdown").exists()
    assert not (small_directory / ".kafka_cleanshutdown").exists(), "what failed was not closed whole"
    server.start()
    assert all(error is None for error in produce(server, other, 1))
