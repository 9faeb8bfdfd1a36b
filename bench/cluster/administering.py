"""How long the creation of many topics takes, and how long a producer waits while a broker stops cleanly."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest

from bench.cluster.clusters import BROKERS
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.turns import in_turn
from tests.support.cluster import NOT_CONTROLLER, Cluster
from tests.support.raw import RawConnection
from tests.support.raw_log import batch, produce
from tests.support.records import numbered

TOPICS = 1_000
TOPICS_OF_A_REQUEST = 100
STOPPED_PARTITIONS = 1_000
WATCHED = 10
NONE = 0
CREATE_VERSION, DELETE_VERSION = 5, 3
TIMEOUT_MS = 60_000
WAIT_S = 120.0
PAUSE_S = 0.002

CREATION = Work(
    "cluster-create",
    f"creating {TOPICS:,} topics with {BROKERS} replicas, {TOPICS_OF_A_REQUEST} in a request, until all brokers have them in sync",
    (Figure("created", "s", less=True, target=1.0, digits=2),),
)
STOP = Work(
    "cluster-stop",
    f"a clean stop of a broker with {STOPPED_PARTITIONS:,} partitions: the longest time between two acknowledged records (acks=all) of one "
    f"of {WATCHED} partitions that it leads, and the time of the stop",
    (Figure("silence", "s", less=True, target=0.5, digits=3), Figure("stop", "s", less=True, digits=2)),
)
_numbers = itertools.count(1)


def creations(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Topics are created, and deleted, on all clusters in turn."""
    outcome = Outcome(CREATION)
    count = max(1, int(TOPICS * settings.scale))
    in_turn(outcome, {name: partial(_created, cluster, count) for name, cluster in clusters.items()}, settings.rounds, None)
    yield outcome


def stops(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Brokers are stopped cleanly, on all clusters in turn."""
    outcome = Outcome(STOP)
    partitions = max(BROKERS * WATCHED, int(STOPPED_PARTITIONS * settings.scale))
    topics = {}
    for name, cluster in clusters.items():
        topics[name] = f"stopped-{next(_numbers)}"
        cluster.create_topic(topics[name], partitions, BROKERS)
    in_turn(outcome, {name: partial(_stopped, clusters[name], topics[name]) for name in clusters}, settings.rounds, None)
    yield outcome
    for name, cluster in clusters.items():
        _delete(cluster, [topics[name]])


def _created(cluster: Cluster, count: int) -> Sample:
    names = [f"created-{next(_numbers)}" for _ in range(count)]
    creatable = CreateTopicsRequest.CreatableTopic
    with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
        started_s = time.monotonic()
        for first in range(0, count, TOPICS_OF_A_REQUEST):
            some = names[first : first + TOPICS_OF_A_REQUEST]
            wanted = [creatable(name=name, num_partitions=1, replication_factor=BROKERS, assignments=[], configs=[]) for name in some]
            answer = connection.call(CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=False), CREATE_VERSION)
            assert all(topic.error_code == NONE for topic in answer.topics), answer
    cluster.until_in_sync(*names)
    created_s = time.monotonic() - started_s
    _delete(cluster, names)
    return {"created": created_s}


def _delete(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete topics, and wait until all brokers have forgotten them."""

    def attempt() -> bool:
        with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
            for first in range(0, len(names), TOPICS_OF_A_REQUEST):
                request = DeleteTopicsRequest(topic_names=list(names[first : first + TOPICS_OF_A_REQUEST]), timeout_ms=TIMEOUT_MS)
                answer = connection.call(request, DELETE_VERSION)
                if any(topic.error_code == NOT_CONTROLLER for topic in answer.responses):
                    return False
        return True

    cluster.until(attempt, "the controller deletes topics")
    gone = set(names)
    cluster.until(lambda: not any(gone & cluster.topics(broker_id).keys() for broker_id in cluster.serving), "the topics are deleted")


class _Writer:
    """Writes to one partition, at the broker that acknowledged last, and measures the longest time between two acknowledgements."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, leader: int) -> None:
        self._addresses = {broker_id: server.address for broker_id, server in cluster.brokers.items()}
        self._topic, self._partition = topic, partition
        self._at = leader
        self._acknowledged_s = time.monotonic()
        self._connections: dict[int, RawConnection] = {}
        self._end = threading.Event()
        self._records = batch(numbered(1))
        self.longest_s = 0.0
        self.written = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"writes to {topic}-{partition}")

    def start(self) -> None:
        """Begin; returns after the first records."""
        self._thread.start()
        self.until_written(2)
        self.longest_s = 0.0

    def until_written(self, count: int) -> None:
        """Wait for so many more records."""
        wanted = self.written + count
        while self.written < wanted and self._thread.is_alive():
            time.sleep(PAUSE_S)

    def finish(self) -> None:
        """End, after two more records."""
        self.until_written(2)
        self._end.set()
        self._thread.join()
        for connection in self._connections.values():
            connection.close()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._write()
        except Exception as error:
            self.failure = error

    def _write(self) -> None:
        """Try the brokers in turn until one acknowledges; one that has stopped is left out."""
        for broker_id in itertools.cycle(sorted(self._addresses, key=lambda each: each != self._at)):
            try:
                if broker_id not in self._connections:
                    self._connections[broker_id] = RawConnection(self._addresses[broker_id])
                answer = produce(self._connections[broker_id], self._topic, self._records, partition=self._partition)
                acknowledged = answer.error_code == NONE
            except OSError:
                self._connections.pop(broker_id, None)
                acknowledged = False
            now_s = time.monotonic()
            if acknowledged:
                self.longest_s = max(self.longest_s, now_s - self._acknowledged_s)
                self._acknowledged_s, self._at = now_s, broker_id
                self.written += 1
                return
            assert now_s - self._acknowledged_s < WAIT_S, f"no broker acknowledges a record of {self._topic}-{self._partition}"
            time.sleep(PAUSE_S)


def _stopped(cluster: Cluster, topic: str) -> Sample:
    """The broker that leads most partitions; afterwards it starts again, and the watched partitions stay where they are."""
    states = cluster.partitions(topic)
    leaders = [state.leader for state in states.values()]
    victim = max(set(leaders), key=leaders.count)
    led = [number for number, state in sorted(states.items()) if state.leader == victim]
    writers = [_Writer(cluster, topic, number, victim) for number in led[:: max(1, len(led) // WATCHED)][:WATCHED]]
    with ExitStack() as stack:
        for writer in writers:
            stack.callback(writer.finish)
            writer.start()
        started_s = time.monotonic()
        cluster.brokers[victim].stop()
        stop_s = time.monotonic() - started_s
    cluster.start_brokers([victim])
    cluster.until_in_sync(topic)
    return {"silence": max(writer.longest_s for writer in writers), "stop": stop_s}
