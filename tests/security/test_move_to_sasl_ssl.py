"""A running cluster moves from PLAINTEXT to SASL_SSL by the steps of docs/security.md, under load: nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run as txbroker
from tests.support.acls import listed_acls
from tests.support.cluster import Cluster
from tests.support.rolling_changes import PARTITIONS, Load, consumed, in_sync, roll
from tests.support.server import HOST, free_port
from tests.support.waiting import until
from txbroker.config.properties import parse_properties

pytestmark = [pytest.mark.process, pytest.mark.extended]

PLAIN = {"security.protocol": "PLAINTEXT"}
COPIED = ("ssl.", "sasl.", "listener.name.", "txbroker.scram.", "authorizer.", "password.")


def test_a_plaintext_cluster_moves_to_sasl_ssl(start_cluster: Callable[..., Cluster], tmp_path: Path, name: str) -> None:
    cluster = start_cluster({"min.insync.replicas": "2", "default.replication.factor": "3"})
    cluster.create_topic(name, partitions=PARTITIONS, replication_factor=3)
    plain_addresses = {broker_id: server.address for broker_id, server in cluster.brokers.items()}
    secure_addresses = {broker_id: f"{HOST}:{free_port()}" for broker_id in cluster.brokers}
    written = tmp_path / "secured"
    brokers = [part for broker_id, address in secure_addresses.items() for part in ("--broker", f"{broker_id}={address}")]
    txbroker("secure", "init", str(written), "--zookeeper", cluster.zookeeper_connect, *brokers)

    def librdkafka(user: str) -> dict[str, str]:
        lines = (written / f"{user}-librdkafka.conf").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def addresses(broker_id: int, *, plain: bool) -> dict[str, str]:
        listeners = f"SASL_SSL://{secure_addresses[broker_id]}"
        listeners = f"PLAINTEXT://{plain_addresses[broker_id]},{listeners}" if plain else listeners
        return {"listeners": listeners, "advertised.listeners": listeners}

    def added(broker_id: int) -> dict[str, str]:
        path = written / f"broker-{broker_id}" / "broker.properties"
        keys = {key: found.text for key, found in parse_properties(path.read_bytes(), str(path), {}).items()}
        return {**{key: text for key, text in keys.items() if key.startswith(COPIED)}, **addresses(broker_id, plain=True),
                "inter.broker.listener.name": "PLAINTEXT", "super.users": "User:admin;User:broker;User:ANONYMOUS"}  # fmt: skip

    plain, admin = {**PLAIN, "bootstrap.servers": cluster.bootstrap}, librdkafka("admin")
    before, after = Load("plain", name, plain), Load("secured", name, librdkafka("client"))
    try:
        before.start()
        before.until_more()
        roll(cluster, lambda: in_sync(plain, name), added)
        before.until_more()
        flags = ("--bootstrap-server", ",".join(secure_addresses.values()), "--command-config", str(written / "admin.properties"))
        txbroker("acls", *flags, "--add", "--allow-principal", "User:client", "--producer", "--consumer", "--topic", name, "--group", "*")
        # The broker that served the command has them. librdkafka asks again only after five minutes about a topic that it may not use.
        until(lambda: len({frozenset(listed_acls(address)) for address in plain_addresses.values()}) == 1, "each broker has the ACLs")
        after.start()
        after.until_more()
        roll(cluster, lambda: in_sync(admin, name), lambda broker_id: {"inter.broker.listener.name": "SASL_SSL"})
        before.until_more()
        after.until_more()
        before.end()
        roll(cluster, lambda: in_sync(admin, name),
             lambda broker_id: {**addresses(broker_id, plain=False), "super.users": "User:admin;User:broker"})  # fmt: skip
        after.until_more()
        after.end()
    finally:
        before.stop()
        after.stop()
    acknowledged = before.acknowledged | after.acknowledged
    assert acknowledged <= consumed(librdkafka("client"), name, acknowledged)
