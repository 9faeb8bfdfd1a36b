"""Apache Kafka's DumpLogSegments on the files of a broker with all codecs, after rolls, stops and kills."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.support.dump import Unacceptable, dump_directory, dump_offsets, dump_records
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.records import numbered, samples
from tests.support.server import Server

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def produce(server: Server, topic: str, start: int, count: int, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=server.address, compression_type=codec, linger_ms=10)
    for record in numbered(count, start=start, size=1000):
        producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp)
    producer.close()


def test_the_dump_tool_accepts_our_files(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker({"log.index.interval.bytes": "1024"})
    topics = {f"{name}-{codec}": codec for codec in CODECS}
    for topic, codec in topics.items():
        create_topic(server, topic, 1, KEEP | {"segment.bytes": "1048576"})
        produce(server, topic, 0, 3000 if codec is None else 300, codec)
    delete_records(server, f"{name}-None", 1500)
    consumer = KafkaConsumer(bootstrap_servers=server.address, group_id=name)
    consumer.assign([TopicPartition(f"{name}-gzip", 0)])
    consumer.commit({TopicPartition(f"{name}-gzip", 0): OffsetAndMetadata(123, "a note", -1)})
    consumer.close()
    assert server.stop() == server.stopped_status

    dumped = dump_directory(server.data)
    for topic, codec in topics.items():
        log = dumped[f"{topic}-0"]
        count = 3000 if codec is None else 300
        assert log.offsets[-1] == count - 1
        assert log.offsets == list(range(log.offsets[0], count)), "the remaining records are complete"
        assert {batch[2] for batch in log.batches} == {codec or "none"}
        assert all(producer >= 0 for *_, producer in log.batches), "kafka-python's producer is idempotent"
    assert len(list(server.partition_directory(f"{name}-None").glob("*.log"))) >= 2, "segments were rolled"
    decoded = dump_offsets(server.data)
    assert re.search(rf'"group":"{name}","topic":"{name}-gzip","partition":0\D.*"offset":123\b.*"metadata":"a note"', decoded)

    server.start()
    for topic, codec in topics.items():
        produce(server, topic, 5000, 100, codec)
    server.kill()
    server.start()
    for topic, codec in topics.items():
        produce(server, topic, 6000, 100, codec)
    server.stop()
    dumped = dump_directory(server.data)
    for topic, codec in topics.items():
        count = 3200 if codec is None else 500
        assert dumped[f"{topic}-0"].offsets[-1] == count - 1, "records that were acknowledged before the kill are stored"


def test_the_dump_tool_prints_our_records(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker()
    create_topic(server, name)
    records = [record for record in samples(50) if record.key == b"" or (record.key or b"").startswith(b"key-")]
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=100)
    for record in records:
        producer.send(name, record.value, record.key, list(record.headers), 0, record.timestamp)
    producer.close()
    server.stop()
    printed = dump_records(server.partition_directory(name) / f"{0:020}.log")
    for record in records:
        headers = ",".join(key for key, _ in record.headers)
        size = -1 if record.value is None else len(record.value)
        sizes = f"keySize: {len(record.key or b'')} valueSize: {size}"
        found = re.search(rf"CreateTime: {record.timestamp} {sizes} .*headerKeys: \[(.*?)\]", printed)
        assert found is not None
        assert found[1] == headers


def test_the_dump_tool_reports_a_corrupted_log(start_broker: Callable[..., Server], name: str) -> None:
    """One flipped bit, so that the other tests here can fail."""
    server = start_broker()
    create_topic(server, name)
    produce(server, name, 0, 10, None)
    server.stop()
    dump_directory(server.data)
    log = server.partition_directory(name) / f"{0:020}.log"
    corrupted = bytearray(log.read_bytes())
    corrupted[200] ^= 1
    log.write_bytes(corrupted)
    with pytest.raises(Unacceptable):
        dump_directory(server.data)
