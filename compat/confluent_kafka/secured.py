"""confluent-kafka on a secured listener."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from compat.security.cases import PATIENCE_S, Secured

_VALID_S = 3600  # of a token


def exchange(case: Secured) -> None:
    """Produce a record, and consume one. librdkafka tries again for ever, so that the first error that it reports counts."""
    errors: list[Any] = []
    settings = {**_settings(case), "error_cb": errors.append}
    delivered: list[bool] = []

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            errors.append(error)
        delivered.append(True)

    producer = Producer(settings)
    producer.produce(case.topic, b"secured", on_delivery=on_delivery)
    _until(lambda: bool(producer.poll(0.05)) and bool(delivered), errors)
    consumer = Consumer({**settings, "group.id": case.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([case.topic])

    def consumed() -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is not None:
            errors.append(message.error())
        return message is not None

    try:
        _until(consumed, errors)
    finally:
        consumer.close()


def _until(condition: Callable[[], bool], errors: list[Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = condition()
        if errors:
            raise KafkaException(errors[0])
        if done:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("no error, and no record")


def _settings(case: Secured) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": case.address, "security.protocol": case.protocol, "ssl.ca.location": case.ca}
    if case.certificate:
        settings |= {"ssl.certificate.location": case.certificate, "ssl.key.location": case.key}
    if case.token:
        settings |= {"sasl.mechanism": case.mechanism, "oauth_cb": lambda _: (case.token, time.time() + _VALID_S)}
    elif case.mechanism:
        settings |= {"sasl.mechanism": case.mechanism, "sasl.username": case.user, "sasl.password": case.password}
    return settings
