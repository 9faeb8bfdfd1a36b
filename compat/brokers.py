"""Brokers for one client only, so that they can be restarted, and their logs belong to this client."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat.running import MOVE, RESTART, Changes
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember, KafkaOldProcess, KafkaProcess
from tests.support.leaders import kill_leader, move_leaders
from tests.support.server import Server, ServerFailed

BROKERS: dict[str, type[Server]] = {kind.kind: kind for kind in (BrokerProcess, KafkaProcess, KafkaOldProcess)}
MEMBERS = (BrokerProcess.kind, KafkaMember.kind)  # the kinds of brokers that form clusters
REPLICAS = 3
CLUSTER_OVERRIDES = {"default.replication.factor": str(REPLICAS), "min.insync.replicas": "2"}


@dataclass(frozen=True)
class Place:
    """The bootstrap.servers of brokers, and how to restart them and to move leaders, if that is possible."""

    address: str
    changes: Changes | None = None


@contextmanager
def brokers_for(client: str, kind: str, count: int) -> Iterator[Place]:
    """Brokers on a temporary directory, while a client uses them. ServerFailed if one did not start, ended or logged a traceback."""
    start = _broker if count == 1 else _cluster
    with tempfile.TemporaryDirectory(prefix=f"txbroker-compat-{client}-") as name, start(Path(name), kind, count) as place:
        yield place


def changes(server: Server) -> Changes:
    """What a driver may request of one broker; its leaders cannot move."""
    def restart(_: str) -> str:
        server.restart()
        return server.address

    return {RESTART: restart, MOVE: lambda _: server.address}


def cluster_changes(cluster: Cluster) -> Changes:
    """What a driver may request of several brokers."""
    def change(how: Callable[[Cluster, str], None]) -> Callable[[str], str]:
        def changed(topic: str) -> str:
            try:
                how(cluster, topic)
                return _leader_address(cluster, topic)
            except AssertionError as error:
                raise ServerFailed(str(error)) from None

        return changed

    return {RESTART: change(kill_leader), MOVE: change(move_leaders)}


@contextmanager
def _broker(directory: Path, kind: str, _: int) -> Iterator[Place]:
    server = BROKERS[kind](directory)
    try:
        server.start()
        yield Place(server.address, changes(server))
        _check([server])
        server.stop()
    finally:
        server.close()


@contextmanager
def _cluster(directory: Path, kind: str, count: int) -> Iterator[Place]:
    cluster = Cluster(directory, (kind,) * count, CLUSTER_OVERRIDES)
    try:
        cluster.start()
        yield Place(cluster.bootstrap, cluster_changes(cluster))
        _check(cluster.brokers.values())
        cluster.stop()
    finally:
        cluster.close()


def _leader_address(cluster: Cluster, topic: str) -> str:
    """The leader of the first partition; any broker for a topic that does not exist yet."""
    servers = cluster.brokers
    return servers[cluster.leader(topic)].address if cluster.partitions(topic) else next(iter(servers.values())).address


def _check(servers: Iterable[Server]) -> None:
    for server in servers:
        if not server.running:
            raise ServerFailed(f"a broker ended while the client used it:\n{server.log_tail()}")
        if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log():
            raise ServerFailed(f"a broker logged a traceback while the client used it:\n{server.log_tail()}")
