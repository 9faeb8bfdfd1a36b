"""Sending the package index through librdkafka."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from compat.demo.failure import DemoFailed
from compat.demo.packages import Package
from compat.demo.tally import Tally

_FLUSH_S = 60.0
_POLL_EVERY = 500  # records between two polls for acknowledgements


def produce(address: str, topic: str, packages: Sequence[Package], codec: str, advance: Callable[[], None]) -> Tally:
    """Send all packages with an idempotent producer and acks=all; the tally of acknowledged records, in each partition by offset."""
    producer = Producer({
        "bootstrap.servers": address, "compression.codec": codec, "enable.idempotence": True, "linger.ms": 20, "batch.num.messages": 2000,
        "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 256 * 1024,
    })
    tally = Tally()
    problems: list[str] = []

    def acknowledged(package: Package, error: Any, message: Any) -> None:
        if error is not None:
            problems.append(str(error))
        else:
            tally.add(message.partition(), message.offset(), *package)
            advance()

    for i, (name, stanza) in enumerate(packages):
        producer.produce(topic, stanza, name, on_delivery=functools.partial(acknowledged, (name, stanza)))
        if i % _POLL_EVERY == 0:
            producer.poll(0)
    try:
        left = producer.flush(_FLUSH_S)
    except KafkaException as problem:
        raise DemoFailed(f"the producer failed: {problem}") from problem
    if left or problems:
        raise DemoFailed(f"{left + len(problems)} of {len(packages)} records were not acknowledged: {problems[:1] or 'no answer'}")
    return tally
