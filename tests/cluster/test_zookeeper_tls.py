"""Brokers whose ZooKeeper has TLS only, and asks for their certificate."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import tls
from tests.support.broker import BrokerProcess
from tests.support.kafka import ZooKeeperProcess
from tests.support.raw_admin import create_topic
from tests.support.server import free_port
from tests.support.waiting import until
from txbroker.cluster.tree.zookeeper_tls import TlsSettings
from txbroker.errors import StartError


class SecureZooKeeper(ZooKeeperProcess):
    """It has a second port, with TLS."""

    def __init__(self, directory: Path, store: Path) -> None:
        super().__init__(directory)
        self._store = store
        self.secure_port = free_port()

    def _properties(self) -> dict[str, str]:
        store, trusted = str(self._store), str(tls.CERTIFICATE)
        return {**super()._properties(), "secureClientPort": str(self.secure_port), "secureClientPortAddress": self.host,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth": "need",
                "ssl.keyStore.location": store, "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": trusted, "ssl.trustStore.type": "PEM"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate in one file."""
    path = tmp_path_factory.mktemp("tls") / "store.pem"
    path.write_text(tls.KEY.read_text() + tls.CERTIFICATE.read_text())
    return path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[SecureZooKeeper]:
    process = SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), store)
    process.start()
    yield process
    process.kill()


def overrides(zookeeper: SecureZooKeeper, store: Path, chroot: str, **more: str) -> dict[str, str]:
    return {"broker.id": "1", "zookeeper.connect": f"{zookeeper.host}:{zookeeper.secure_port}/{chroot}",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(tls.CERTIFICATE), "zookeeper.ssl.keystore.location": str(store),
            **{key.replace("_", "."): value for key, value in more.items()}}


@pytest.mark.process
def test_a_broker_uses_a_zookeeper_with_tls(start_broker: Callable[..., BrokerProcess], secure: SecureZooKeeper, store: Path) -> None:
    server = start_broker(overrides(secure, store, "served"))
    create_topic(server, "t")
    # The process that ends the session of a killed broker uses TLS, too.
    server.kill()
    until(lambda: "is closed" in server.log(), "the session is closed")
    server.start()
    assert f"connected to ZooKeeper at {secure.host}:{secure.secure_port}" in server.log()


@pytest.mark.process
@pytest.mark.parametrize(("without", "problem"), [
    ("zookeeper.ssl.truststore.location", "CERTIFICATE_VERIFY_FAILED"),
    ("zookeeper.ssl.client.enable", "socket connection broken"),
])
def test_the_log_says_why_there_is_no_connection(secure: SecureZooKeeper, store: Path, tmp_path: Path, without: str, problem: str) -> None:
    settings = overrides(secure, store, "unserved", zookeeper_connection_timeout_ms="3000")
    del settings[without]
    server = BrokerProcess(tmp_path, settings)
    with pytest.raises(Exception, match="ended"):
        server.start()
    said = server.log()
    assert problem in said and "cannot connect to ZooKeeper" in said and "No ZooKeeper answers" in said
    attempts = said.count("cannot connect to ZooKeeper")
    assert 1 <= attempts <= 8, "the first, the second, the fourth attempt and so on"
    server.close()


def openssl(*arguments: str | Path) -> str:
    return subprocess.run(["openssl", *arguments, "-passout", "pass:secret"], capture_output=True, text=True, check=True).stdout


def test_which_files_are_refused(tmp_path: Path, store: Path) -> None:
    def problem(**settings: str) -> str:
        values = {"truststore": None, "keystore": None, "key_password": None, "verifies_host_name": True, **settings}
        with pytest.raises(StartError) as raised:
            TlsSettings(**values).context()  # type: ignore[arg-type]
        return str(raised.value)

    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert "is a Java key store, which txbroker cannot read: convert it to PEM with `keytool" in problem(truststore=str(java))
    assert problem(keystore=str(java)).startswith("zookeeper.ssl.keystore.location: ")
    packed = tmp_path / "store.p12"
    openssl("pkcs12", "-export", "-in", tls.CERTIFICATE, "-inkey", tls.KEY, "-out", packed)
    assert "is not PEM but PKCS12: convert it with `openssl pkcs12" in problem(keystore=str(packed))
    assert "cannot be read: No such file" in problem(truststore=str(tmp_path / "none.pem"))
    assert "does not have a private key and its certificate" in problem(keystore=str(tls.CERTIFICATE))
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_text(openssl("pkcs8", "-topk8", "-in", tls.KEY) + tls.CERTIFICATE.read_text())
    assert "its password is wrong" in problem(keystore=str(encrypted))
    context = TlsSettings(str(tls.CERTIFICATE), str(encrypted), "secret", verifies_host_name=False).context()
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
