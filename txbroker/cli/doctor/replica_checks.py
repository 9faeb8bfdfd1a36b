"""Why partitions of a topic have no leader, or replicas that are out of sync."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import FAILED, WARNING, Finding, Findings, named
from txbroker.client.client_errors import ClientError
from txbroker.errors import ErrorCode
from txbroker.names import amount
from txbroker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
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
    indexes = [part.partition_index for part in troubled]
    facts = ReplicaFacts(cluster.brokers.keys(), cluster.connections.keys(), _lags(cluster, topic, indexes), _adding(cluster, topic))
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


def _lags(cluster: Cluster, topic: str, indexes: list[int]) -> dict[tuple[int, int], int]:
    lags: dict[tuple[int, int], int] = {}
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=indexes)])
    for broker, connection in cluster.connections.items():
        with suppress(ClientError):
            answer: DescribeLogDirsResponse = connection.call(request)
            for directory in answer.results:
                for found in directory.topics:
                    current = [part for part in found.partitions if found.name == topic and not part.is_future_key]
                    lags.update(((part.partition_index, broker), part.offset_lag) for part in current)
    return lags


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
