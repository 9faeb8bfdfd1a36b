"""Several log directories on real file systems: placement of partitions, and a full directory beside others with space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, TopicPartition

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, delete_records
from tests.support.raw_log import batch, produce
from tests.support.records import BASE_TIMESTAMP, Sample
from tests.support.server import Server
from tests.support.small_disk import SMALL_MIB, ballast, small_disk
from tests.support.waiting import PATIENCE_S, until

TOPIC, PARTITIONS = "spread", 4
STORAGE_ERROR = 56
VALUE = os.urandom(20_000)
# Frequent rolls, checkpoints and flushes.
BUSY = ON | {
    "log.segment.bytes": "300000",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture
def small_directory(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    with small_disk(tmp_path / "small") as directory:
        yield directory


def spread(server: Server, small_directory: Path) -> tuple[int, int]:
    """Create a topic; two of its partitions: one in the small directory, one in the other."""
    create_topic(server, TOPIC, PARTITIONS, {"retention.ms": "-1"})
    inside = {p for p in range(PARTITIONS) if (small_directory / f"{TOPIC}-{p}").is_dir()}
    outside = set(range(PARTITIONS)) - inside
    assert len(inside) == len(outside) == PARTITIONS // 2, "new partitions are created in the directory with the fewest"
    return min(inside), min(outside)


def send(connection: RawConnection, partition: int, number: int) -> Any:
    sample = Sample(b"%d" % number, VALUE, (), BASE_TIMESTAMP)
    return produce(connection, TOPIC, batch([sample]), partition=partition)


def stored(server: Server, partition: int) -> list[tuple[int, bytes]]:
    """The offsets and keys of all records that a consumer reads."""
    with KafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest", fetch_max_wait_ms=10) as consumer:
        assigned = TopicPartition(TOPIC, partition)
        consumer.assign([assigned])
        end = consumer.end_offsets([assigned])[assigned]
        found: list[tuple[int, bytes]] = []
        while consumer.position(assigned) < end:
            for records in consumer.poll(1000).values():
                assert all(record.value == VALUE for record in records)
                found += [(record.offset, record.key) for record in records]
        return found


def test_a_full_directory_refuses_writes_until_it_has_space(
    start_broker: Callable[..., Server], small_directory: Path, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    server = start_broker(BUSY | {"log.dirs": f"{large},{small_directory}"})
    full, other = spread(server, small_directory)
    acknowledged: list[tuple[int, bytes]] = []
    number = 0
    with RawConnection(server.address) as connection:
        for _ in range(3):
            refused = 0
            heavy = None
            while refused < 30:  # the disk stays full for many requests
                answer = send(connection, full, number)
                if answer.error_code:
                    assert answer.error_code == STORAGE_ERROR
                    refused += 1
                    heavy = heavy or ballast(small_directory)  # the space that smaller records could use
                else:
                    acknowledged.append((answer.base_offset, b"%d" % number))
                    heavy = heavy or (ballast(small_directory) if number % 40 == 39 else None)
                number += 1
                assert send(connection, other, number).error_code == 0
            assert heavy is not None
            assert stored(server, full) == acknowledged
            assert Scrape(server)("txbroker_refusals_total", reason="no_space_for_logs") > 0
            assert Scrape(server)("kafka_log_logmanager_offlinelogdirectorycount") == 0
            heavy.unlink()
            answer = send(connection, full, number)
            assert answer.error_code == 0
            acknowledged.append((answer.base_offset, b"%d" % number))
            number += 1
        assert [offset for offset, _ in acknowledged] == list(range(len(acknowledged)))
    server.kill()
    server.start()
    assert stored(server, full) == acknowledged
    written = small_directory / "recovery-point-offset-checkpoint"
    until(lambda: f"{TOPIC} {full} " in written.read_text(), "checkpoints are written again")
    server.restart()
    assert stored(server, full) == acknowledged


def test_deleting_records_frees_space_on_a_full_disk(start_broker: Callable[..., Server], small_directory: Path, tmp_path: Path) -> None:
    server = start_broker(BUSY | {"log.dirs": f"{tmp_path / 'large'},{small_directory}"})
    full, _ = spread(server, small_directory)
    with RawConnection(server.address) as connection:
        answers = [send(connection, full, number) for number in range(2 * SMALL_MIB * 50)]
        kept = sum(answer.error_code == 0 for answer in answers)
        assert 0 < kept < len(answers)
        assert {answer.error_code for answer in answers} == {0, STORAGE_ERROR}
        delete_records(server, TOPIC, kept, partition=full)
        until(lambda: send(connection, full, 0).error_code == 0, "the segments below the start are deleted")
    assert [key for _, key in stored(server, full)][-1] == b"0"


def test_a_producer_retries_until_there_is_space(start_broker: Callable[..., Server], small_directory: Path, tmp_path: Path) -> None:
    server = start_broker(BUSY | {"log.dirs": f"{tmp_path / 'large'},{small_directory}"})
    full, _ = spread(server, small_directory)
    heavy = ballast(small_directory)
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "batch.num.messages": 5})
    for _ in range(50):
        producer.produce(TOPIC, VALUE, partition=full, on_delivery=lambda error, _: outcomes.append(error))
    until(lambda: producer.poll(0.05) is not None and Scrape(server)("txbroker_refusals_total", reason="no_space_for_logs") > 2, "refusals")
    assert outcomes == []
    heavy.unlink()
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None] * 50
    assert [offset for offset, _ in stored(server, full)] == list(range(50))
