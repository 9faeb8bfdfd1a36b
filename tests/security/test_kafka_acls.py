"""Apache Kafka's kafka-acls at a broker, and its clients under the ACLs. Clients differ by their addresses on the loopback network."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from kafka.protocol.metadata import MetadataRequest

from tests.support.acls import ADMIN, ALL, ALLOW, ANYONE, CLUSTER, CLUSTER_ACTION, DENY, LITERAL, OPEN, OTHER, TOPIC, Acl, create_acls
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.java import ToolFailed, run
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, produce_request
from tests.support.records import numbered
from tests.support.server import Server

RELEASES = pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
TOPIC_AUTHORIZATION_FAILED = 29


class Acls:
    """kafka-acls at one broker."""

    def __init__(self, server: Server, release: str) -> None:
        self._server = server
        self._release = release

    def __call__(self, *flags: str) -> str:
        return run("kafka-acls", "--bootstrap-server", self._server.address, *flags, release=self._release)

    def listed(self, *flags: str) -> set[str]:
        """The entries by resource, in the tool's words."""
        found: set[str] = set()
        resource = ""
        for line in self("--list", *flags).splitlines():
            named = re.search(r"ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)", line)
            entry = re.search(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)", line)
            if named:
                resource = ":".join(named.groups())
            elif entry:
                found.add(f"{resource} {' '.join(entry.groups())}")
        return found


def metadata_error(server: Server, topic: str, host: str) -> int:
    with RawConnection(server.address, host=host) as connection:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = connection.call(request, 8).topics
        return int(found.error_code)


def produce_error(server: Server, topic: str, host: str) -> int:
    with RawConnection(server.address, host=host) as connection:
        answer = connection.call(produce_request(topic, batch(numbered(1))), 8)
        return int(answer.responses[0].partition_responses[0].error_code)


@RELEASES
def test_the_tool_adds_lists_and_removes(start_broker: Callable[..., Server], release: str) -> None:
    server = start_broker(OPEN)
    create_topic(server, "t")
    acls = Acls(server, release)
    assert acls.listed() == set()
    acls("--add", "--allow-principal", "User:ANONYMOUS", "--allow-host", ADMIN, "--producer", "--topic", "t")
    prefixed = ("--resource-pattern-type", "prefixed")
    acls("--add", "--allow-principal", "User:CN=a,O=b", "--consumer", "--topic", "p-", "--group", "g", *prefixed)
    acls("--add", "--deny-principal", "User:*", "--deny-host", OTHER, "--operation", "All", "--transactional-id", "tx")
    producer = {f"TOPIC:t:LITERAL User:ANONYMOUS {ADMIN} {operation} ALLOW" for operation in ("WRITE", "DESCRIBE", "CREATE")}
    everything = producer | {
        "TOPIC:p-:PREFIXED User:CN=a,O=b * READ ALLOW",
        "TOPIC:p-:PREFIXED User:CN=a,O=b * DESCRIBE ALLOW",
        "GROUP:g:PREFIXED User:CN=a,O=b * READ ALLOW",
        f"TRANSACTIONAL_ID:tx:LITERAL User:* {OTHER} ALL DENY",
    }
    assert acls.listed() == everything
    assert acls.listed("--topic", "p-1", "--resource-pattern-type", "match") == {e for e in everything if e.startswith("TOPIC:p-")}
    assert produce_error(server, "t", ADMIN) == 0 and produce_error(server, "t", OTHER) == TOPIC_AUTHORIZATION_FAILED
    assert metadata_error(server, "t", OTHER) == TOPIC_AUTHORIZATION_FAILED
    server.stop()
    server.start()
    assert acls.listed() == everything
    acls("--remove", "--force", "--allow-principal", "User:ANONYMOUS", "--allow-host", ADMIN, "--producer", "--topic", "t")
    assert acls.listed() == everything - producer
    acls("--remove", "--force", "--topic", "p-", *prefixed)
    assert metadata_error(server, "t", OTHER) == 0, "no ACL is left, so every client may use it"


def test_without_rights_the_tool_and_clients_say_why(start_broker: Callable[..., Server]) -> None:
    server = start_broker(OPEN)
    brokers = Acl(CLUSTER, "kafka-cluster", LITERAL, ANYONE, "*", CLUSTER_ACTION, ALLOW)  # nothing else of the cluster is allowed
    create_acls(server.address, [Acl(TOPIC, "t", LITERAL, ANYONE, "*", ALL, DENY), brokers])
    with pytest.raises(ToolFailed, match="ClusterAuthorizationException"):
        run("kafka-acls", "--bootstrap-server", server.address, "--list", release=KAFKA_NEW)
    with pytest.raises(ToolFailed, match="TopicAuthorizationException"):
        run("kafka-topics", "--bootstrap-server", server.address, "--create", "--topic", "t", release=KAFKA_NEW)
    if server.kind == BrokerProcess.kind:
        line = (
            "Principal = User:ANONYMOUS is Denied Operation = Describe from host = 127.0.0.1 "
            "on resource = Cluster:LITERAL:kafka-cluster for request = DescribeAcls with resourceRefCount = 1"
        )
        assert line in server.log()
