"""ACLs of a cluster of txbroker and Apache Kafka 3.9: what either creates or deletes counts on all brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kazoo.client import KazooClient

from tests.api.requests import make
from tests.security.test_kafka_acls import OPEN, OTHER, TOPIC_AUTHORIZATION_FAILED, metadata_error
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.waiting import until

ALL, READ, DESCRIBE, WRITE = 2, 3, 8, 4
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ANY = 1

Row = tuple[int, str, int, str, str, int, int]  # type, name, pattern, principal, host, operation, permission
_FIELDS = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")


def create(address: str, *rows: Row) -> None:
    with RawConnection(address) as connection:
        answer = connection.call(make(CreateAclsRequest, {"creations": [dict(zip(_FIELDS, row, strict=True)) for row in rows]}), 3)
        assert [result.error_code for result in answer.results] == [0] * len(rows), answer


def delete(address: str, *rows: Row) -> None:
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", *_FIELDS[5:])
    with RawConnection(address) as connection:
        answer = connection.call(make(DeleteAclsRequest, {"filters": [dict(zip(names, row, strict=True)) for row in rows]}), 3)
        assert [(result.error_code, len(result.matching_acls)) for result in answer.filter_results] == [(0, 1)] * len(rows), answer


def listed(address: str) -> set[Row]:
    everything = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
                  "host_filter": None, "operation": ANY, "permission_type": ANY}  # fmt: skip
    with RawConnection(address) as connection:
        answer = connection.call(make(DescribeAclsRequest, everything), 3)
    assert answer.error_code == 0
    return {(r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
            for r in answer.resources for a in r.acls}  # fmt: skip


@pytest.fixture
def cluster(start_cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    yield start_cluster(OPEN, kinds=(BrokerProcess.kind, KafkaMember.kind, BrokerProcess.kind))


def test_brokers_of_both_kinds_share_their_acls(cluster: Cluster) -> None:
    addresses = [server.address for server in cluster.brokers.values()]
    create_topic(cluster.brokers[1], "t")
    expected: set[Row] = set()
    for number, address in enumerate(addresses):
        rows = [
            (TOPIC, f"t%{number} ü:x", LITERAL, f"User:CN=ä\\,{number},O=b", "*", READ, ALLOW),
            (TOPIC, "shared", LITERAL, f"User:{number}", "10.0.0.1", WRITE, DENY),
            (GROUP, f"pre-{number}", PREFIXED, "User:*", "*", ALL, ALLOW),
            (TRANSACTIONAL_ID, "*", LITERAL, f"User:{number}", "*", DESCRIBE, ALLOW),
        ]
        create(address, *rows)
        expected |= {*rows}
    for address in addresses:
        until(lambda address=address: listed(address) == expected, "each broker has the ACLs of all")  # type: ignore[misc]
    for number, address in enumerate(addresses):
        rule: Row = (TOPIC, "t" if number % 2 else "*", LITERAL, "User:ANONYMOUS", OTHER, ALL, DENY)
        assert [metadata_error(server, "t", OTHER) for server in cluster.brokers.values()] == [0] * 3 or number
        create(address, rule, (TOPIC, "t", LITERAL, "User:ANONYMOUS", "*", ALL, ALLOW))
        for server in cluster.brokers.values():
            until(lambda server=server: metadata_error(server, "t", OTHER) == TOPIC_AUTHORIZATION_FAILED, "a change counts everywhere")  # type: ignore[misc]
            assert metadata_error(server, "t", "127.0.0.1") == 0
        delete(addresses[(number + 1) % 3], rule)
        for server in cluster.brokers.values():
            until(lambda server=server: metadata_error(server, "t", OTHER) == 0, "its deletion does, too")  # type: ignore[misc]
    delete(addresses[0], *[row for row in expected if row[1] == "shared"])
    remaining = {row for row in expected if row[1] != "shared"} | {(TOPIC, "t", LITERAL, "User:ANONYMOUS", "*", ALL, ALLOW)}
    for address in addresses:
        until(lambda address=address: listed(address) == remaining, "the last entries of a resource are gone")  # type: ignore[misc]
    assert _nodes(cluster, "/kafka-acl/Topic") == {"t", "t%0 ü:x", "t%1 ü:x", "t%2 ü:x"}
    for broker_id in (1, 2):
        cluster.brokers[broker_id].stop()
        cluster.start_brokers([broker_id])
        assert listed(addresses[broker_id - 1]) == remaining, "after a restart"


def _nodes(cluster: Cluster, path: str) -> set[str]:
    client: Any = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        return set(client.get_children(path))
    finally:
        client.stop()
        client.close()
