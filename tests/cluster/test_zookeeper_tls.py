"""Brokers whose ZooKeeper has TLS only, and asks for their certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import tls
from tests.support.broker import BrokerProcess
from tests.support.kafka import ZooKeeperProcess
from tests.support.raw_admin import create_topic
from tests.support.server import free_port
from tests.support.waiting import until


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
