"""The load of a fault test, and everything that must be true when it has ended."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster_faults.consuming import ConfluentConsuming, Consuming, GroupLedger, KafkaPythonConsuming
from tests.cluster_faults.producing import KINDS, Producing
from tests.crash.ledger import Lost
from tests.crash.rounds import read
from tests.support.cache import CHECKOUT
from tests.support.cluster import Cluster
from tests.support.raw import RawConnection

TOPIC = "faults"
PARTITIONS = len(KINDS) * 2
GROUPS = {"confluent-group": ConfluentConsuming, "kafka-python-group": KafkaPythonConsuming}
# What is written after a fault before the next one begins: it shows that the cluster works again.
PROGRESS = 20


class Load:
    """Producers, each of which writes a partition, and groups that read all of them, each with two members."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.groups = [GroupLedger(name) for name in GROUPS]
        self.producers: list[Producing] = []
        self.members: list[Consuming] = []

    @property
    def _clients(self) -> Sequence[Producing | Consuming]:
        return [*self.producers, *self.members]

    def start(self) -> None:
        """Create the topic and begin; returns when all make progress."""
        cluster = self._cluster
        configs = {"retention.ms": "-1", "min.insync.replicas": "2", "segment.bytes": "1048576"}
        cluster.create_topic(TOPIC, PARTITIONS, configs=configs)
        ways = itertools.product(KINDS, (True, False))
        self.producers = [kind(cluster.bootstrap, TOPIC, partition, idempotent=idempotent)
                          for partition, (kind, idempotent) in enumerate(ways)]
        self.members = [GROUPS[group.name](cluster.bootstrap, TOPIC, group) for group in self.groups for _ in range(2)]
        for each in self._clients:
            each.start()
        self.wait_for_progress()

    def abandon(self) -> None:
        """End all threads soon, whatever happens to what they sent."""
        for each in self._clients:
            each.end.set()

    def check(self) -> None:
        """Raise what went wrong so far."""
        for each in self._clients:
            each.check()

    def wait_for_progress(self) -> None:
        """Wait until every producer and every group has been acknowledged more than it is now."""
        produced = [producer.acknowledged_count for producer in self.producers]
        committed = [group.committed() for group in self.groups]

        def moved() -> bool:
            self.check()
            return (
                all(producer.acknowledged_count >= before + PROGRESS for producer, before in zip(self.producers, produced, strict=True))
                and all(group.committed().get(partition, 0) > before.get(partition, 0)
                        for group, before in zip(self.groups, committed, strict=True) for partition in range(PARTITIONS))
            )

        self._cluster.until(moved, f"every producer and group makes progress: {self._progress()}")

    def finish(self) -> str:
        """Stop producing, let the groups read everything, and compare; what was compared. Lost."""
        for producer in self.producers:
            producer.stop()
        self._cluster.until_in_sync()
        logs = {producer.partition: self._read(producer) for producer in self.producers}
        ends = {partition: len(found) for partition, found in logs.items()}

        def read_everything() -> bool:
            self.check()
            return all(group.committed() == ends for group in self.groups)

        self._cluster.until(read_everything, f"the groups have read everything: {self._progress()}, the logs end at {ends}")
        for member in self.members:
            member.stop()
        repeated = 0
        for producer in self.producers:
            repeated += producer.compare(logs[producer.partition])
            for group in self.groups:
                group.compare(producer.partition, logs[producer.partition])
        without = sum(producer.without_offset for producer in self.producers)
        return (f"{sum(ends.values())} records; {repeated} repeat others, of producers that are not idempotent; "
                f"{without} were acknowledged without an offset")

    def _read(self, producer: Producing) -> list[tuple[int, bytes]]:
        """All records of a partition, once there are as many as were acknowledged: a new leader may not know yet what is committed."""
        partition = producer.partition

        def complete() -> list[tuple[int, bytes]] | None:
            leader = self._cluster.leader(TOPIC, partition)
            with RawConnection(self._cluster.brokers[leader].address) as connection:
                found = read(connection, TOPIC, partition, 0)
            return found if len(found) >= producer.acknowledged_count else None

        found: list[tuple[int, bytes]] = self._cluster.until(complete, f"what was acknowledged can be read: {self._progress()}")
        return found

    def _progress(self) -> str:
        produced = {producer.name: producer.acknowledged_count for producer in self.producers}
        return f"{produced}, {({group.name: group.committed() for group in self.groups})}"


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
