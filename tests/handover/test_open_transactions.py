"""One transaction that begins on Apache Kafka 3.9, goes on with txbroker and is committed on Kafka again, by the same producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from tests.cli.commands import run
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess
from tests.support.raw_admin import create_topic
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process
TOPIC = "payments"
FEW = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "2"}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaOldProcess]:
    server = KafkaOldProcess(tmp_path / "kafka", {"log.dirs": str(tmp_path / "logs"), **FEW})
    yield server
    server.close()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path / "ours", {"log.dirs": str(tmp_path / "logs"), **FEW})
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log_tail()


def read(address: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "isolation.level": "read_committed"})
    consumer.assign([Place(TOPIC, 0, 0)])
    values: list[str] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        return len(values) >= count

    until(enough, f"{count} values are read")
    consumer.close()
    return values


def test_an_open_transaction_goes_from_kafka_to_txbroker_and_back(kafka: KafkaOldProcess, ours: BrokerProcess, tmp_path: Path) -> None:
    kafka.start()
    create_topic(kafka, TOPIC)
    places = ("--log-dirs", str(tmp_path / "logs"), "--zookeeper", kafka.zookeeper)
    sender = Producer({"bootstrap.servers": kafka.address, "transactional.id": "payer", "transaction.timeout.ms": 900_000, "linger.ms": 0,
                       "reconnect.backoff.max.ms": 500, "log_level": 0})  # fmt: skip
    sender.init_transactions(PATIENCE_S)
    sender.begin_transaction()
    sender.produce(TOPIC, b"on kafka")
    assert sender.flush(PATIENCE_S) == 0
    kafka.stop()

    run("import", *places)
    ours.port = kafka.port
    ours.start()
    sender.produce(TOPIC, b"on txbroker")
    assert sender.flush(PATIENCE_S) == 0
    sender.commit_transaction(PATIENCE_S)
    assert read(ours.address, 2) == ["on kafka", "on txbroker"]
    sender.begin_transaction()
    sender.produce(TOPIC, b"begun on txbroker")
    assert sender.flush(PATIENCE_S) == 0
    ours.stop()

    run("export", *places, "--yes")
    kafka.start()
    sender.produce(TOPIC, b"committed on kafka")
    sender.commit_transaction(PATIENCE_S)
    assert read(kafka.address, 4) == ["on kafka", "on txbroker", "begun on txbroker", "committed on kafka"]
