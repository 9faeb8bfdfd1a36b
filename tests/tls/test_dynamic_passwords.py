"""Passwords of key stores in the metadata: written by Kafka's tool before the first start and by clients, encrypted, and rotated."""

from __future__ import annotations

import json
import re
import shlex
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from kazoo.client import KazooClient

from tests.cli.commands import run as txbroker
from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_OLD
from tests.support.certificates import PASSWORD, Authority
from tests.support.kafka import ZooKeeperProcess
from tests.support.server import HOST, ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.config.password_encoder import EncoderSettings, PasswordEncoder

pytestmark = [pytest.mark.process, pytest.mark.extended]

PREFIX = "listener.name.outside.ssl"
SECRET, NEW_SECRET = "the secret of the encoder", "another secret"


class Running:
    """A broker with ZooKeeper whose key store is encrypted; no file of the broker has its password."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.authority = Authority(folder)
        self.tls = f"{HOST}:{free_port()}"
        self.zookeeper = f"{zookeeper.address}/{folder.name}"
        self.server = BrokerProcess(folder, {"broker.id": "1", "zookeeper.connect": self.zookeeper})
        self.server.port = free_port()
        self.server.overrides |= {
            "listeners": f"PLAINTEXT://{self.server.address},OUTSIDE://{self.tls}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
            f"{PREFIX}.keystore.type": "PKCS12",
            f"{PREFIX}.keystore.location": str(self.authority.issue("first").pkcs12()),
            "password.encoder.secret": SECRET,
        }

    def shown(self) -> int:
        """The serial number of the certificate that clients get."""
        host, _, port = self.tls.rpartition(":")
        certificate = x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port)), timeout=PATIENCE_S).encode())
        return int(certificate.serial_number)

    def stored(self) -> dict[str, str]:
        """The configuration of the broker in ZooKeeper."""
        client = KazooClient(self.zookeeper)
        client.start(timeout=PATIENCE_S)
        try:
            data, _ = client.get("/config/brokers/1")
        finally:
            client.stop()
            client.close()
        found: dict[str, str] = json.loads(data)["config"]
        return found


def test_a_password_that_cannot_be_read_is_deleted_while_the_broker_is_stopped(server_directory: Path, name: str) -> None:
    """A broker without ZooKeeper, by the command that its refusal names."""
    folder = server_directory / name
    folder.mkdir()
    authority = Authority(folder)
    server = BrokerProcess(folder, {"broker.id": "1"})
    server.port = free_port()
    server.overrides |= {
        "listeners": f"PLAINTEXT://{server.address},OUTSIDE://{HOST}:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL", f"{PREFIX}.keystore.type": "PEM",
        f"{PREFIX}.keystore.location": str(authority.issue("first").pem()), "password.encoder.secret": SECRET,
    }  # fmt: skip
    broker = ("--alter", "--broker", "1")
    key = f"{PREFIX}.key.password"
    try:
        server.start()
        txbroker("configs", "--bootstrap-server", server.address, *broker, "--add-config", f"{key}={PASSWORD}")
        _, complaint = txbroker("configs", "--log-dirs", str(server.data), *broker, "--delete-config", key, status=1)
        assert "if a broker is running on it, stop it first" in complaint
        server.stop()
        server.overrides["password.encoder.secret"] = NEW_SECRET
        with pytest.raises(ServerFailed) as refused:
            server.start()
        (command,) = re.findall(r"while no broker runs: `txbroker (configs [^`]+)`", str(refused.value))
        txbroker(*shlex.split(command))
        server.start()
    finally:
        server.close()


@pytest.fixture
def running(server_directory: Path, name: str) -> Iterator[Running]:
    zookeeper = ZooKeeperProcess(server_directory / f"{name}-zookeeper")
    zookeeper.start()
    folder = server_directory / name
    folder.mkdir()
    found = Running(folder, zookeeper)
    yield found
    found.server.close()
    zookeeper.close()


def test_what_kafka_and_clients_store_is_read_and_rotated(running: Running) -> None:
    # As Kafka's documentation: before the first start, with the secret among the values, which is not stored.
    client = KazooClient(running.zookeeper.partition("/")[0])
    client.start(timeout=PATIENCE_S)
    client.ensure_path(f"/{running.zookeeper.partition('/')[2]}")
    client.stop()
    client.close()
    values = f"{PREFIX}.keystore.password={PASSWORD},password.encoder.secret={SECRET}"
    java.run("kafka-configs", "--zookeeper", running.zookeeper, "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config",
             values, release=KAFKA_OLD)  # fmt: skip
    assert list(running.stored()) == [f"{PREFIX}.keystore.password"] and PASSWORD not in str(running.stored())
    running.server.start()
    first = running.shown()

    # A client sets another store and its password; the broker uses it at once.
    second = running.authority.issue("first")
    path = second.pkcs12().rename(running.server.directory / "second.p12")
    values = f"{PREFIX}.keystore.location={path},{PREFIX}.keystore.password={PASSWORD}"
    java.run("kafka-configs", "--bootstrap-server", running.server.address, "--entity-type", "brokers", "--entity-name", "1", "--alter",
             "--add-config", values)  # fmt: skip
    until(lambda: running.shown() == second.certificate.serial_number != first, "the broker uses the other store")
    stored = running.stored()
    assert PasswordEncoder(EncoderSettings(SECRET)).decode(stored[f"{PREFIX}.keystore.password"]) == PASSWORD
    with pytest.raises(java.ToolFailed, match=r"does not open .*: the password is wrong"):
        java.run("kafka-configs", "--bootstrap-server", running.server.address, "--entity-type", "brokers", "--entity-name", "1", "--alter",
                 "--add-config", f"{PREFIX}.keystore.password=wrong")  # fmt: skip
    assert running.stored() == stored

    # Another secret: the broker encrypts the password again when it starts, and does not need the old one any more.
    for secrets in ({"password.encoder.secret": NEW_SECRET, "password.encoder.old.secret": SECRET}, {}):
        running.server.stop()
        running.server.overrides |= secrets
        if not secrets:
            del running.server.overrides["password.encoder.old.secret"]
        running.server.start()
        until(lambda: running.shown() == second.certificate.serial_number, "the broker uses the store")
        assert PasswordEncoder(EncoderSettings(NEW_SECRET)).decode(running.stored()[f"{PREFIX}.keystore.password"]) == PASSWORD
    log = running.server.log()
    assert [secret for secret in (SECRET, NEW_SECRET, PASSWORD) if secret in log] == []
