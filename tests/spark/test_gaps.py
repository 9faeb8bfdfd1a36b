"""Why offsets have no record: compacted, aborted, a marker, expired, or no reason at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.spark.kafka_samples import serve
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.server import Server
from txbroker.spark.brokers import Brokers
from txbroker.spark.gaps import GapCounts, classify
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.wire.batch import read_header
from txbroker.wire.records import build, read_records

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka's own log directories, with aborted transactions and compacted topics."""
    server = serve(tmp_path_factory.mktemp("samples") / "broker")
    yield server
    server.close()


def counts(server: Server, topic: str, *gaps: tuple[int, int], level: str = "read_committed") -> GapCounts:
    ((_, _, found),) = classify(Brokers.of(server.address), level, [OffsetRange(topic, 0, *gap) for gap in gaps])
    return found


def test_transactions_of_apache_kafka(samples: BrokerProcess) -> None:
    """All offsets as one gap: no reason explains why the records that a consumer gets are not in the table."""
    assert counts(samples, "s-txn", (0, 100)) == GapCounts(aborted=20, control=20, unexplained=60, first_unexplained=0)
    assert counts(samples, "s-txn", (0, 110), level="read_uncommitted") == GapCounts(control=20, unexplained=90, first_unexplained=0)
    # From the middle of an aborted transaction on, without the batches before it.
    assert counts(samples, "s-txn", (12, 13), (40, 41), (48, 49), (75, 76)) == GapCounts(aborted=3, control=1)


def test_a_log_that_apache_kafka_compacted(samples: BrokerProcess) -> None:
    found = counts(samples, "s-compact", (0, 3352))
    assert found[:5] == (2950, 0, 1, 0, 401)


def test_a_topic_that_is_compacted_and_one_that_is_no_more(broker: Server, name: str) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("compaction on request is in no release of Apache Kafka")
    create_topic(broker, name, configs={**KEEP, "cleanup.policy": "compact"})
    produce(broker, name, 20)
    run("log-cleaner", "--bootstrap-server", broker.address, "--compact-now", name, "--roll", "--wait")
    produce(broker, name, 10)
    kept = counts(broker, name, (0, 30))
    assert kept.compacted == 18 and kept.unexplained == 12, "two keys of the first 20 records, and the ten after them"
    assert kept.first_unexplained == 18
    assert counts(broker, name, (0, 18)) == GapCounts(compacted=18)

    config = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", "cleanup.policy=delete")
    run("configs", "--bootstrap-server", broker.address, *config)
    assert counts(broker, name, (0, 18)) == GapCounts(unexplained=18, first_unexplained=0)


def test_expired_offsets(broker: Server, name: str) -> None:
    create_topic(broker, name)
    produce(broker, name, 20)
    delete_records(broker, name, 12)
    assert counts(broker, name, (3, 5), (10, 14)) == GapCounts(expired=4, unexplained=2, first_unexplained=12)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_records_that_disappeared_from_a_segment(start_broker: Callable[..., BrokerProcess], name: str, policy: str) -> None:
    """One record is cut out of the second batch and the third batch is gone, above the cleaner's checkpoint."""
    server = start_broker()
    create_topic(server, name, configs={**KEEP, "cleanup.policy": policy})
    for _ in range(4):
        produce(server, name, 5)
    server.stop()
    cut(server.data / f"{name}-0")
    server.start()
    # Apache Kafka does not show how far its cleaner has come: its compacted topics may have holes everywhere.
    known = server.kind == BrokerProcess.kind or policy == "delete"
    expected = GapCounts(unexplained=6, first_unexplained=7) if known else GapCounts(compacted=6)
    assert counts(server, name, (7, 8), (10, 15)) == expected
    there = GapCounts(unexplained=20, first_unexplained=0) if known else GapCounts(compacted=6, unexplained=14, first_unexplained=0)
    assert counts(server, name, (0, 20)) == there


def cut(directory: Path) -> None:
    """Remove record 7 and the batch of 10 to 14 from the only segment."""
    (segment,) = directory.glob("*.log")
    data, batches, position = segment.read_bytes(), {}, 0
    while position < len(data):
        header = read_header(data, position)
        batches[header.base_offset] = data[position : position + header.size]
        position += header.size
    assert sorted(batches) == [0, 5, 10, 15]
    header = read_header(batches[5])
    kept = [record for record in read_records(batches[5], 0, header, 10_000) if record.offset != 7]
    batches[5] = build(kept, base_offset=5, leader_epoch=header.leader_epoch)
    segment.write_bytes(batches[0] + batches[5] + batches[15])
    for index in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        index.unlink()


def produce(server: Server, topic: str, count: int) -> None:
    """One batch of two keys."""
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=10_000)
    for i in range(count):
        producer.send(topic, b"value %d" % i, b"key %d" % (i % 2), partition=0)
    producer.close()
