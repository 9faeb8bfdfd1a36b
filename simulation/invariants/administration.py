"""What administrators have been promised is true at the end (I11): topics that exist or are deleted, replicas, and configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulation.clients.administrator import Administrator
from simulation.ensemble import Ensemble
from simulation.hosts import BrokerHost
from simulation.invariants.cluster_state import topic_assignment
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import TopicAssignment
from txbroker.names import TopicPartition, amount


def problem(ensemble: Ensemble, hosts: Mapping[int, BrokerHost], administrators: Sequence[Administrator]) -> str | None:
    """What is not true yet; None if everything is."""
    nodes = ensemble.nodes
    waiting = sorted(nodes.names_under(node_paths.DELETE_TOPICS))
    if waiting:
        return f"the deletion of {', '.join(waiting)} is not complete"
    topics = {name: topic_assignment(_data(ensemble, name)) for name in sorted(nodes.names_under(node_paths.TOPICS))}
    for name, topic in topics.items():
        for index, assignment in topic.partitions.items():
            if assignment.is_reassigning:
                return f"the reassignment of {name}-{index} is not complete: {assignment}"
    for host in hosts.values():
        components = None if host.broker is None else host.broker.components
        if components is not None:
            known = set(components.image.topics)
            if known != set(topics):
                return f"{host.name} knows the topics {sorted(known)}, and there are {sorted(topics)}"
            extra = sorted(
                str(replica.topic_partition) for replica in components.replicas if host.id not in _replicas(topics, replica.topic_partition)
            )
            if extra:
                return f"{host.name} still has the replicas {extra}"
    promises = (_promise(administrator, topics) or _configuration(administrator, hosts) for administrator in administrators)
    return next(filter(None, promises), None)


def _data(ensemble: Ensemble, topic: str) -> bytes:
    node = ensemble.nodes.get(node_paths.topic(topic))
    return (None if node is None else node.data) or b""


def _replicas(topics: dict[str, TopicAssignment], name: TopicPartition) -> tuple[int, ...]:
    """None for a partition that does not exist."""
    topic = topics.get(name.topic)
    return topic.partitions[name.partition].replicas if topic is not None and name.partition in topic.partitions else ()


def _configuration(administrator: Administrator, hosts: Mapping[int, BrokerHost]) -> str | None:
    expected = administrator.expected.segment_bytes
    for host in hosts.values():
        if host.broker is not None and host.broker.components is not None:
            for replica in host.broker.components.replicas:
                name, has = replica.topic_partition, replica.log.config.segment_bytes
                value = expected.get(name.topic, 0)
                if value not in (0, has):
                    return f"{name} has segment.bytes {has} on {host.name}, and {administrator.name} has set {value}"
    return None


def _promise(administrator: Administrator, topics: dict[str, TopicAssignment]) -> str | None:
    expected = administrator.expected
    for name in sorted(expected.deleted & topics.keys()):
        return f"{name} was deleted by {administrator.name}, and exists"
    for name, count in expected.partitions.items():
        if name in expected.doubtful or name in expected.deleted:
            continue
        if name not in topics:
            return f"{name} was created by {administrator.name}, and does not exist"
        if len(topics[name].partitions) != count:
            return f"{name} has {amount(len(topics[name].partitions), 'partition')}, and not {count}"
    for partition, target in expected.targets.items():
        if partition.topic in expected.doubtful or partition in expected.doubtful:
            continue
        replicas = _replicas(topics, partition)
        if replicas != target:
            return f"{partition} has the replicas {replicas}, and {administrator.name} has reassigned it to {target}"
    return None
