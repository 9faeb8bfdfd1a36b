"""A running cluster moves from PLAINTEXT to SASL_SSL by the steps of docs/security.md, under load: nothing acknowledged is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.cli.commands import run as txbroker
from tests.support.acls import listed_acls
from tests.support.cluster import Cluster
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.config.properties import parse_properties

pytestmark = [pytest.mark.process, pytest.mark.extended]

PARTITIONS = 3
PLAIN = {"security.protocol": "PLAINTEXT"}
COPIED = ("ssl.", "sasl.", "listener.name.", "txbroker.scram.", "authorizer.", "password.")


class Load:
    """A producer in its default settings, and what was acknowledged to it."""

    def __init__(self, name: str, topic: str, settings: Mapping[str, Any]) -> None:
        self.acknowledged: set[bytes] = set()
        self.errors: list[KafkaError] = []
        self._name = name
        self._topic = topic
        self._producer = Producer({**settings, "linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())
        else:
            self.errors.append(error)

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                value = f"{self._name} {number}".encode()
                self._producer.produce(self._topic, value, partition=number % PARTITIONS, callback=self._delivered)
                self._producer.poll(0.002)
                number += 1
        except KafkaException as error:
            self.errors.append(error.args[0])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def end(self) -> None:
        """Stop; all that was sent is acknowledged."""
        self.stop()
        assert (self._producer.flush(PATIENCE_S), self.errors) == (0, [])

    def until_more(self) -> None:
        """Records are acknowledged now."""
        before = len(self.acknowledged)
        until(lambda: self.errors or len(self.acknowledged) > before + 100, f"records of {self._name} are acknowledged")
        assert self.errors == []


def in_sync(settings: Mapping[str, Any], topic: str) -> bool:
    try:
        found = AdminClient(dict(settings)).list_topics(topic, timeout=5).topics[topic].partitions.values()
    except KafkaException:
        return False
    return len(found) == PARTITIONS and all(len(partition.isrs) == 3 for partition in found)


def roll(cluster: Cluster, ready: Callable[[], bool], change: Callable[[int], Mapping[str, str]]) -> None:
    """Restart each broker with other settings, when all replicas are in sync."""
    for broker_id, server in cluster.brokers.items():
        until(ready, "all replicas are in sync")
        server.overrides |= change(broker_id)
        assert server.stop() == 0
        server.start()
    until(ready, "all replicas are in sync")


def consumed(settings: Mapping[str, Any], topic: str, wanted: set[bytes]) -> set[bytes]:
    """All values of the topic, which has at least the wanted ones."""
    consumer = Consumer({**settings, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: set[bytes] = set()
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not wanted <= found and time.monotonic() < end_s:
            found |= {message.value() or b"" for message in consumer.consume(1000, 1) if message.error() is None}
    finally:
        consumer.close()
    return found


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
