"""A producer or a consumer with librdkafka and its default settings: `python -m bench.librdkafka produce|consume ...`.

`bench/real.py` runs it, and has the form of its output. Its statistics say how many requests librdkafka has sent again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

AT_ONCE = 500  # records in a call of librdkafka
WAIT_S = 0.01  # while its queue is full
SILENCE_S = 30.0
STATISTICS_MS = 500
PROBLEMS_MAX = 5


class Watch:
    """What librdkafka reports besides results."""

    def __init__(self) -> None:
        self.errors = 0
        self.retries = 0
        self.reports = 0
        self.problems: list[str] = []

    def configuration(self, brokers: str, **others: object) -> dict[str, object]:
        """The defaults with what this program needs."""
        return {
            "bootstrap.servers": brokers,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._statistics,
            "error_cb": self.failed,
            **others,
        }

    def failed(self, error: KafkaError) -> None:
        self.errors += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(str(error))

    def _statistics(self, text: str) -> None:
        self.reports += 1
        brokers = json.loads(text)["brokers"].values()
        self.retries = sum(broker["txretries"] + broker["req_timeouts"] for broker in brokers)

    def last_report(self, poll: Callable[[float], object]) -> None:
        """Wait for the statistics of all that was done."""
        before = self.reports
        while self.reports == before:
            poll(WAIT_S)

    def result(self, records: int, seconds: float) -> str:
        return json.dumps(
            {"records": records, "seconds": seconds, "errors": self.errors, "retries": self.retries, "problems": self.problems}
        )


class _Produced:
    """Sends records of equal size as fast as librdkafka takes them, and counts those that were acknowledged."""

    def __init__(self, options: argparse.Namespace, watch: Watch) -> None:
        self._watch = watch
        self._topic = options.topic
        self._messages: list[dict[str, Any]] = [{"value": bytes(options.bytes)} for _ in range(AT_ONCE)]
        self.producer = Producer(watch.configuration(options.brokers))
        self.acknowledged = 0

    def send(self, records: int) -> int:
        """Send at most `records`; the number that librdkafka has taken."""
        messages = self._messages[:records]
        taken: int = self.producer.produce_batch(self._topic, messages, on_delivery=self._delivered)
        if taken < len(messages):
            for message in messages:
                error = message.pop("_error", None)
                if error is not None and error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
        self.producer.poll(0 if taken == len(messages) else WAIT_S)
        return taken

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._watch.failed(error)

    def send_for(self, seconds: float) -> tuple[int, float]:
        """The number of records that were acknowledged, at least one, and the time."""
        begun, before = time.perf_counter(), self.acknowledged
        while time.perf_counter() < begun + seconds or self.acknowledged == before:
            self.send(AT_ONCE)
        return self.acknowledged - before, time.perf_counter() - begun


def _mark(what: str) -> None:
    print(what, flush=True)


def produce(options: argparse.Namespace) -> str:
    """Send records for some time."""
    watch = Watch()
    made = _Produced(options, watch)
    made.send_for(options.warmup)
    _mark("begin")
    records, seconds = made.send_for(options.seconds)
    _mark("end")
    made.producer.flush()
    watch.last_report(made.producer.poll)
    return watch.result(records, seconds)


def consume(options: argparse.Namespace) -> str:
    """Read a number of records from the beginning of a topic, as the only member of a group."""
    watch = Watch()
    group = f"{options.topic}-{time.time_ns()}"
    consumer = Consumer(watch.configuration(options.brokers, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([options.topic])
    first, records = consumer.consume(1, SILENCE_S), 0
    _mark("begin")
    begun = time.perf_counter()
    received: Sequence[Message] = first
    while received:
        for message in received:
            error = message.error()
            if error is None:
                records += 1
            else:
                watch.failed(error)
        received = consumer.consume(min(AT_ONCE, options.records - records), SILENCE_S) if records < options.records else []
    seconds = time.perf_counter() - begun
    _mark("end")
    watch.last_report(lambda seconds: consumer.consume(1, seconds))
    consumer.close()
    return watch.result(records, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.librdkafka", description=__doc__)
    parser.add_argument("work", choices=("produce", "consume"))
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--warmup", type=float, default=0.0)
    options = parser.parse_args(arguments)
    print({"produce": produce, "consume": consume}[options.work](options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
