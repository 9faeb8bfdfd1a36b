"""The topic of the audit log in a cluster with SASL_SSL between brokers: the lines of each broker reach the leader, an old one or a new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.cli.commands import run as txbroker
from tests.metrics.scraping import Scrape
from tests.support.broker import BrokerProcess
from tests.support.secured_cluster import BROKER, SCRAM, LoggedIn, SaslSslCluster
from tests.support.waiting import until
from txbroker.client.client_security import Sasl

pytestmark = [pytest.mark.process, pytest.mark.extended]

TOPIC = "audit"


@pytest.fixture
def cluster(server_directory: Path, tmp_path: Path, name: str) -> Iterator[SaslSslCluster]:
    events = "denial,login,login_failure,change,use"
    made = SaslSslCluster(server_directory / name, [BrokerProcess.kind] * 3, tmp_path, overrides={
        "txbroker.audit.topic": TOPIC, "txbroker.audit.events": events, "default.replication.factor": "3", "min.insync.replicas": "2",
    })  # fmt: skip
    yield made
    made.close()


class Lines:
    """All lines of the topic, by the time in which they are read."""

    def __init__(self, cluster: SaslSslCluster) -> None:
        self.found: list[dict[str, Any]] = []
        self.keys: set[tuple[bytes | None, str | None]] = set()
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "auditors", "auto.offset.reset": "earliest"})
        self._consumer.subscribe([TOPIC])

    def has(self, **wanted: object) -> bool:
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                line = json.loads(message.value() or b"")
                self.found.append(line)
                key = message.key()
                assert not isinstance(key, str)
                self.keys.add((key, line.get("principal")))
        return any(wanted.items() <= line.items() for line in self.found)

    def close(self) -> None:
        self._consumer.close()


def test_lines_of_all_brokers_are_in_the_topic(cluster: SaslSslCluster) -> None:
    cluster.start()
    fail_to_log_in(cluster, 1, "first")
    cluster.until(lambda: cluster.partitions(TOPIC), "the topic is created")
    cluster.until_in_sync(TOPIC)
    lines = Lines(cluster)
    try:
        for broker_id in cluster.brokers:
            fail_to_log_in(cluster, broker_id, f"user {broker_id}")
            wanted = {"event": "login_failure", "broker": broker_id, "claimed_user": f"user {broker_id}"}
            until(lambda wanted=wanted: lines.has(**wanted), f"the line of broker {broker_id} is in the topic")  # type: ignore[misc]
        until(lambda: lines.has(claimed_user="first"), "a line from before there was a topic")
        leader = cluster.leader(TOPIC)
        assert cluster.brokers[leader].stop() == 0
        cluster.until_leader_is_not(leader, TOPIC)
        for broker_id in cluster.serving:
            fail_to_log_in(cluster, broker_id, "late")
            wanted = {"broker": broker_id, "claimed_user": "late"}
            until(lambda wanted=wanted: lines.has(**wanted), f"the line of broker {broker_id} reaches the new leader")  # type: ignore[misc]
        txbroker("topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "another", "--replication-factor", "2")
        until(lambda: lines.has(event="change", resource="another", principal="User:ANONYMOUS"), "an administrator's change")
    finally:
        lines.close()
    assert not [line for line in lines.found if line.get("principal") == f"User:{BROKER}"], "what brokers do is not recorded"
    assert all(key == (None if principal is None else principal.encode()) for key, principal in lines.keys)
    for server in cluster.serving.values():
        assert Scrape(server).samples["txbroker_audit_lost_total"] == {frozenset(): 0}


def fail_to_log_in(cluster: SaslSslCluster, broker_id: int, user: str) -> None:
    with pytest.raises(AssertionError, match="Authentication failed"):
        LoggedIn(cluster.secure[broker_id], cluster.authority, Sasl(SCRAM, user, "a guess"))
