"""Clusters with SASL_SSL between brokers: rules, users and ACLs that either kind of broker makes count on all, and users are no brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kazoo.client import KazooClient

from tests.metrics.scraping import Scrape
from tests.security.test_sasl_brokers import set_password
from tests.support.acls import ALLOW, LITERAL, READ, TOPIC, WRITE, Acl, create_acls, delete_acls, listed_acls
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaMember
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.sasl import client_jaas
from tests.support.secured_cluster import BROKER, LISTENER, PASSWORDS, SCRAM, SaslSslCluster
from tests.support.waiting import until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from txbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from txbroker.wire.messages.alter_partition import AlterPartitionRequest
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.stop_replica import StopReplicaRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest
from txbroker.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

pytestmark = [pytest.mark.process, pytest.mark.extended]

TOPIC_DENIED, CLUSTER_DENIED = 29, 31
Make = Callable[..., SaslSslCluster]


@pytest.fixture
def make(server_directory: Path, tmp_path: Path, name: str) -> Iterator[Make]:
    made: list[SaslSslCluster] = []

    def cluster(*kinds: str) -> SaslSslCluster:
        made.append(SaslSslCluster(server_directory / name, kinds, tmp_path))
        return made[-1]

    yield cluster
    for each in made:
        each.close()


def create_user(cluster: SaslSslCluster, kind: str, user: str) -> None:
    """At the controller, the only broker that serves it, which must be of this kind."""
    def created() -> bool:
        server = cluster.brokers[cluster.controller()]
        assert server.kind == kind
        return set_password(server.address, user, PASSWORDS[user]) == [(user, 0)]

    cluster.until(created, "the controller creates the user")


def move_controller(cluster: SaslSslCluster) -> None:
    """Let the brokers elect a controller. txbroker is notified sooner than Kafka."""
    zookeeper: Any = KazooClient(cluster.zookeeper_connect)
    zookeeper.start()
    try:
        before = zookeeper.get("/controller_epoch")[0]
        zookeeper.delete("/controller")
        until(lambda: zookeeper.get("/controller_epoch")[0] != before, "another election")
    finally:
        zookeeper.stop()
        zookeeper.close()
    cluster.until_registered()


def fetch_error(connection: Any, topic: str, partition: int, replica_id: int = -1) -> int:
    topics = FetchRequest.FetchTopic
    part = topics.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1,
                           forgotten_topics_data=[], topics=[topics(topic=topic, partitions=[part])])  # fmt: skip
    answer = connection.call(request, 11)
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)


@pytest.mark.parametrize("kinds", [
    (BrokerProcess.kind,) * 3, (BrokerProcess.kind, KafkaMember.kind, BrokerProcess.kind),
], ids=["txbroker", "mixed"])  # fmt: skip
def test_users_and_rules_of_each_broker_count_on_all(make: Make, kinds: tuple[str, ...], name: str) -> None:
    cluster = make(*kinds)
    cluster.start_zookeeper()
    cluster.start_brokers([2])
    create_user(cluster, kinds[1], "bob")
    cluster.start_brokers([1, 3])
    while cluster.brokers[cluster.controller()].kind != kinds[0]:
        move_controller(cluster)
    create_user(cluster, kinds[0], "alice")
    plain = [server.address for server in cluster.brokers.values()]
    cluster.create_topic(name, partitions=3)
    may_write = Acl(TOPIC, name, LITERAL, "User:alice", "*", WRITE, ALLOW)
    may_read = Acl(TOPIC, name, LITERAL, "User:bob", "*", READ, ALLOW)
    create_acls(plain[1], [may_write])
    create_acls(plain[0], [may_read])
    for address in plain:
        until(lambda address=address: listed_acls(address) == {may_write, may_read}, "each broker has the ACLs of all")  # type: ignore[misc]
    for partition in range(3):
        leader = cluster.leader(name, partition)
        with connected(cluster, leader, "alice") as alice, connected(cluster, leader, "bob") as bob:
            data = batch(numbered(10))
            assert produce(alice, name, data, partition=partition).error_code == 0, "acknowledged by all replicas"
            assert produce(bob, name, data, partition=partition).error_code == TOPIC_DENIED
            assert fetch_error(bob, name, partition) == 0
            assert fetch_error(alice, name, partition) == TOPIC_DENIED
    cluster.until_in_sync(name)
    delete_acls(plain[2], [may_read])
    with connected(cluster, cluster.leader(name), "bob") as bob:
        until(lambda: fetch_error(bob, name, 0) == TOPIC_DENIED, "a deletion counts for open connections everywhere")
    for broker_id in cluster.brokers:
        assert denied_as_a_user(cluster, broker_id, name) == {each: {CLUSTER_DENIED} for each in INTER_BROKER}
    for server in cluster.brokers.values():
        if server.kind == BrokerProcess.kind:
            logins = Scrape(server).samples["txbroker_logins_total"]
            assert logins[frozenset({("listener", LISTENER), ("mechanism", SCRAM), ("result", "succeeded")})] > 0


def connected(cluster: SaslSslCluster, broker_id: int, user: str, mechanism: str = SCRAM) -> Any:
    """A connection of a user, once the broker has its credentials."""
    problems: list[AssertionError] = []

    def attempt() -> Any:
        try:
            return cluster.connect(broker_id, user, mechanism)
        except AssertionError as error:
            problems.append(error)
            return None

    try:
        return until(attempt, f"{user} can log in at broker {broker_id}")
    except AssertionError:
        raise AssertionError(f"{problems[-1]!r}\n{cluster.brokers[broker_id].log_tail()}") from None


# Requests that only brokers may send.
INTER_BROKER = {
    "LeaderAndIsr": LeaderAndIsrRequest(
        controller_id=1, controller_epoch=99, broker_epoch=1, type=0, topic_states=[], live_leaders=[]
    ),
    "StopReplica": StopReplicaRequest(controller_id=1, controller_epoch=99, broker_epoch=1, topic_states=[]),
    "UpdateMetadata": UpdateMetadataRequest(controller_id=1, controller_epoch=99, broker_epoch=1, topic_states=[], live_brokers=[]),
    "ControlledShutdown": ControlledShutdownRequest(broker_id=1, broker_epoch=1),
    "AlterPartition": AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[]),
    "AllocateProducerIds": AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    "WriteTxnMarkers": WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=1,
                                   topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
    ),
    "AddPartitionsToTxn": AddPartitionsToTxnRequest(
        transactions=[AddPartitionsToTxnTransaction(transactional_id="t", producer_id=1, producer_epoch=0, verify_only=True, topics=[])]
    ),
}  # fmt: skip


def denied_as_a_user(cluster: SaslSslCluster, broker_id: int, topic: str) -> dict[str, set[int]]:
    """The errors of each request of brokers that alice sends, who may do nothing but write to one topic."""
    security = ClientSecurity.of(cluster.java("alice"))
    host, _, port = cluster.secure[broker_id].rpartition(":")
    found: dict[str, set[int]] = {}
    for request_name, request in INTER_BROKER.items():
        with BlockingConnection(host, int(port), ClientSettings(security=security)) as connection:
            answer = str(connection.call(request))
        found[request_name] = {int(code) for code in re.findall(r"error_code=(-?\d+)", answer)} - {0}
    with cluster.connect(broker_id, "alice") as connection:
        assert fetch_error(connection, topic, 0, replica_id=3) in (TOPIC_DENIED, CLUSTER_DENIED), "a fetch as another replica"
    return found


def test_a_broker_with_another_name_gets_no_login(make: Make) -> None:
    """The host that a broker advertises must be in its certificate: else it could be one that collects passwords."""
    cluster = make(BrokerProcess.kind, BrokerProcess.kind)
    cluster.brokers[2].overrides |= cluster.settings(2, cluster.authority.issue("wrong", ["other.example"]))
    cluster.start_zookeeper()
    for server in cluster.brokers.values():
        server.start()
    until(lambda: "the certificate of 127.0.0.1:" in cluster.brokers[1].log(), "the refusal is in the log")
    assert "is not accepted: IP address mismatch" in cluster.brokers[1].log()
    logins = Scrape(cluster.brokers[2]).samples["txbroker_logins_total"]
    assert not [labels for labels, count in logins.items() if ("listener", LISTENER) in labels and count]


def test_a_broker_with_a_wrong_password_is_no_broker(make: Make) -> None:
    cluster = make(BrokerProcess.kind, BrokerProcess.kind)
    key = f"listener.name.brokers.{SCRAM.lower()}.sasl.jaas.config"
    cluster.brokers[1].overrides[key] = client_jaas(SCRAM, BROKER, "a guess")
    cluster.start_zookeeper()
    cluster.brokers[1].start()  # the controller, which sends the second one its requests
    cluster.brokers[2].start()
    refusal = f"as '{BROKER}' with {SCRAM} on listener {LISTENER}: wrong password"
    until(lambda: refusal in cluster.brokers[2].log(), "the second one logs it")
    until(lambda: f"user {BROKER} could not log in: Authentication failed" in cluster.brokers[1].log(), "the first one logs it")
    assert "a guess" not in cluster.brokers[1].log() + cluster.brokers[2].log()
