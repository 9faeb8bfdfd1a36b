"""Brokers log in at each other: clusters of txbroker alone and together with Apache Kafka 3.9, and sessions that are renewed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.metrics.scraping import Scrape
from tests.security.test_sasl_brokers import salt_of
from tests.support import oauth
from tests.support.cluster import Cluster
from tests.support.oauth import SigningKey, jwks
from tests.support.raw import RawConnection
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.sasl import MODULES, quoted
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.security.scram import ScramCredential
from txbroker.wire import scram
from txbroker.wire.scram import HASHES

pytestmark = [pytest.mark.process, pytest.mark.extended]

LIFETIME_MS = 3_000
USER, PASSWORD = "broker", "secret of brokers"
PREFIX = "listener.name.brokers"


class SecuredCluster(Cluster):
    """With a listener of SASL_PLAINTEXT between brokers, beside the one of PLAINTEXT for clients."""

    def __init__(self, directory: Path, kinds: tuple[str, ...], mechanism: str) -> None:
        self._mechanism = mechanism
        super().__init__(directory, kinds)
        for server in self.brokers.values():
            between = f"BROKERS://{HOST}:{free_port()}"
            for key in ("listeners", "advertised.listeners"):
                server.overrides[key] = f"PLAINTEXT://{server.address},{between}"
            own = _token_settings(directory) if mechanism == "OAUTHBEARER" else _password_settings(mechanism)
            server.overrides |= {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "sasl.enabled.mechanisms": mechanism,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                "connections.max.reauth.ms": str(LIFETIME_MS),
                **{f"{PREFIX}.{mechanism.lower()}.sasl.{key}": value for key, value in own.items()},
                **({"txbroker.metrics.port": "0"} if server.kind == "txbroker" else {}),
            }

    def start_zookeeper(self) -> None:
        """Before the first broker starts, its user must be there."""
        super().start_zookeeper()
        if self._mechanism not in HASHES:
            return
        salted = scram.salted_password(HASHES[self._mechanism], PASSWORD, b"salt", 4096)
        credential = ScramCredential.of_salted(self._mechanism, b"salt", salted, 4096).format()
        client = KazooClient(self.zookeeper_connect.partition("/")[0])
        client.start(timeout=PATIENCE_S)
        try:
            data = json.dumps({"version": 1, "config": {self._mechanism: credential}}).encode()
            client.create(f"/cluster/config/users/{USER}", data, makepath=True)
        finally:
            client.stop()
            client.close()


def _password_settings(mechanism: str) -> dict[str, str]:
    users = f" user_{USER}={quoted(PASSWORD)};" if mechanism == "PLAIN" else ";"
    return {"jaas.config": f"{MODULES[mechanism]} required username={quoted(USER)} password={quoted(PASSWORD)}{users}"}


def _token_settings(directory: Path) -> dict[str, str]:
    """All brokers have the same token, in a file."""
    key, token, keys = SigningKey("brokers"), directory / "token", directory / "keys.json"
    if not token.exists():
        token.write_text(key.token(USER))
        keys.write_bytes(jwks(key))
    return {
        "jaas.config": f"{oauth.MODULE} required;",
        "server.callback.handler.class": oauth.VALIDATOR,
        "login.callback.handler.class": oauth.LOGIN,
        "oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "oauthbearer.token.endpoint.url": token.as_uri(),
    }


@pytest.fixture
def started(request: pytest.FixtureRequest, server_directory: Path, name: str) -> Iterator[Any]:
    clusters = []

    def start(kinds: tuple[str, ...], mechanism: str) -> SecuredCluster:
        cluster = SecuredCluster(server_directory / name, kinds, mechanism)
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in clusters:
        cluster.close()


@pytest.mark.parametrize(("kinds", "mechanism"), [
    (("txbroker",) * 3, "PLAIN"),
    (("txbroker", "kafka-3.9", "txbroker"), "SCRAM-SHA-512"),
    (("txbroker", "kafka-3.9", "txbroker"), "OAUTHBEARER"),
], ids=["txbroker", "mixed", "mixed-tokens"])  # fmt: skip
def test_a_cluster_replicates_over_logins(started: Any, kinds: tuple[str, ...], mechanism: str, name: str) -> None:
    cluster = started(kinds, mechanism)
    cluster.create_topic(name, partitions=3, replication_factor=3)
    data = batch(numbered(10))
    for partition in range(3):
        with RawConnection(cluster.brokers[cluster.leader(name, partition)].address) as connection:
            assert produce(connection, name, data, partition=partition, acks=-1).error_code == 0
    ours = [server for server in cluster.brokers.values() if server.kind == "txbroker"]
    before = {server.address: logins(server, mechanism) for server in ours}
    assert all(before.values()), "the others have logged in"
    until(lambda: all(logins(server, mechanism) >= before[server.address] + 4 for server in ours), "sessions are renewed")
    for server in ours:
        scrape = Scrape(server)
        assert scrape.by("txbroker_refusals_total", "reason")["session_expired"] == 0, "no connection was lost by that"
        assert "failed authentication" not in server.log()
    cluster.until_in_sync(name)
    if mechanism in HASHES:
        salts = {salt_of(server.overrides["listeners"].rpartition("/")[2], "ghost", mechanism) for server in ours}
        assert len(salts) == 1, "a client cannot tell a user who does not exist by asking two brokers"


def logins(server: Any, mechanism: str) -> float:
    return Scrape(server).samples["txbroker_logins_total"].get(
        frozenset({("listener", "BROKERS"), ("mechanism", mechanism), ("result", "succeeded")}), 0
    )


def test_a_broker_with_a_wrong_password_says_so(server_directory: Path, name: str) -> None:
    cluster = SecuredCluster(server_directory / name, ("txbroker", "txbroker"), "PLAIN")
    try:
        cluster.start_zookeeper()
        key = f"{PREFIX}.plain.sasl.jaas.config"
        wrong = cluster.brokers[1].overrides[key].replace(f" password={quoted(PASSWORD)}", ' password="guess"', 1)
        cluster.brokers[1].overrides[key] = wrong
        cluster.brokers[1].start()  # the controller, which sends the second one its requests
        cluster.brokers[2].start()
        until(lambda: "as 'broker' with PLAIN on listener BROKERS: wrong password" in cluster.brokers[2].log(), "the second one logs it")
        text = "user broker could not log in: Authentication failed: Invalid username or password"
        until(lambda: text in cluster.brokers[1].log(), "the first one logs it")
    finally:
        cluster.close()
