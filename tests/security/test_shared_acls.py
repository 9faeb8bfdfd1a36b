"""ACLs of a cluster of txbroker and Apache Kafka 3.9: what either creates or deletes counts on all brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.security.test_kafka_acls import TOPIC_AUTHORIZATION_FAILED, metadata_error
from tests.support.acls import (
    ALL,
    ALLOW,
    ANYONE,
    CLUSTER,
    CLUSTER_ACTION,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    OPEN,
    OTHER,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    create_acls,
    delete_acls,
    listed_acls,
)
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation
from tests.support.waiting import until


@pytest.fixture
def cluster(start_cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    yield start_cluster(OPEN, kinds=(BrokerProcess.kind, KafkaMember.kind, BrokerProcess.kind))


def test_brokers_of_both_kinds_share_their_acls(cluster: Cluster) -> None:
    addresses = [server.address for server in cluster.brokers.values()]
    cluster.create_topic("t", 1, 1)
    expected: set[Acl] = set()
    usable = Acl(TOPIC, "t", LITERAL, ANYONE, "*", ALL, ALLOW)
    for number, address in enumerate(addresses):
        rows = [
            Acl(TOPIC, f"t%{number} ü:x", LITERAL, f"User:CN=ä\\,{number},O=b", "*", READ, ALLOW),
            Acl(TOPIC, "shared", LITERAL, f"User:{number}", "10.0.0.1", WRITE, DENY),
            Acl(GROUP, f"pre-{number}", PREFIXED, "User:*", "*", ALL, ALLOW),
            Acl(TRANSACTIONAL_ID, "*", LITERAL, f"User:{number}", "*", DESCRIBE, ALLOW),
        ]
        create_acls(address, rows)
        expected |= {*rows}
    create_acls(addresses[0], [usable])
    for server in cluster.brokers.values():
        until(lambda server=server: listed_acls(server.address) == expected | {usable}, "each broker has the ACLs of all")  # type: ignore[misc]
        until(lambda server=server: metadata_error(server, "t", OTHER) == 0, "each broker has the topic")  # type: ignore[misc]
    for number, address in enumerate(addresses):
        rule = Acl(TOPIC, "t" if number % 2 else "*", LITERAL, ANYONE, OTHER, ALL, DENY)
        create_acls(address, [rule])
        for server in cluster.brokers.values():
            until(lambda server=server: metadata_error(server, "t", OTHER) == TOPIC_AUTHORIZATION_FAILED, "a change counts everywhere")  # type: ignore[misc]
            assert metadata_error(server, "t", "127.0.0.1") == 0
        delete_acls(addresses[(number + 1) % 3], [rule])
        for server in cluster.brokers.values():
            until(lambda server=server: metadata_error(server, "t", OTHER) == 0, "its deletion does, too")  # type: ignore[misc]
    delete_acls(addresses[0], [acl for acl in expected if acl.resource_name == "shared"])
    remaining = {acl for acl in expected if acl.resource_name != "shared"} | {usable}
    for address in addresses:
        until(lambda address=address: listed_acls(address) == remaining, "the last entries of a resource are gone")  # type: ignore[misc]
    assert _nodes(cluster, "/kafka-acl/Topic") == {"t", "t%0 ü:x", "t%1 ü:x", "t%2 ü:x"}
    for broker_id in (1, 2):
        cluster.brokers[broker_id].stop()
        cluster.start_brokers([broker_id])
        assert listed_acls(addresses[broker_id - 1]) == remaining, "after a restart"


def test_brokers_that_were_not_permitted_to_send_each_other_requests(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(OPEN, kinds=(BrokerProcess.kind,) * 2)
    cluster.create_topic("before", 2, 2)
    denial = Acl(CLUSTER, "kafka-cluster", LITERAL, ANYONE, "*", CLUSTER_ACTION, DENY)
    others = Acl(CLUSTER, "kafka-cluster", LITERAL, ANYONE, "*", ALL, ALLOW)
    address = cluster.brokers[1].address
    create_acls(address, [denial, others])
    for server in cluster.brokers.values():
        until(lambda server=server: len(listed_acls(server.address)) == 2, "every broker has the ACLs")  # type: ignore[misc]
    with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
        creation(connection, "after", 2, 2, KEEP)
    denied = "its ACLs do not permit ClusterAction"
    until(lambda: any(denied in server.log() for server in cluster.brokers.values()), "a request was denied")
    delete_acls(address, [denial])
    cluster.until_in_sync("before", "after")


def _nodes(cluster: Cluster, path: str) -> set[str]:
    client: Any = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        return set(client.get_children(path))
    finally:
        client.stop()
        client.close()
