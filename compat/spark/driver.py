"""The driver of Spark's Kafka source and sink. kafka-python creates the topics, and is the other client for what Spark reads and writes."""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat.adapter import Unsupported, until
from compat.changing import move_leaders, restart_broker
from compat.kafka_python.driver import KafkaPython
from compat.matrix import CLIENTS, FEATURES
from compat.samples import BASE_TIMESTAMP, STEP_MS, Record, check_records, equal, sample_records
from compat.saying import attempt, introduce
from compat.simple import CODECS, ready_topic
from compat.spark.session import Spark, offsets

_LARGE_BYTES = 10_000_000
_ROOM_BYTES = 12_000_000
_SOME = 60
# Features that Spark's connector does not have.
_ABSENT = {
    "topics": "Spark neither creates nor lists topics",
    "eager": "Spark assigns partitions to its tasks itself",
    "cooperative": "Spark assigns partitions to its tasks itself",
    "static": "Spark is not a member of a group",
    "delete_records": "Spark does not delete records",
    "configs": "Spark does not describe configs",
    "groups": "Spark does not list groups",
    "reset": "Spark's offsets are in its checkpoint, not in a group",
    "topic_ids": "Spark does not show topic ids",
    "long_poll": "Spark fetches only up to offsets that it knows",
    **dict.fromkeys(("commit", "abort", "txn_offsets", "fencing"), "Spark's sink writes without transactions"),
    "read_committed": "Spark's sink writes without transactions; its source is tried with read_committed by tests/spark",
}


class _Bench:
    def __init__(self, spark: Spark) -> None:
        self.spark = spark
        self.plain = KafkaPython(spark.address)


def _codec(codec: str) -> Callable[[_Bench, str], None]:
    """Spark reads another client's compressed batches, and the other client and Spark read Spark's."""

    def feature(bench: _Bench, topic: str) -> None:
        written = f"{topic}-written"
        records = sample_records()
        ready_topic(bench.plain, topic)
        ready_topic(bench.plain, written)
        bench.plain.produce(topic, records, codec=codec)
        move_leaders(topic)
        check_records(bench.spark.read(topic), records)
        expected = bench.spark.write(written, records, kafka__compression__type=codec)
        check_records(bench.plain.read(written, len(expected)), expected)
        check_records(bench.spark.read(written), expected)

    return feature


def _acks(bench: _Bench, topic: str) -> None:
    ready_topic(bench.plain, topic)
    records = sample_records(66)
    expected = bench.spark.write(topic, records[:33], kafka__acks="1", kafka__enable__idempotence="false")
    move_leaders(topic)
    expected += bench.spark.write(topic, records[33:], kafka__acks="0", kafka__enable__idempotence="false")
    check_records(bench.plain.read(topic, len(expected)), expected)


def _idempotence(bench: _Bench, topic: str) -> None:
    ready_topic(bench.plain, topic)
    expected = bench.spark.write(topic, sample_records(990), kafka__enable__idempotence="true", kafka__batch__size="4000")
    move_leaders(topic)
    check_records(bench.spark.read(topic), expected)


def _stream(bench: _Bench, topic: str) -> None:
    """A stream reads all records, stops, and continues from its checkpoint; the offsets are Spark's, not a group's."""
    ready_topic(bench.plain, topic)
    records = sample_records(120)
    bench.plain.produce(topic, records[:90])
    equal(_run(bench, topic), [30, 30, 30], "records of each batch")
    move_leaders(topic)
    bench.plain.produce(topic, records[90:])
    equal(sum(_run(bench, topic)), 30, "records after the checkpoint")
    equal(_run(bench, topic), [], "records when there are no new ones")
    rows = bench.spark.session.read.parquet(str(bench.spark.place / topic / "out")).collect()
    places = sorted((record.partition, record.offset) for record in records)
    equal(sorted((row.partition, row.offset) for row in rows), places, "all records")


def _run(bench: _Bench, topic: str) -> list[int]:
    """Run a stream up to the end of the topic; the number of records in each non-empty batch."""
    place = bench.spark.place / topic
    frame = bench.spark.source(topic, stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    query = (frame.select("partition", "offset", "value").writeStream.format("parquet").option("path", str(place / "out"))
             .option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start())
    assert query.awaitTermination(100), "the stream does not end"
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def _offsets(bench: _Bench, topic: str) -> None:
    ready_topic(bench.plain, topic)
    records = sample_records(99)
    bench.plain.produce(topic, records)
    move_leaders(topic)

    def check(condition: Callable[[Record], bool], **options: Any) -> None:
        check_records(bench.spark.read(topic, **options), [record for record in records if condition(record)])

    check(lambda record: True, startingOffsets="earliest", endingOffsets="latest")
    check(lambda record: 10 <= record.offset < 20, startingOffsets=offsets(topic, dict.fromkeys(range(3), 10)),
          endingOffsets=offsets(topic, dict.fromkeys(range(3), 20)))
    check(lambda record: record.partition != 1 or record.offset < 5, startingOffsets=offsets(topic, {0: -2, 1: 0, 2: -2}),
          endingOffsets=offsets(topic, {0: -1, 1: 5, 2: -1}))
    start, end = BASE_TIMESTAMP + 30 * STEP_MS, BASE_TIMESTAMP + 60 * STEP_MS
    check(lambda record: start <= record.timestamp < end, startingTimestamp=start, endingTimestamp=end)
    times = {partition: start + partition * 10 * STEP_MS + 1 for partition in range(3)}
    check(lambda record: record.timestamp >= times[record.partition], startingOffsetsByTimestamp=offsets(topic, times))


def _large(bench: _Bench, topic: str) -> None:
    ready_topic(bench.plain, topic, **{"max.message.bytes": str(_ROOM_BYTES)})
    value = b"".join(n.to_bytes(4, "big") for n in range(_LARGE_BYTES // 4))
    records = [Record(partition, 0, BASE_TIMESTAMP, None, value) for partition in range(2)]
    expected = bench.spark.write(topic, records, kafka__max__request__size=_ROOM_BYTES, kafka__buffer__memory=4 * _ROOM_BYTES)
    move_leaders(topic)
    check_records(bench.spark.read(topic), expected)


def _reconnect(bench: _Bench, topic: str) -> None:
    """A stream from one topic into another survives a restart of the broker: all acknowledged records arrive."""
    copied = f"{topic}-copied"
    ready_topic(bench.plain, topic)
    ready_topic(bench.plain, copied)
    frame = bench.spark.source(topic, stream=True, startingOffsets="earliest").select("key", "value", "headers", "partition")
    writer = frame.writeStream.option("checkpointLocation", str(bench.spark.place / topic))
    query = bench.spark.sink(writer, copied).start()
    try:
        records = sample_records(2 * _SOME)
        bench.plain.produce(topic, records[:_SOME])
        _until_copied(bench, query, copied, _SOME)
        restart_broker(topic)
        bench.plain.produce(topic, records[_SOME:])
        _until_copied(bench, query, copied, 2 * _SOME)
        # Spark's sink writes at least once: what a restart interrupts may be written twice.
        sent = {(record.partition, record.key, record.value, record.headers) for record in records}
        read = {(record.partition, record.key, record.value, record.headers) for record in bench.spark.read(copied)}
        equal(len(read ^ sent), 0, "records that differ")
    finally:
        query.stop()


def _until_copied(bench: _Bench, query: Any, topic: str, count: int) -> None:
    def arrived() -> bool:
        assert query.isActive, f"the stream ended: {query.exception()}"
        return sum(bench.plain.first_and_last(topic, partition)[1] for partition in range(3)) >= count

    until(arrived, f"{count} records were copied")


_KNOWN: dict[str, Callable[[_Bench, str], None]] = {
    **{codec: _codec(codec) for codec in CODECS}, "acks": _acks, "idempotence": _idempotence, "group": _stream, "offsets": _offsets,
    "large": _large, "reconnect": _reconnect,
}  # fmt: skip


def _feature(name: str, bench: _Bench, topic: str) -> None:
    if name in _ABSENT:
        raise Unsupported(_ABSENT[name])
    _KNOWN[name](bench, topic)


def main() -> None:
    """Run the features named on the command line (`HOST:PORT,... [FEATURE ...]`), or all."""
    address, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="txbroker-spark-") as place:
        spark = Spark(address, Path(place))
        introduce("Spark", spark.version)
        bench = _Bench(spark)
        for name in names or FEATURES[CLIENTS]:
            attempt(name, functools.partial(_feature, name, bench, f"compat-spark-{name}-{time.time_ns() // 1_000_000}"))
        bench.plain.close()
        spark.close()


if __name__ == "__main__":
    main()
