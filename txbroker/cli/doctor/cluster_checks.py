"""Checks of the brokers: API versions, the cluster, and the advertised addresses."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from typing import NamedTuple

from txbroker.cli.doctor.findings import Findings
from txbroker.cli.doctor.network_checks import is_loopback, reach
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import AuthenticationExpected, ClientError, ConnectionFailed, RequestFailed, address_text
from txbroker.client.config_requests import BROKER_RESOURCE, describe_configs
from txbroker.errors import ErrorCode
from txbroker.names import amount
from txbroker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

ROUND_TRIPS = 5
SLOW_MS = 200.0
# key: (name, the version that a broker must support at least, who needs it). Record batches came with Kafka 0.11.
_NEEDED = {
    0: ("Produce", 3, "producers (record batches)"),
    1: ("Fetch", 4, "consumers (record batches)"),
    2: ("ListOffsets", 1, "consumers that start at the first or the last offset"),
    3: ("Metadata", 1, "every client"),
    8: ("OffsetCommit", 2, "consumer groups"),
    9: ("OffsetFetch", 1, "consumer groups"),
    10: ("FindCoordinator", 0, "consumer groups"),
    11: ("JoinGroup", 0, "consumer groups"),
    12: ("Heartbeat", 0, "consumer groups"),
    13: ("LeaveGroup", 0, "consumer groups"),
    14: ("SyncGroup", 0, "consumer groups"),
    19: ("CreateTopics", 0, "admin clients"),
    20: ("DeleteTopics", 0, "admin clients"),
    22: ("InitProducerId", 0, "producers with enable.idempotence=true, the default of Java's"),
    32: ("DescribeConfigs", 0, "admin clients and web interfaces"),
}
_ALSO = {24: "transactions", 68: "the consumer group protocol of KIP-848", 76: "share groups"}


class Cluster(NamedTuple):
    """A cluster by one broker's metadata, and connections to the brokers that can be reached."""

    cluster_id: str | None
    brokers: dict[int, MetadataResponseBroker]
    connections: dict[int, BlockingConnection]

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            connection.close()


def check_versions(findings: Findings, connection: BlockingConnection) -> bool:
    """Check for the APIs that clients need; False if the broker does not even support Metadata."""
    check = f"versions of {connection.address}"
    versions = connection.versions
    missing = [(name, why) for key, (name, version, why) in _NEEDED.items() if key not in versions or versions[key].high < version]
    newest = f"Produce up to {_high(connection, 0)}, Fetch up to {_high(connection, 1)}, Metadata up to {_high(connection, 3)}"
    missing_features = [what for key, what in _ALSO.items() if key not in connection.versions]
    also = f"; it does not support {', '.join(missing_features)}" if missing_features else ""
    if not missing:
        findings.ok(check, f"it supports what producers, consumers, groups and admin clients need ({newest}){also}")
        return True
    found = "; ".join(f"{name} is missing or too old for {why}" for name, why in missing)
    advice = "use a newer broker, or older clients; without InitProducerId set enable.idempotence=false"
    if any(name in ("Produce", "Fetch", "Metadata") for name, _ in missing):
        findings.failed(check, found, advice)
        return 3 in connection.versions
    findings.warning(check, found, advice)
    return True


def _high(connection: BlockingConnection, key: int) -> str:
    return str(connection.versions[key].high) if key in connection.versions else "none"


def check_cluster(findings: Findings, connection: BlockingConnection) -> MetadataResponse | None:
    """Request the cluster's metadata, several times for the round-trip time; None if the cluster cannot be used."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    took_ms = []
    check = f"cluster at {connection.address}"
    try:
        for _ in range(ROUND_TRIPS):
            started = time.monotonic()
            answer: MetadataResponse = connection.call(request)
            took_ms.append((time.monotonic() - started) * 1000)
    except AuthenticationExpected:
        advice = "the listener seems to require SASL: set security.protocol and sasl.* in the file of --command-config and in clients"
        findings.failed(check, f"{connection.address} answers ApiVersions, and closes the connection at the first request after it", advice)
        return None
    except ConnectionFailed as problem:
        findings.failed(check, str(problem), "see the broker's log")
        return None
    median_ms = statistics.median(took_ms)
    brokers = amount(len(answer.brokers), "broker")
    controller = "no controller" if answer.controller_id < 0 else f"controller {answer.controller_id}"
    found = f"cluster {answer.cluster_id or 'without an id'}, {brokers}, {controller}; round-trip time {median_ms:.1f} ms"
    if not answer.brokers:
        findings.failed(check, f"{found}; its metadata has no brokers", "the broker may be starting: try again, or see its log")
        return None
    if answer.controller_id < 0:
        advice = "without a controller, topics cannot be created or changed and no leader is elected: see the brokers' logs"
        findings.warning(check, found, advice)
    elif median_ms > SLOW_MS:
        findings.warning(check, found, "the network is slow or the broker is busy: see its load, or raise the clients' timeouts")
    else:
        findings.ok(check, found)
    return answer


def check_controller(findings: Findings, cluster: Cluster) -> None:
    """Whether a broker of a cluster on ZooKeeper acts as the controller: metadata names the last one, also after its session has ended."""
    request = ListPartitionReassignmentsRequest(topics=[])
    answers: list[int] = []
    for connection in cluster.connections.values():
        if connection.version_of(ListPartitionReassignmentsRequest) is not None:
            with suppress(ClientError):
                answers.append(connection.call(request).error_code)
    if len(answers) == len(cluster.brokers) and set(answers) == {ErrorCode.NOT_CONTROLLER}:
        advice = (
            "if it stays so, see whether the brokers reach ZooKeeper (with --processes: the server of the metadata); topics cannot be "
            "changed and no leader is elected until then"
        )
        findings.warning("controller", "no broker is the controller at the moment", advice)


def check_advertised(findings: Findings, bootstrap: BlockingConnection, cluster: MetadataResponse) -> Cluster:
    """Connect to every advertised address, as clients do after their first request."""
    connections: dict[int, BlockingConnection] = {}
    bootstrap_is_local = is_loopback(str(bootstrap.socket.getpeername()[0]))
    for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
        what = f"advertised address of broker {broker.node_id}"
        setting = f"advertised.listeners of broker {broker.node_id}"
        address = address_text(broker.host, broker.port)
        if broker.host in ("0.0.0.0", "::", "") or broker.port <= 0:
            findings.failed(f"{what} {address}", "no client can connect to it", f"set {setting} to an address that clients can reach")
            continue
        connection = reach(findings, what, broker.host, broker.port, setting, bootstrap.machine.settings)
        if connection is None:
            continue
        other = _wrong_broker(connection, broker.node_id, cluster.cluster_id)
        if other is not None:
            findings.failed(f"{what} {address}", other, f"correct {setting}, or the port forwarding to the broker")
            connection.close()
            continue
        connections[broker.node_id] = connection
        if is_loopback(str(connection.socket.getpeername()[0])) and not bootstrap_is_local:
            found = "it is a loopback address: clients on other machines would connect to themselves"
            findings.warning(f"{what} {address}", found, f"set {setting} to an address that clients can reach, such as {bootstrap.address}")
    return Cluster(cluster.cluster_id, {broker.node_id: broker for broker in cluster.brokers}, connections)


def _wrong_broker(connection: BlockingConnection, node_id: int, cluster_id: str | None) -> str | None:
    """What is wrong if a connection leads to another cluster or broker; None if it does not, or if that cannot be known."""
    try:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        if answer.cluster_id != cluster_id:
            return f"it leads to another cluster: {answer.cluster_id} instead of {cluster_id}"
        # A broker describes only its own configuration, and refuses that of others with INVALID_REQUEST.
        describe_configs(connection.call, BROKER_RESOURCE, str(node_id), ["broker.id"])
    except RequestFailed as refused:
        if refused.code == ErrorCode.INVALID_REQUEST:
            return f"it leads to another broker of the cluster ({refused.message})"
    except ConnectionFailed:
        pass
    return None


