"""Spark's Kafka source and sink on a broker: batch and streaming, as its guide describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, delete_records
from tests.support.raw_transactions import latest
from tests.support.records import BASE_TIMESTAMP, Received, Sample, assert_same, numbered, samples
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3
COUNT = 300


def produce(server: Server, topic: str, records: list[Sample], partitions: int = PARTITIONS) -> list[tuple[int, Sample]]:
    """Send records round robin over the partitions, in several batches."""
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=5, batch_size=2000)
    placed = [(i % partitions, record) for i, record in enumerate(records)]
    for partition, record in placed:
        producer.send(topic, record.value, record.key, list(record.headers), partition, record.timestamp)
    producer.close()
    return placed


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    """A topic of three partitions with a hundred numbered records each; record i has time BASE_TIMESTAMP + 100 i."""
    create_topic(broker, name, PARTITIONS)
    produce(broker, name, numbered(COUNT))
    return name


def source(reader: Any, server: Server, topic: str, **options: object) -> Any:
    """spark.read or spark.readStream of a topic."""
    reader = reader.format("kafka").option("kafka.bootstrap.servers", server.address)
    if not {"assign", "subscribePattern"} & options.keys():
        reader = reader.option("subscribe", topic)
    for key, value in options.items():
        reader = reader.option(key.replace("__", "."), value)
    return reader.load()


def numbers(frame: Any) -> list[int]:
    """The numbers of numbered records, sorted."""
    return sorted(int(bytes(row.value).split(b" ")[0]) for row in frame.select("value").collect())


def test_everything_of_a_record_arrives(spark: Any, broker: Server, name: str) -> None:
    create_topic(broker, name, PARTITIONS)
    sent = produce(broker, name, samples(202, seed=8))
    rows = source(spark.read, broker, name, includeHeaders="true").orderBy("partition", "offset").collect()
    found = [
        Received(row.partition, row.offset, round(row.timestamp.timestamp() * 1000), _bytes(row.key), _bytes(row.value),
                 tuple((header.key, _bytes(header.value)) for header in row.headers or ()))
        for row in rows
    ]
    assert_same(sent, found)
    assert {(row.topic, row.timestampType) for row in rows} == {(name, 0)}


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_starting_and_ending_offsets(spark: Any, broker: Server, topic: str) -> None:
    start = json.dumps({topic: {"0": 40, "1": -2, "2": 90}})
    end = json.dumps({topic: {"0": 60, "1": 10, "2": -1}})
    frame = source(spark.read, broker, topic, startingOffsets=start, endingOffsets=end)
    expected = [i * 3 for i in range(40, 60)] + [i * 3 + 1 for i in range(10)] + [i * 3 + 2 for i in range(90, 100)]
    assert numbers(frame) == sorted(expected)


def test_starting_and_ending_timestamps(spark: Any, broker: Server, topic: str) -> None:
    frame = source(spark.read, broker, topic, startingTimestamp=BASE_TIMESTAMP + 15_000, endingTimestamp=BASE_TIMESTAMP + 21_000)
    assert numbers(frame) == list(range(150, 210))
    times = json.dumps({topic: {str(p): BASE_TIMESTAMP + 20_000 + 1000 * p for p in range(PARTITIONS)}})
    frame = source(spark.read, broker, topic, startingOffsetsByTimestamp=times)
    assert numbers(frame) == [i for i in range(COUNT) if i * 100 >= 20_000 + 1000 * (i % 3)]


def test_assign_and_pattern(spark: Any, broker: Server, topic: str) -> None:
    frame = source(spark.read, broker, topic, assign=json.dumps({topic: [1]}))
    assert numbers(frame) == list(range(1, COUNT, 3))
    frame = source(spark.read, broker, topic, subscribePattern=f"{topic[:-1]}.")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {topic}


def test_min_partitions(spark: Any, broker: Server, topic: str) -> None:
    frame = source(spark.read, broker, topic, minPartitions=8)
    assert frame.rdd.getNumPartitions() >= 8
    assert numbers(frame) == list(range(COUNT))


def test_records_that_were_deleted(spark: Any, broker: Server, topic: str) -> None:
    delete_records(broker, topic, 30)
    kept = sorted(set(range(COUNT)) - set(range(0, 90, 3)))
    assert numbers(source(spark.read, broker, topic)) == kept
    start = json.dumps({topic: {"0": 0, "1": 0, "2": 0}})
    assert numbers(source(spark.read, broker, topic, startingOffsets=start, failOnDataLoss="false")) == kept
    with pytest.raises(Exception, match=r"[Oo]ut ?[Oo]f ?[Rr]ange|data loss|DATA_LOSS"):
        numbers(source(spark.read, broker, topic, startingOffsets=start, failOnDataLoss="true"))


def run_stream(frame: Any, output: Path, checkpoint: Path) -> list[int]:
    """Write what is available to Parquet; the rows of each batch that had any."""
    query = (frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").writeStream.format("parquet")
             .option("path", str(output)).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
    assert query.awaitTermination(PATIENCE_S)
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_a_stream_with_a_limit_and_a_restart(spark: Any, broker: Server, topic: str, tmp_path: Path) -> None:
    output, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def stream() -> Any:
        return source(spark.readStream, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=120)

    batches = run_stream(stream(), output, checkpoint)
    assert sum(batches) == COUNT
    assert len(batches) == 3
    assert max(batches) <= 120

    produce(broker, topic, numbered(90, start=COUNT))
    assert sum(run_stream(stream(), output, checkpoint)) == 90, "from the checkpoint on"
    assert run_stream(stream(), output, checkpoint) == []

    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as after a crash between the sink's commit and Spark's own
    last.with_name(f".{last.name}.crc").unlink()
    run_stream(stream(), output, checkpoint)
    rows = spark.read.parquet(str(output)).collect()
    assert len({(row.partition, row.offset) for row in rows}) == len(rows) == COUNT + 90


def test_read_committed(spark: Any, broker: Server, name: str, tmp_path: Path) -> None:
    """Nothing of an aborted transaction, and what follows the begin of an open one when that has ended; also in a stream that goes on."""
    create_topic(broker, name, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)

    def write(first: int) -> None:
        producer.begin_transaction()
        for number in range(first, first + 30):
            producer.produce(name, f"{number} ".encode(), partition=number % PARTITIONS)
        producer.flush(PATIENCE_S)

    def batch(level: str) -> list[int]:
        return numbers(source(spark.read, broker, name, kafka__isolation__level=level))

    def stream() -> int:
        frame = source(spark.readStream, broker, name, startingOffsets="earliest", kafka__isolation__level="read_committed")
        return sum(run_stream(frame, tmp_path / "out", tmp_path / "checkpoint"))

    write(0)
    producer.commit_transaction(PATIENCE_S)
    write(30)
    producer.abort_transaction(PATIENCE_S)
    write(60)
    committed = list(range(30))
    assert batch("read_committed") == committed and stream() == 30
    assert batch("read_uncommitted") == list(range(90))
    producer.commit_transaction(PATIENCE_S)
    committed += range(60, 90)
    with RawConnection(broker.address) as connection:
        for partition in range(PARTITIONS):
            until(lambda at=partition: latest(connection, name, partition=at) == 33, "the markers are written")  # type: ignore[misc]
    assert batch("read_committed") == committed and stream() == 30
    assert sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect()) == committed


def test_a_stream_from_a_timestamp(spark: Any, broker: Server, topic: str, tmp_path: Path) -> None:
    frame = source(spark.readStream, broker, topic, startingTimestamp=BASE_TIMESTAMP + 20_000)
    assert sum(run_stream(frame, tmp_path / "out", tmp_path / "checkpoint")) == 100


def test_the_sink(spark: Any, broker: Server, topic: str, name: str, tmp_path: Path) -> None:
    """A batch write with keys, headers and partitions, then a streaming write from one topic to another."""
    written = f"{name}-written"
    create_topic(broker, written, PARTITIONS)
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value", "CAST(id % 3 AS INT) AS partition",
                                        "array(named_struct('key', 'h', 'value', CAST('v' AS BINARY))) AS headers")
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.address).option("topic", written).option(
        "includeHeaders", "true").save()
    back = source(spark.read, broker, written, includeHeaders="true")
    assert numbers(back) == list(range(100))
    assert all(int(bytes(row.value)) % 3 == row.partition and row.headers[0].key == "h" for row in back.collect())

    copied = f"{name}-copied"
    create_topic(broker, copied, 2)
    query = (source(spark.readStream, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=150)
             .selectExpr("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
             .option("topic", copied).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    assert query.awaitTermination(PATIENCE_S)
    assert numbers(source(spark.read, broker, copied)) == list(range(COUNT))
