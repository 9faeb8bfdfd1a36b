"""One record from a producer to a consumer of each client library, in a topic that has the name of the function's library."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.support.waiting import PATIENCE_S
from txbroker.testing import Kafka

TOPICS = {"confluent": 1, "kafka-python": 1, "aiokafka": 1}


def confluent(kafka: Kafka) -> bytes | None:
    producer = Producer(kafka.client_config("confluent"))
    producer.produce("confluent", b"one")
    producer.flush()
    consumer = Consumer(kafka.client_config("confluent", "confluent"))
    consumer.subscribe(["confluent"])
    (message,) = consumer.consume(1, timeout=PATIENCE_S)
    consumer.close()
    return message.value()


def kafka_python(kafka: Kafka) -> bytes | None:
    with KafkaProducer(**kafka.client_config("kafka-python")) as producer:
        producer.send("kafka-python", b"one").get(PATIENCE_S)
    with KafkaConsumer("kafka-python", **kafka.client_config("kafka-python", "kafka-python")) as consumer:
        return next(consumer).value


def aiokafka(kafka: Kafka) -> bytes | None:
    async def exchanged() -> bytes | None:
        async with AIOKafkaProducer(**kafka.client_config("aiokafka")) as producer:
            await producer.send_and_wait("aiokafka", b"one")
        async with AIOKafkaConsumer("aiokafka", **kafka.client_config("aiokafka", "aiokafka")) as consumer:
            return (await consumer.getone()).value

    return asyncio.run(exchanged())


EXCHANGES = (confluent, kafka_python, aiokafka)
