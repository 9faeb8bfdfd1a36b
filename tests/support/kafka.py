"""Apache Kafka as a process: the broker that these tests are checked against, and measured beside."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from kafka.protocol.metadata import MetadataRequest
from kazoo.client import KazooClient

from tests.support import java
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.raw import RawConnection
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S, until

_CLUSTER_ID = "dHhicm9rZXItdGVzdHMtMQ"  # any id of Kafka's form
_SESSION_TIMEOUT_MS = 9000  # on a busy machine a JVM may be silent for seconds
_ONE_REPLICA = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class _JavaServer(Server):
    """A server out of Apache Kafka's jars, with a properties file."""

    release: str
    stopped_status = 143  # a JVM that SIGTERM stopped, cleanly or not
    script = "kafka-server-start"
    java_options: tuple[str, ...] = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    archives_classes = True  # to start sooner than users see it

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
        self._controller_port = free_port()

    def start(self) -> None:
        """Format the data directory if it is new, then start."""
        if not (self.data / "meta.properties").exists():
            self._command()
            java.run("kafka-storage", "format", "-t", _CLUSTER_ID, "-c", self.directory / "server.properties", release=self.release)
        super().start()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            # A killed broker may come back once its old registration has lapsed.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **_ONE_REPLICA,
            **self.overrides,
        }

    def _is_ready(self) -> bool:
        return _answers(self.address)


class KafkaOldProcess(_JavaServer):
    """Apache Kafka 3.9.1 on a ZooKeeper of its own."""

    kind = "kafka-3.9"
    release = KAFKA_OLD

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self._zookeeper = ZooKeeperProcess(directory / "zookeeper")

    @property
    def zookeeper(self) -> str:
        """host:port of its ZooKeeper, which runs on when the broker is stopped or killed."""
        return self._zookeeper.address

    def start_zookeeper(self) -> None:
        """Start ZooKeeper alone, if it is not there yet."""
        if not self._zookeeper.running:
            self._zookeeper.start()

    def start(self) -> None:
        """Start ZooKeeper if it is not there yet, then the broker."""
        self.start_zookeeper()
        super().start()

    def kill(self) -> None:
        """SIGKILL, and wait until ZooKeeper has forgotten the session: the broker would not start again before that."""
        if self.running:
            super().kill()
            client = KazooClient(self.zookeeper)
            client.start(timeout=PATIENCE_S)
            until(lambda: client.exists("/brokers/ids/1") is None, "ZooKeeper has forgotten the broker", every_s=0.1)
            client.stop()
            client.close()

    def close(self) -> None:
        """End ZooKeeper too."""
        super().kill()
        self._zookeeper.kill()

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": self._zookeeper.address,
            "zookeeper.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": "30000",  # a busy machine takes longer than a session lasts
            "log.dirs": str(self.data),
            **_ONE_REPLICA,
            **self.overrides,
        }

    def _is_ready(self) -> bool:
        return _answers(self.address)


class ZooKeeperProcess(_JavaServer):
    """The ZooKeeper of Apache Kafka's 3.9.1 jars."""

    kind = "zookeeper"
    release = KAFKA_OLD
    script = "zookeeper-server-start"

    def _properties(self) -> dict[str, str]:
        return {"dataDir": str(self.data), "clientPort": str(self.port), "clientPortAddress": HOST, "admin.enableServer": "false",
                "tickTime": "500"}

    def _is_ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True


def _answers(address: str) -> bool:
    """Whether the broker there knows itself: before that, clients would see a cluster of nobody."""
    try:
        with RawConnection(address) as connection:
            return len(connection.call(MetadataRequest(topics=[]), version=1).brokers) == 1
    except OSError:
        return False
