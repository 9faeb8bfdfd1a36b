"""Real brokers: certificates that are replaced under open connections, and TLS between brokers, also with Apache Kafka 3.9."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.support.broker import BrokerProcess
from tests.support.certificates import PASSWORD, Authority, Issued
from tests.support.cluster import Cluster
from tests.support.java import ToolFailed, run
from tests.support.kafka import KafkaMember
from tests.support.processes import Processes
from tests.support.server import HOST, Server, ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until


class Listening:
    """A broker with a listener of TLS beside the plain one, and a file with its certificate."""

    def __init__(self, start: Callable[[dict[str, str]], Server], folder: Path) -> None:
        self.authority = Authority(folder)
        self.own = folder / "own.pem"
        self.put(self.authority.issue("own"))
        plain, self.port = free_port(), free_port()
        self.server = start(
            {
                "listeners": f"PLAINTEXT://{HOST}:{plain},SECURE://{HOST}:{self.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
                "listener.name.secure.ssl.keystore.type": "PEM",
                "listener.name.secure.ssl.keystore.location": str(self.own),
            }
        )

    def put(self, issued: Issued) -> Issued:
        self.own.write_text(issued.key_pem() + issued.chain_pem())
        return issued

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.authority.text())
        return context.wrap_socket(socket.create_connection((HOST, self.port)), server_hostname="localhost")

    def shown(self) -> bytes | None:
        """The certificate that a new connection gets."""
        with self.connect() as connection:
            return connection.getpeercert(binary_form=True)


@pytest.fixture
def listening(start_broker: Callable[[dict[str, str]], Server], tmp_path: Path) -> Listening:
    return Listening(start_broker, tmp_path)


VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")  # ApiVersions v0


def is_served(connection: ssl.SSLSocket) -> bool:
    connection.sendall(VERSIONS)
    return connection.recv(8)[4:] == b"\0\0\0\7" and bool(connection.recv(100_000))


def test_sighup_loads_another_certificate_and_open_connections_go_on(listening: Listening) -> None:
    with listening.connect() as before:
        assert is_served(before)
        issued = listening.put(listening.authority.issue("own", days=(-1, 99)))
        os.kill(listening.server.pid, signal.SIGHUP)
        until(lambda: listening.shown() == issued.der, "new connections get the new certificate")
        assert is_served(before)
    log = listening.server.log_path.read_text()
    assert "SIGHUP: loading certificates again" in log
    assert "listener SECURE has loaded its certificate again: CN=own,O=Test, valid until" in log


def test_sighup_loads_another_certificate_in_all_processes(tmp_path: Path) -> None:
    authority, own = Authority(tmp_path), tmp_path / "own.pem"

    def put(days: int) -> bytes:
        issued = authority.issue("own", days=(-1, days))
        own.write_text(issued.key_pem() + issued.chain_pem())
        return issued.der

    def shown(port: int) -> bytes | None:
        context = ssl.create_default_context(cadata=authority.text())
        with context.wrap_socket(socket.create_connection((HOST, port), PATIENCE_S), server_hostname="localhost") as connection:
            return connection.getpeercert(binary_form=True)

    put(30)
    plain, secure = free_port(), free_port()
    server = Processes(tmp_path / "processes", {
        "listeners": f"PLAINTEXT://{HOST}:{plain},SECURE://{HOST}:{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL", "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.ssl.keystore.type": "PEM", "listener.name.secure.ssl.keystore.location": str(own),
    })  # fmt: skip
    server.port = plain
    server.start()
    try:
        ports, children = [secure + number for number in range(server.count)], set(server.children())
        new = put(99)
        os.kill(server.pid, signal.SIGHUP)
        # A process that has found the new file itself loads it twice.
        until(lambda: server.log().count("listener SECURE has loaded its certificate again") >= server.count, "all processes load it")
        until(lambda: [shown(port) for port in ports] == [new] * server.count, "all processes use it")
        assert set(server.children()) == children
    finally:
        server.close()
    assert "SIGHUP: stopping" not in server.log()


def test_a_replaced_file_is_found(listening: Listening) -> None:
    issued = listening.put(listening.authority.issue("own", days=(-1, 99)))
    until(lambda: listening.shown() == issued.der, "new connections get the new certificate")


def test_kafkas_tool_loads_the_same_file_again_or_is_refused(listening: Listening) -> None:
    server = listening.server
    broker_id = "1001"
    common = ("--bootstrap-server", server.address, "--entity-type", "brokers", "--entity-name", broker_id)
    change = f"listener.name.secure.ssl.keystore.location={listening.own}"
    issued = listening.put(listening.authority.issue("own", days=(-1, 99)))
    run("kafka-configs", *common, "--alter", "--add-config", change)
    until(lambda: listening.shown() == issued.der, "new connections get the new certificate")
    listening.own.write_text("nothing")
    with pytest.raises(ToolFailed) as failed:
        run("kafka-configs", *common, "--alter", "--add-config", change)
    assert "which cannot be used: it has no private key" in str(failed.value)
    run("kafka-configs", *common, "--alter", "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in run("kafka-configs", *common, "--describe")
    assert listening.shown() == issued.der


def serves_without_certificate(listening: Listening) -> bool:
    try:
        with listening.connect() as connection:
            return is_served(connection)
    except OSError:
        return False


def test_a_trust_store_of_the_metadata_that_is_gone_prevents_the_start(listening: Listening, name: str, tmp_path: Path) -> None:
    """With that of the file the broker would let in other clients than it was configured to."""
    server, stored = listening.server, tmp_path / f"{name}.pem"
    stored.write_text(Authority(tmp_path, "other").text())
    assert serves_without_certificate(listening)
    prefix = "listener.name.secure.ssl."
    values = {"client.auth": "required", "truststore.type": "PEM", "truststore.location": str(stored)}
    run("kafka-configs", "--bootstrap-server", server.address, "--entity-type", "brokers", "--entity-name", "1001", "--alter",
        "--add-config", ",".join(f"{prefix}{key}={value}" for key, value in values.items()))  # fmt: skip
    server.stop()
    stored.rename(tmp_path / "gone")
    with pytest.raises(ServerFailed) as failed:
        server.start()
    assert f"{prefix}truststore.location is {stored}, which cannot be read: No such file or directory (listener " in str(failed.value)
    assert f"/config/brokers/1001 of the metadata sets {prefix}truststore.location, {prefix}truststore.type: " in str(failed.value)
    (tmp_path / "gone").rename(stored)
    server.start()
    assert not serves_without_certificate(listening)


# Between brokers


class SecuredCluster(Cluster):
    """Brokers that connect to each other with mutual TLS, beside a plain listener for the test's clients."""

    def __init__(self, directory: Path, kinds: Sequence[str], folder: Path) -> None:
        super().__init__(directory, kinds)
        self.authority = Authority(folder)
        for broker_id, server in self.brokers.items():
            self.secure(server, self.authority.issue(f"broker-{broker_id}"))

    def secure(self, server: Server, issued: Issued) -> None:
        is_kafka = isinstance(server, KafkaMember)
        kind = "PKCS12" if is_kafka else "PEM"
        found = {
            "listeners": f"PLAINTEXT://{server.address},BETWEEN://{HOST}:{free_port()}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:SSL",
            "inter.broker.listener.name": "BETWEEN",
            "ssl.keystore.type": kind, "ssl.keystore.location": str(issued.pkcs12() if is_kafka else issued.pem()),
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(self.authority.truststore(kind) if is_kafka else self.authority.pem()),
            "ssl.client.auth": "required",
        }  # fmt: skip
        found["advertised.listeners"] = found["listeners"]
        if is_kafka:
            found |= {"ssl.keystore.password": PASSWORD, "ssl.truststore.password": PASSWORD}
        server.overrides |= found


@pytest.fixture
def secured(server_directory: Path, tmp_path: Path, name: str) -> Iterator[Callable[..., SecuredCluster]]:
    made: list[SecuredCluster] = []

    def make(*kinds: str) -> SecuredCluster:
        made.append(SecuredCluster(server_directory / name, kinds, tmp_path))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def produce(cluster: Cluster, topic: str, values: Sequence[bytes]) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", retries=10)
    for value in values:
        producer.send(topic, value)
    producer.close()


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer: Any = KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    found = [next(consumer).value for _ in range(count)]
    consumer.close()
    return found


@pytest.mark.extended
@pytest.mark.parametrize(
    "kinds", [(BrokerProcess.kind,) * 3, (KafkaMember.kind, BrokerProcess.kind, BrokerProcess.kind)], ids=["txbroker", "mixed"]
)
def test_brokers_replicate_with_mutual_tls(secured: Callable[..., SecuredCluster], kinds: tuple[str, ...], name: str) -> None:
    cluster = secured(*kinds)
    cluster.start()
    cluster.create_topic(name, 3)
    values = [b"%d" % number for number in range(300)]
    produce(cluster, name, values)
    assert sorted(consume(cluster, name, 300)) == sorted(values)
    cluster.brokers[2].stop()
    produce(cluster, name, values)
    cluster.brokers[2].start()
    assert sorted(consume(cluster, name, 600)) == sorted(values * 2)


@pytest.mark.extended
def test_a_broker_with_another_name_is_not_connected_to(secured: Callable[..., SecuredCluster]) -> None:
    """The host that a broker advertises must be in its certificate, as with Kafka."""
    cluster = secured(BrokerProcess.kind, BrokerProcess.kind)
    cluster.secure(cluster.brokers[2], cluster.authority.issue("wrong", ["other.example"]))
    cluster.start_zookeeper()
    for server in cluster.brokers.values():
        server.start()
    text = "the certificate of 127.0.0.1:"
    until(lambda: text in cluster.brokers[1].log_path.read_text(), "the refusal is in the log")
    assert "is not accepted: IP address mismatch" in cluster.brokers[1].log_path.read_text()
