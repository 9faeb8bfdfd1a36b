"""Reading the topic with Python's clients, in this process."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
import kafka

from compat.demo.failure import DemoFailed
from compat.demo.source import Countdown, Source, Take

_POLL_S = 5.0  # these polls end with the first records
_CONSUME_S = 0.2  # this one waits for all requested records
_POLL_RECORDS = 2000


def read_with_kafka_python(source: Source, take: Take) -> None:
    """kafka-python's KafkaConsumer."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=source.address, group_id=source.group, auto_offset_reset="earliest",
                                   enable_auto_commit=False, max_poll_records=_POLL_RECORDS)
    try:
        if source.group:
            consumer.subscribe([source.topic])
        else:
            consumer.assign([kafka.TopicPartition(source.topic, partition) for partition in source.ends])
            for partition in source.ends:
                consumer.seek(kafka.TopicPartition(source.topic, partition), 0)
        countdown = Countdown(source, take)
        while countdown:
            for records in consumer.poll(int(_POLL_S * 1000)).values():
                for record in records:
                    countdown.take(record.partition, record.offset, record.key, record.value)
        if source.group:
            consumer.commit()
    finally:
        consumer.close()


def read_with_confluent_kafka(source: Source, take: Take) -> None:
    """confluent-kafka's Consumer, on librdkafka."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": source.address, "group.id": source.group or "no group", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "check.crcs": True,
    })
    try:
        if source.group:
            consumer.subscribe([source.topic])
        else:
            consumer.assign([confluent_kafka.TopicPartition(source.topic, partition, 0) for partition in source.ends])
        countdown = Countdown(source, take)
        while countdown:
            for message in consumer.consume(_POLL_RECORDS, _CONSUME_S):
                if message.error():
                    raise DemoFailed(f"confluent-kafka: {message.error()}")
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None, "a message without error has a place"
                countdown.take(partition, offset, message.key(), message.value())
        if source.group:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def read_with_aiokafka(source: Source, take: Take) -> None:
    """aiokafka's AIOKafkaConsumer."""
    asyncio.run(_read_with_aiokafka(source, take))


async def _read_with_aiokafka(source: Source, take: Take) -> None:
    topics = [source.topic] if source.group else []
    consumer = aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=source.address, group_id=source.group, auto_offset_reset="earliest",
                                         enable_auto_commit=False)
    await consumer.start()
    try:
        if not source.group:
            consumer.assign([aiokafka.TopicPartition(source.topic, partition) for partition in source.ends])
            for partition in source.ends:
                consumer.seek(aiokafka.TopicPartition(source.topic, partition), 0)
        countdown = Countdown(source, take)
        while countdown:
            for records in (await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=_POLL_RECORDS)).values():
                for record in records:
                    countdown.take(record.partition, record.offset, record.key, record.value)
        if source.group:
            await consumer.commit()
    finally:
        await consumer.stop()
