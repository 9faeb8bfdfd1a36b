"""The clients of a fault test, and everything that must be true when it has ended."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from simulation.histories import Complete, Poll
from tests.cluster_faults import transactions
from tests.cluster_faults.client import FaultClient
from tests.cluster_faults.consuming import ConfluentConsuming, Consuming, KafkaPythonConsuming, name_of
from tests.cluster_faults.copying import GROUP, Copying, check_copies
from tests.cluster_faults.java_clients import JAVA_CLIENT, JavaClient
from tests.cluster_faults.journal import Journal, now
from tests.cluster_faults.producing import ConfluentProducing, KafkaPythonProducing, Producing
from tests.cluster_faults.transactions import Reading, TransactionalProducing
from tests.crash.ledger import Lost
from tests.support import java
from tests.support.cache import CHECKOUT
from tests.support.cluster import Cluster

TOPIC = "faults"
PARTITIONS = 6
GROUPS = ("group-one", "group-two")
# What is written after a fault before the next one begins: it shows that the cluster works again.
PROGRESS = 20
_ANOMALIES_SHOWN = 20


class Load:
    """Producers, which write to all partitions, and two groups that read them, each with members of two client libraries.

    `full`: also Apache Kafka's client, as a producer and in a group, and, if all brokers have transactions, producers with these and
    consumers with and without read_committed. `debug`: librdkafka writes what these producers do to stderr.
    """

    def __init__(self, cluster: Cluster, *, full: bool = False, debug: bool = False) -> None:
        self._cluster = cluster
        self.journal = Journal(cluster.directory)
        at, topic, journal = cluster.bootstrap, TOPIC, self.journal
        self.producers: list[Producing | JavaClient] = [
            ConfluentProducing("confluent-idempotent", at, topic, PARTITIONS, journal),
            ConfluentProducing("confluent-plain", at, topic, PARTITIONS, journal, idempotent=False),
            KafkaPythonProducing("kafka-python-idempotent", at, topic, PARTITIONS, journal),
            KafkaPythonProducing("kafka-python-plain", at, topic, PARTITIONS, journal, idempotent=False),
        ]
        self.members: list[Consuming | JavaClient] = [
            ConfluentConsuming("one-confluent", at, topic, GROUPS[0], journal),
            ConfluentConsuming("two-confluent", at, topic, GROUPS[1], journal),
            KafkaPythonConsuming("two-kafka-python", at, topic, GROUPS[1], journal),
        ]
        if full and shutil.which("javac") is not None:
            classes = java.compiled(JAVA_CLIENT, cluster.directory)
            self.producers.append(JavaClient("java-idempotent", at, topic, journal, classes, partitions=PARTITIONS))
            self.members.append(JavaClient("one-java", at, topic, journal, classes, group=GROUPS[0]))
        else:
            self.members.append(KafkaPythonConsuming("one-kafka-python", at, topic, GROUPS[0], journal))
        self.transactional: list[TransactionalProducing] = []
        self.readers: list[Reading] = []
        if full and transactions.supported(cluster):
            self.transactional = [*(TransactionalProducing(f"transactional-{number}", at, journal, debug=debug) for number in (1, 2)),
                                  *(Copying(f"copier-{number}", at, TOPIC, journal, debug=debug) for number in (1, 2))]
            self.readers = [Reading(name, at, journal, read_committed=committed)
                            for name, committed in (("reads-committed", True), ("reads-any", False))]
        self._clients: list[FaultClient] = [*self.producers, *self.members, *self.transactional, *self.readers]

    def start(self) -> None:
        """Create the topic and begin; returns when all make progress."""
        configs = {"retention.ms": "-1", "min.insync.replicas": "2", "segment.bytes": "1048576"}
        self._cluster.create_topic(TOPIC, PARTITIONS, configs=configs)
        if self.transactional:
            self._cluster.create_topic(transactions.TOPIC, transactions.PARTITIONS, configs=configs)
        for client in self._clients:
            client.start()
        self.wait_for_progress()

    def abandon(self) -> None:
        """End all clients soon, whatever happens to what they sent."""
        for client in self._clients:
            client.end.set()
            if isinstance(client, JavaClient):
                client.kill()
        self.journal.close()

    def check(self) -> None:
        """Raise what went wrong so far."""
        for client in self._clients:
            client.check()

    def _names(self, group: str) -> list[str]:
        """Of the members of a group."""
        return [each.name for each in self.members if each.group == group]

    def wait_for_progress(self) -> None:
        """Wait until every producer was confirmed more records than now, and every group has committed more in each partition."""
        produced = {each.name: self.journal.confirmed(each.name) for each in (*self.producers, *self.transactional)}
        committed = {group: self.journal.committed(group) for group in GROUPS}
        behind: list[str] = []
        stuck: list[tuple[str, int]] = []  # groups and partitions

        def moved() -> bool:
            self.check()
            behind[:] = [f"{name} ({before} records)" for name, before in produced.items()
                         if self.journal.confirmed(name) < before + PROGRESS]
            stuck.clear()
            for group, before in committed.items():
                after = self.journal.committed(group)
                stuck.extend((group, number) for number in range(PARTITIONS)
                             if after.get((TOPIC, number), 0) <= before.get((TOPIC, number), 0))
            return not behind and not stuck

        try:
            self._cluster.until(moved, "every producer and group makes progress")
        except AssertionError as error:
            behind += [f"{group} in partition {number} (offset {committed[group].get((TOPIC, number), 0)})" for group, number in stuck]
            last = [line for group, number in stuck for line in self.journal.last(self._names(group), number)]
            history = "\n".join(["", f"the last operations there, now is {now()}:", *last]) if last else ""
            raise AssertionError(f"{error}\nwithout progress: {', '.join(behind)}{history}") from None

    def finish(self) -> str:
        """Stop producing, read everything, let the groups do the same, and check the history; what was checked. Lost."""
        for producer in self.producers:
            producer.stop()
        self._cluster.until_in_sync()
        ends = self._read_all()
        copied = self._read_transactions(ends) if self.readers else ""

        def read_everything() -> bool:
            self.check()
            return all(self.journal.committed(group) == ends for group in GROUPS)

        began = now()
        self._cluster.until(read_everything, f"the groups have read everything: the logs end at {ends}")
        for member in self.members:
            member.stop()
        for group in GROUPS:
            names = tuple(member.name for member in self.members if member.group == group)
            for partition in range(PARTITIONS):
                self.journal.add(Complete(names, TOPIC, partition, began))
        self.check_history()
        return self.journal.description() + copied

    def check_history(self) -> None:
        """Lost with the anomalies of the history so far."""
        anomalies = self.journal.check()
        if anomalies:
            shown = "\n".join(map(str, anomalies[:_ANOMALIES_SHOWN]))
            raise Lost(f"the history in {self.journal.path} has {len(anomalies)} anomalies:\n{shown}")

    def _read_all(self) -> dict[tuple[str, int], int]:
        """A consumer without a group reads each partition from its start to its end; the ends."""
        name = "reads-all"
        consumer = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": name, "enable.auto.commit": False, "log_level": 0})
        began = now()
        ends = {partition: self._end(consumer, partition) for partition in range(PARTITIONS)}
        position = dict.fromkeys(ends, 0)
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])

        def complete() -> bool:
            polled, found = now(), defaultdict(list)
            messages: list[Any] = consumer.consume(1000, 0.5)
            for message in messages:
                if message.error() is None:
                    found[message.partition()].append((message.offset(), name_of(message.value())))
                    position[message.partition()] = message.offset() + 1
            for partition, records in found.items():
                self.journal.add(Poll(name, polled, TOPIC, partition, tuple(records), polled, now()))
            return position == ends

        self._cluster.until(complete, f"everything up to {ends} can be read")
        consumer.close()
        for partition in ends:
            self.journal.add(Complete((name,), TOPIC, partition, began))
        return {(TOPIC, partition): end for partition, end in ends.items()}

    def _read_transactions(self, originals: dict[tuple[str, int], int]) -> str:
        """The consumers that have read all the time, and fresh ones, read transactions to the end, when all records are copied."""
        self._cluster.until(lambda: self.journal.committed(GROUP) == originals, f"the copiers have read everything up to {originals}")
        for producer in self.transactional:
            producer.stop()
        committed, every = self.readers

        def stable() -> dict[int, int] | None:
            ends = every.ends()
            return ends if committed.ends() == ends else None

        ends = self._cluster.until(stable, "no transaction is open any more")
        began = now()
        fresh = [each.fresh() for each in self.readers]
        for reader in fresh:
            reader.start()
        for reader in (*self.readers, *fresh):
            self._until_read(reader, ends)
            reader.complete(began)
        places = [(partition, offset) for (_, partition), end in originals.items() for offset in range(end)]
        return ", " + check_copies(self.journal.operations, fresh[0].name, places)

    def _until_read(self, reader: Reading, ends: dict[int, int]) -> None:
        def reached() -> bool:
            reader.check()
            return reader.reached == ends

        self._cluster.until(reached, f"{reader.name} reads up to {ends}")
        reader.stop()

    def _end(self, consumer: Consumer, partition: int) -> int:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)
        return int(end)


def compare_files(cluster: Cluster) -> str:
    """Compare the logs of all replicas after a clean stop, byte for byte; what was compared. Lost."""
    directories = [server.data for server in cluster.brokers.values()]
    names = {path.name for directory in directories for path in directory.iterdir() if path.is_dir()}
    size = 0
    for name in sorted(names):
        logs = [_log(directory / name) for directory in directories if (directory / name).is_dir()]
        size += len(logs[0])
        if len(set(logs)) > 1:
            raise Lost(f"the replicas of {name} differ: {[len(log) for log in logs]} bytes, "
                       f"the first {_common(logs)} of which are the same")
    for directory in directories:
        verify_directory(directory)
    return f"{len(names)} partitions of {size} bytes have the same bytes on {len(directories)} brokers"


def verify_directory(directory: Path) -> None:
    """`txbroker log verify`: indexes, leader epochs, producer snapshots, checkpoints. Lost if it finds a fault."""
    command = [sys.executable, "-m", "txbroker", "log", "verify", str(directory)]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Lost(f"log verify {directory}:\n{ended.stdout}\n{ended.stderr}")


def _log(directory: Path) -> bytes:
    """The records of a partition, from segments in order. Replicas need not begin new segments at the same offsets."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _common(logs: list[bytes]) -> int:
    shortest = min(map(len, logs))
    return next((at for at in range(shortest) if len({log[at] for log in logs}) > 1), shortest)
