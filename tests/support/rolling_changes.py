"""Changes of a running cluster under load: producers and consumers, restarts of one broker after the other, and what was lost."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from tests.support.cluster import Cluster
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3
# A broker that restarts ends its connections; librdkafka reports that, and connects again.
RESTARTS = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})


class Client:
    """Work of a client in a thread of its own. `errors`: those that the client reports, but `tolerated` codes, and of the thread."""

    def __init__(self, name: str, tolerated: frozenset[int]) -> None:
        self.name = name
        self.errors: list[object] = []
        self._tolerated = tolerated
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.errors.append(error)

    def _run(self) -> None:
        raise NotImplementedError

    def _reported(self, error: KafkaError) -> None:
        if error.code() not in self._tolerated:
            self.errors.append(error)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Until a condition holds, or an error is found, which fails the test."""
        until(lambda: self.errors or condition(), what)
        assert self.errors == [], f"{self.name}: {self.errors}"


class Load(Client):
    """A producer with the defaults of Java's (acks=all, idempotent), and what was acknowledged to it."""

    def __init__(self, name: str, topic: str, settings: Mapping[str, Any], tolerated: frozenset[int] = RESTARTS) -> None:
        super().__init__(name, tolerated)
        self.acknowledged: set[bytes] = set()
        self._of_partitions = [0] * PARTITIONS
        self._topic = topic
        self._settings = {**settings, "linger.ms": 5, "enable.idempotence": True, "error_cb": self._reported}
        self._producer: Producer | None = None

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())
            self._of_partitions[message.partition()] += 1
        else:
            self.errors.append(error)

    def _run(self) -> None:
        self._producer = producer = Producer(self._settings)  # connects at once
        number = 0
        while not self._stop.is_set():
            value = f"{self.name} {number}".encode()
            producer.produce(self._topic, value, partition=number % PARTITIONS, callback=self._delivered)
            producer.poll(0.002)
            number += 1

    def end(self) -> None:
        """Stop; all that was sent is acknowledged."""
        self.stop()
        producer, self._producer = self._producer, None
        assert producer is not None
        assert (producer.flush(PATIENCE_S), self.errors) == (0, []), self.name

    def until_more(self) -> None:
        """Records of each partition are acknowledged now."""
        before = list(self._of_partitions)
        grown = lambda: all(after > number + 30 for after, number in zip(self._of_partitions, before, strict=True))  # noqa: E731
        self.wait(grown, f"records of {self.name} are acknowledged")


class Reader(Client):
    """A consumer of a group: the offsets of each value that it has received."""

    def __init__(self, name: str, topic: str, settings: Mapping[str, Any], tolerated: frozenset[int] = RESTARTS) -> None:
        super().__init__(name, tolerated)
        self.found: defaultdict[bytes, set[tuple[int | None, int | None]]] = defaultdict(set)
        own = {"group.id": f"group of {name}", "auto.offset.reset": "earliest", "error_cb": self._reported}
        self._settings = {**settings, **own}
        self._topic = topic

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        self.found[message.value() or b""].add((message.partition(), message.offset()))
                    else:
                        self._reported(error)
        finally:
            consumer.close()

    def until_more(self) -> None:
        """Records are received now."""
        before = len(self.found)
        self.wait(lambda: len(self.found) > before + 100, f"{self.name} receives records")

    def end(self, acknowledged: set[bytes]) -> None:
        """Wait for all of these, and stop: each is at one offset."""
        self.wait(lambda: acknowledged <= self.found.keys(), f"{self.name} receives all {len(acknowledged)} acknowledged records")
        self.stop()
        assert self.errors == []
        assert {value: places for value, places in self.found.items() if len(places) != 1} == {}, "records are in the log twice"


class Availability(Client):
    """Looks at the state of a topic all the time: `errors` has each partition whose leader is not there, or with too small an ISR.

    It reads what the controller has decided, in ZooKeeper. A broker's metadata can have a restarted leader later than its new partitions.
    """

    def __init__(self, cluster: Cluster, topic: str, min_in_sync: int) -> None:
        super().__init__("state of the partitions", frozenset())
        self._zookeeper = cluster.zookeeper_connect
        self._topic = topic
        self._min_in_sync = min_in_sync
        self.looks = 0

    def _run(self) -> None:
        zookeeper: Any = KazooClient(self._zookeeper)
        zookeeper.start(timeout=PATIENCE_S)
        try:
            while not self._stop.wait(0.02):
                self._look(zookeeper)
        finally:
            zookeeper.stop()
            zookeeper.close()

    def _look(self, zookeeper: Any) -> None:
        nodes = [f"/brokers/topics/{self._topic}/partitions/{number}/state" for number in range(PARTITIONS)]
        # A broker that stops gives its leadership away before it leaves, and one that starts gets it after it has registered.
        before = set(zookeeper.get_children("/brokers/ids"))
        found = {node: json.loads(zookeeper.get(node)[0]) for node in nodes}
        registered = before | set(zookeeper.get_children("/brokers/ids"))
        self.errors += [f"{node}: {state}, brokers {registered}" for node, state in found.items()
                        if str(state["leader"]) not in registered or len(state["isr"]) < self._min_in_sync]  # fmt: skip
        self.looks += 1

    def end(self) -> None:
        self.stop()
        assert self.errors == [], "\n".join(map(str, self.errors))
        assert self.looks > 0


def in_sync(settings: Mapping[str, Any], topic: str) -> bool:
    """Whether a client sees all three replicas of each partition in sync."""
    try:
        found = AdminClient(dict(settings)).list_topics(topic, timeout=5).topics[topic].partitions.values()
    except KafkaException:
        return False
    return len(found) == PARTITIONS and all(len(partition.isrs) == 3 for partition in found)


def roll(cluster: Cluster, ready: Callable[[], bool], change: Callable[[int], Mapping[str, str]]) -> None:
    """Restart each broker with other settings, when all replicas are in sync."""
    for broker_id, server in cluster.brokers.items():
        until(ready, "all replicas are in sync")
        server.overrides |= change(broker_id)
        assert server.stop() == 0
        server.start()
    until(ready, "all replicas are in sync")


def consumed(settings: Mapping[str, Any], topic: str, wanted: set[bytes]) -> set[bytes]:
    """All values of the topic, which has at least the wanted ones."""
    consumer = Consumer({**settings, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: set[bytes] = set()
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not wanted <= found and time.monotonic() < end_s:
            found |= {message.value() or b"" for message in consumer.consume(1000, 1) if message.error() is None}
    finally:
        consumer.close()
    return found
