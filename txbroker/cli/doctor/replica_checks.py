"""Why partitions of a topic have no leader, or replicas that are out of sync."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import FAILED, WARNING, Finding, Findings, named
from txbroker.client.client_errors import ClientError
from txbroker.client.offset_requests import DEBUGGING_REPLICA, LATEST, list_offsets
from txbroker.errors import ErrorCode
from txbroker.names import amount
from txbroker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from txbroker.wire.messages.metadata import MetadataResponsePartition


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What is known of the brokers and of the replicas of one topic."""

    live: Collection[int]
    reachable: Collection[int]
    lags: Mapping[tuple[int, int], int] = field(default_factory=dict)  # by partition and broker: the records that a replica lacks
    adding: Mapping[int, Collection[int]] = field(default_factory=dict)  # by partition: replicas that a reassignment adds


def check(findings: Findings, cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition]) -> None:
    """Explain each partition without a leader, and the replicas out of sync of all others together."""
    troubled = [part for part in partitions if part.leader_id < 0 or len(part.isr_nodes) < len(part.replica_nodes)]
    if not troubled:
        return
    facts = ReplicaFacts(cluster.brokers.keys(), cluster.connections.keys(), _lags(cluster, topic, troubled), _adding(cluster, topic))
    for finding in explain(topic, troubled, facts):
        findings.add(finding)


def explain(topic: str, partitions: Iterable[MetadataResponsePartition], facts: ReplicaFacts) -> list[Finding]:
    """A finding for each reason, which names its partitions."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for part in partitions:
        found = [_leaderless(part, facts)] if part.leader_id < 0 else _out_of_sync(part, facts)
        for reason in found:
            reasons.setdefault(reason, []).append(f"partition {part.partition_index}")
    return [
        Finding(outcome, f"replicas of {topic}", f"{found} ({named(these)})", advice) for (outcome, found, advice), these in reasons.items()
    ]


def _leaderless(part: MetadataResponsePartition, facts: ReplicaFacts) -> tuple[str, str, str]:
    in_sync = sorted(part.isr_nodes)
    brokers = f"{'broker' if len(in_sync) == 1 else 'brokers'} {', '.join(map(str, in_sync))}"
    others = sorted(set(part.replica_nodes) & set(facts.live) - set(in_sync) - set(part.offline_replicas))
    found = f"no leader: only {brokers} had all committed records, and {'is' if len(in_sync) == 1 else 'are'} not available"
    advice = f"start {brokers}, or repair their log directories"
    if others:
        advice += (
            f"; if they are lost, `txbroker leader-election --election-type unclean` elects broker {others[0]}, "
            "and the records that it does not have are lost"
        )
    return FAILED, found, advice


def _out_of_sync(part: MetadataResponsePartition, facts: ReplicaFacts) -> list[tuple[str, str, str]]:
    found = []
    for broker in sorted(set(part.replica_nodes) - set(part.isr_nodes)):
        lag = facts.lags.get((part.partition_index, broker))
        behind = "" if lag is None else f", {amount(lag, 'record')} behind"
        if broker not in facts.live:
            why = f"broker {broker} is not registered: it is stopped, or has lost ZooKeeper"
            advice = f"start broker {broker}, or see its log"
        elif broker in part.offline_replicas:
            why, advice = f"the log directory of broker {broker} has failed", f"replace the disk of broker {broker}, and restart it"
        elif broker in facts.adding.get(part.partition_index, ()):
            why = f"a reassignment adds the replica of broker {broker}, which is still copied{behind}"
            advice = "wait, or see `txbroker reassign-partitions --list`; a throttle may be too low"
        elif broker not in facts.reachable:
            why, advice = f"broker {broker} is registered and does not answer", f"see the log and the load of broker {broker}"
        else:
            why = f"broker {broker} runs and has not caught up{behind}"
            advice = f"wait if it has just started; else see its log, and its network connection to broker {part.leader_id}"
        found.append((WARNING, why, advice))
    return found


def _lags(cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition]) -> dict[tuple[int, int], int]:
    """By partition and broker; of replicas out of sync whose brokers answer, and whose leaders do."""
    followers: dict[int, list[int]] = {}  # by broker: the partitions of which it is not in the ISR
    leaders: dict[int, list[int]] = {}
    for part in partitions:
        if part.leader_id in cluster.connections:
            leaders.setdefault(part.leader_id, []).append(part.partition_index)
            for broker in set(part.replica_nodes) - set(part.isr_nodes):
                followers.setdefault(broker, []).append(part.partition_index)
    # The leaders last: their ends are not before those of their followers.
    behind = {broker: _log_ends(cluster, broker, topic, indexes) for broker, indexes in followers.items()}
    ends = {index: end for broker, indexes in leaders.items() for index, end in _log_ends(cluster, broker, topic, indexes).items()}
    return {(index, broker): max(0, ends[index] - end) for broker, found in behind.items() for index, end in found.items() if index in ends}


def _log_ends(cluster: Cluster, broker: int, topic: str, indexes: list[int]) -> dict[int, int]:
    """The log end offsets of a broker's replicas, by partition. The lag in DescribeLogDirs lags itself: a follower only knows the high
    watermark up to its own end."""
    if broker not in cluster.connections:
        return {}
    with suppress(ClientError):
        found = list_offsets(cluster.connections[broker].call, topic, indexes, LATEST, replica_id=DEBUGGING_REPLICA)
        return {index: at.offset for index, at in found.items() if at.error_code == ErrorCode.NONE}
    return {}


def _adding(cluster: Cluster, topic: str) -> dict[int, Collection[int]]:
    """From the controller, which alone answers."""
    for connection in cluster.connections.values():
        if connection.version_of(ListPartitionReassignmentsRequest) is None:
            continue
        with suppress(ClientError):
            answer: ListPartitionReassignmentsResponse = connection.call(ListPartitionReassignmentsRequest(topics=None))
            if answer.error_code == ErrorCode.NONE:
                ongoing = [part for each in answer.topics if each.name == topic for part in each.partitions]
                return {part.partition_index: part.adding_replicas for part in ongoing}
    return {}
