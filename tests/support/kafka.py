"""Apache Kafka as a process: tests run against it too, and benchmarks compare with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from kafka.protocol.metadata import MetadataRequest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from tests.support import java
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.raw import RawConnection
from tests.support.server import HOST, Server, ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.names import id_to_text

_SESSION_TIMEOUT_MS = 9000  # on a loaded machine a JVM may send nothing for seconds
_ONE_REPLICA = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class _JavaServer(Server):
    """A server from Apache Kafka's jars, with a properties file."""

    release: str
    stopped_status = 143  # the status of a JVM after SIGTERM
    script = "kafka-server-start"
    java_options: tuple[str, ...] = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    archives_classes = True  # which shortens the start

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self._archive = java.ClassArchive(self.script, self.release)

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        """SIGTERM, and the exit status."""
        status = super().stop(timeout_s)
        self._archive.keep()
        return status

    def _properties(self) -> dict[str, str]:
        raise NotImplementedError

    def _command(self) -> list[str]:
        self.port = self.port or free_port()
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        sharing = self._archive.options() if self.archives_classes else ()
        return java.command(self.script, self.release, [str(path)], options=(*self.java_options, *sharing))


class KafkaProcess(_JavaServer):
    """Apache Kafka 4.3.1: one KRaft node, broker and controller."""

    kind = "kafka"
    release = KAFKA_NEW

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self.cluster_id = id_to_text(b"t" + os.urandom(15))  # kafka-storage takes no id that begins with a minus
        self.controller_port = free_port()
        self._node_id = 1
        self._voters: Mapping[int, int] = {1: self.controller_port}

    def join(self, node_id: int, cluster_id: str, voters: Mapping[int, int]) -> None:
        """Be one of several nodes, each a broker and a controller. `voters`: the controllers' ports."""
        self._node_id, self.cluster_id, self._voters = node_id, cluster_id, voters

    def start(self) -> None:
        """Format the data directory if it is new, then start."""
        if not (self.data / "meta.properties").exists():
            self._command()
            java.run("kafka-storage", "format", "-t", self.cluster_id, "-c", self.directory / "server.properties", release=self.release)
        super().start()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._node_id),
            "controller.quorum.voters": ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in self._voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            # A killed broker can only start again after its old registration expired.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **_ONE_REPLICA,
            **self.overrides,
        }

    def _is_ready(self) -> bool:
        return _answers(self.address, self._node_id)


class KafkaMember(_JavaServer):
    """Apache Kafka 3.9.1 as a broker of a cluster on `zookeeper`, which others start and end."""

    kind = "kafka-3.9"
    release = KAFKA_OLD

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self._broker_id = broker_id
        self._zookeeper_connect = zookeeper

    def start(self) -> None:
        """Wait until the session of its last process has expired in ZooKeeper, which the broker does not do, and start it."""
        self._wait_unregistered()
        super().start()

    def _wait_unregistered(self) -> None:
        host, slash, chroot = self._zookeeper_connect.partition("/")
        client = KazooClient(host)
        try:
            client.start(timeout=PATIENCE_S)
        except KazooTimeoutError:
            raise ServerFailed(f"broker {self._broker_id} cannot start: no server of ZooKeeper at {host} answers") from None
        path = f"{slash}{chroot}/brokers/ids/{self._broker_id}"
        until(lambda: client.exists(path) is None, f"the session of broker {self._broker_id} has expired in ZooKeeper", every_s=0.1)
        client.stop()
        client.close()

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": str(self._broker_id),
            "listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": self._zookeeper_connect,
            "zookeeper.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": "30000",  # on a loaded machine this takes longer than a session
            "log.dirs": str(self.data),
            **self.overrides,
        }

    def _is_ready(self) -> bool:
        return _answers(self.address, self._broker_id)


class KafkaOldProcess(KafkaMember):
    """Apache Kafka 3.9.1 with its own ZooKeeper."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self._zookeeper = ZooKeeperProcess(directory / "zookeeper")
        self._zookeeper.port = free_port()
        super().__init__(directory, 1, self._zookeeper.address, {**_ONE_REPLICA, **(overrides or {})})

    @property
    def zookeeper(self) -> str:
        """host:port of its ZooKeeper, which keeps running when the broker is stopped or killed."""
        return self._zookeeper.address

    def start_zookeeper(self) -> None:
        """Start ZooKeeper alone, unless it is running."""
        if not self._zookeeper.running:
            self._zookeeper.start()

    def start(self) -> None:
        """Start ZooKeeper unless it is running, then the broker."""
        self.start_zookeeper()
        super().start()

    def kill(self) -> None:
        """SIGKILL, then wait until the session expired in ZooKeeper: only then others can use its directories."""
        if self.running:
            super().kill()
            self._wait_unregistered()

    def close(self) -> None:
        """Also end ZooKeeper."""
        super(KafkaMember, self).kill()
        self._zookeeper.kill()


class ZooKeeperProcess(_JavaServer):
    """The ZooKeeper of Apache Kafka's 3.9.1 jars."""

    kind = "zookeeper"
    release = KAFKA_OLD
    script = "zookeeper-server-start"

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self._number = 1
        self._peers: dict[str, str] = {}

    def join(self, number: int, hosts: Mapping[int, tuple[str, int]]) -> None:
        """Be one of several servers: its number, and for each number the host and the first of two ports between servers."""
        self._number = number
        self._peers = {f"server.{each}": f"{host}:{port}:{port + 1}" for each, (host, port) in hosts.items()}

    @property
    def leads(self) -> bool:
        """Whether it serves clients as the leader of several servers."""
        return b"Mode: leader" in self._state()

    def _state(self) -> bytes:
        try:
            with socket.create_connection((self.host, self.port), 1) as connection:
                connection.sendall(b"srvr")
                return connection.makefile("rb").read()
        except OSError:
            return b""

    def _properties(self) -> dict[str, str]:
        if self._peers:
            self.data.mkdir(exist_ok=True)
            (self.data / "myid").write_text(str(self._number))
        # A server that is alone needs no limits; of several, one that does not answer for 5 s is left.
        return {"dataDir": str(self.data), "clientPort": str(self.port), "clientPortAddress": self.host, "admin.enableServer": "false",
                "tickTime": "500", "maxSessionTimeout": "60000", "initLimit": "40", "syncLimit": "10", **self._peers}

    def _is_ready(self) -> bool:
        """Whether it serves clients: of several servers only those of a quorum do."""
        return b"Mode: " in self._state()


def _answers(address: str, broker_id: int) -> bool:
    """Whether the broker is in its own metadata: before that, clients get an empty list of brokers."""
    try:
        with RawConnection(address) as connection:
            return any(broker.node_id == broker_id for broker in connection.call(MetadataRequest(topics=[]), version=1).brokers)
    except OSError:
        return False
