"""Export rules: converts the metadata of a txbroker to that of an Apache Kafka broker in ZooKeeper, and finds the conflicts.

Kafka must find every topic with the id in its logs, a leader epoch above all in the logs, and a producer id block that was not used; it
must not recreate topics that were deleted in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import (
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
    decode_cluster_id,
    decode_config,
    decode_producer_id_block,
    decode_state,
    decode_topic,
    encode_cluster_id,
    encode_config,
)
from txbroker.cluster.tree.interface import parents_of
from txbroker.cluster.tree.sqlite_file import data_of
from txbroker.cluster.zookeeper_migration.kafka_metadata import ForeignCluster, FoundLogs, counted
from txbroker.names import TopicPartition

# Keys that only txbroker has.
OWN_TOPIC_KEYS = frozenset({
    "compaction.strategy", "compaction.strategy.header", "retention.precise", "txbroker.mirror.source", "txbroker.record.validation",
})  # fmt: skip
OWN_BROKER_KEYS = frozenset({
    "log.cleaner.compaction.strategy", "log.cleaner.compaction.strategy.header", "log.cleaner.schedule", "log.retention.precise",
})  # fmt: skip
OWN_BROKER_PREFIX = "txbroker."

Nodes = Mapping[str, bytes | None]


@dataclass(slots=True)
class ExportPlan:
    """The nodes to write (`nodes`, parents first) and to remove with their children (`obsolete`).

    `topics`: the partition count and the outcome of each topic. Notes, concerns and refusals as in `ImportPlan`.
    """

    cluster_id: str
    broker_id: int
    nodes: dict[str, bytes | None] = field(default_factory=dict)
    obsolete: list[str] = field(default_factory=list)
    topics: dict[str, tuple[int, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    concerns: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def plan_export(tree: Nodes, found: FoundLogs, target: ForeignCluster) -> ExportPlan:
    """Plan an export. `tree` is this broker's metadata, `target` the current content of ZooKeeper. MalformedNode: the tree is damaged."""
    cluster_id = decode_cluster_id(tree.get(node_paths.CLUSTER_ID))
    broker_id = -1 if found.identity.broker_id is None else found.identity.broker_id
    plan = ExportPlan(cluster_id, broker_id)
    plan.refusals += _identity_problems(plan, found, target)
    plan.nodes |= dict.fromkeys(path for path in node_paths.STRUCTURE if path != node_paths.PRODUCER_ID_BLOCK)
    plan.nodes[node_paths.CLUSTER_ID] = encode_cluster_id(cluster_id)
    block = _producer_ids(tree, target)
    if block is not None:
        plan.nodes[node_paths.PRODUCER_ID_BLOCK] = block
    for entity, known in ((node_paths.broker_entity(broker_id), target.broker_configs), (node_paths.ALL_BROKERS, target.default_configs)):
        data = tree.get(entity.path)
        configs = decode_config(data) if data else {}
        if configs or known:
            foreign = {key for key in configs if key in OWN_BROKER_KEYS or key.startswith(OWN_BROKER_PREFIX)}
            plan.nodes[entity.path] = encode_config(_without(plan, configs, foreign, entity.entity_path))
    deleting = data_of(tree, node_paths.DELETE_TOPICS)
    for name, data in sorted(data_of(tree, node_paths.TOPICS).items()):
        if name not in deleting:
            _add_topic(plan, name, decode_topic(data), tree, found, target)
    _delete_topics(plan, found, target)
    _add_acls(plan, tree, target)
    _add_clients(plan, tree, target)
    _add_tokens(plan, tree, target)
    replicated = [
        f"{name}-{number}"
        for name, topic in target.topics.items()
        if name in plan.topics
        for number, partition in topic.partitions.items()
        if set(partition.replicas) - {broker_id}
    ]
    if replicated:
        plan.concerns.append(
            f"according to ZooKeeper other brokers have replicas of {counted(replicated, 'partition')}: this broker's become the only ones"
        )
    return plan


def _identity_problems(plan: ExportPlan, found: FoundLogs, target: ForeignCluster) -> Iterable[str]:
    where = ", ".join(found.directories)
    if plan.broker_id < 0:
        yield f"no meta.properties in {where} has a broker id: specify all log.dirs of the broker"
    if target.cluster_id not in (None, plan.cluster_id):
        yield (
            f"{where} belongs to cluster {plan.cluster_id}, and {target.source} to cluster {target.cluster_id}: "
            "specify its own ZooKeeper, or an empty chroot"
        )
    if target.alive:
        yield f"brokers are running on {target.source} ({', '.join(map(str, sorted(target.alive)))}): stop them first"


def _producer_ids(tree: Nodes, target: ForeignCluster) -> bytes | None:
    data = tree.get(node_paths.PRODUCER_ID_BLOCK)
    blocks: list[ProducerIdBlock] = [] if target.producer_ids is None else [target.producer_ids]
    if data:
        blocks.append(decode_producer_id_block(data))
    return max(blocks, key=lambda block: block.end).encode() if blocks else None


def _without(plan: ExportPlan, configs: Mapping[str, str], foreign: Iterable[str], whose: str) -> dict[str, str]:
    foreign = sorted(foreign)
    plan.notes += [f"{key}={configs[key]} of {whose} is not exported: Apache Kafka has no such key" for key in foreign]
    return {key: value for key, value in configs.items() if key not in foreign}


def _add_topic(
    plan: ExportPlan, name: str, assignment: TopicAssignment, tree: Nodes, found: FoundLogs, target: ForeignCluster
) -> None:
    known = target.topics.get(name)
    data = tree.get(node_paths.topic_entity(name).path)
    configs = decode_config(data) if data else {}
    kept = _without(plan, configs, OWN_TOPIC_KEYS & configs.keys(), f"topics/{name}")
    plan.nodes[node_paths.topic_entity(name).path] = encode_config(kept)
    plan.nodes[node_paths.topic(name)] = assignment.encode()
    plan.nodes[node_paths.partitions(name)] = None
    for number, replicas in sorted(assignment.partitions.items()):
        topic_partition = TopicPartition(name, number)
        plan.nodes[node_paths.partition(topic_partition)] = None
        state_data = tree.get(node_paths.state(topic_partition))
        log = found.logs.get(topic_partition)
        epoch = max(
            -1 if state_data is None else decode_state(state_data, 0).leader_epoch,
            -1 if log is None else log.leader_epoch,
            -1 if known is None or number not in known.partitions else known.partitions[number].leader_epoch,
        )
        state = PartitionState(replicas.replicas[0], epoch + 1, replicas.replicas, target.controller_epoch)
        plan.nodes[node_paths.state(topic_partition)] = state.encode()
    what = "new" if known is None else "known" if known.topic_id == assignment.topic_id else "recreated"
    plan.topics[name] = (len(assignment.partitions), what)
    if known is not None:
        removed = sorted(known.partitions.keys() - assignment.partitions.keys())
        plan.obsolete += [node_paths.partition(TopicPartition(name, number)) for number in removed]


def _add_acls(plan: ExportPlan, tree: Nodes, target: ForeignCluster) -> None:
    """Those of this broker replace those in ZooKeeper, if it ever had an authorizer."""
    if node_paths.ACL_ROOTS[0] not in tree:
        return
    found = {
        f"{root}/{kind}/{name}": data
        for root in node_paths.ACL_ROOTS
        for kind in data_of(tree, root)
        for name, data in data_of(tree, f"{root}/{kind}").items()
    }
    plan.nodes |= {parent: None for path in found for parent in parents_of(path)}
    plan.nodes |= found
    plan.obsolete += sorted(target.acls.keys() - found.keys())


def _add_tokens(plan: ExportPlan, tree: Nodes, target: ForeignCluster) -> None:
    """Those of this broker replace those in ZooKeeper, if it ever had any: one that was removed here must not be used there."""
    if node_paths.TOKENS not in tree:
        return
    found = {f"{node_paths.TOKENS}/{name}": data for name, data in data_of(tree, node_paths.TOKENS).items()}
    plan.nodes |= {parent: None for path in found for parent in parents_of(path)}
    plan.nodes |= found
    plan.obsolete += sorted(target.tokens.keys() - found.keys())


def _add_clients(plan: ExportPlan, tree: Nodes, target: ForeignCluster) -> None:
    """Quotas and SCRAM credentials. What only ZooKeeper has is not deleted: an import without ZooKeeper has not read it."""
    roots = tuple(f"/config/{kind}/" for kind in node_paths.QUOTA_TYPES)
    plan.nodes |= {path: data for path, data in sorted(tree.items()) if path.startswith(roots)}
    others = sorted(path.removeprefix("/config/") for path in target.clients.keys() - plan.nodes.keys())
    if others:
        plan.concerns.append(
            f"quotas or SCRAM credentials of {counted(others, 'entity')} are in ZooKeeper and not here: they count when Kafka runs; "
            "delete them with kafka-configs if they must not"
        )


def _delete_topics(plan: ExportPlan, found: FoundLogs, target: ForeignCluster) -> None:
    """Request Kafka to delete topics deleted here, unless this broker has a log of them, or another broker has a replica."""
    unknown = [name for name in target.topics if name not in plan.topics]
    logged = {topic for topic, _ in found.logs}
    shared = {name for name in unknown if any(set(each.replicas) - {plan.broker_id} for each in target.topics[name].partitions.values())}
    kept = [name for name in unknown if name in logged or name in shared]
    if kept:
        plan.notes.append(f"ZooKeeper keeps {counted(kept, 'topic')} that this broker does not serve")
    deleted = [name for name in unknown if name not in kept]
    for name in deleted:
        plan.nodes[node_paths.deletion(name)] = None
        plan.topics[name] = (len(target.topics[name].partitions), "deleted")
    if deleted:
        plan.concerns.append(f"{counted(deleted, 'topic')} in ZooKeeper and not here: Kafka deletes them when it starts")
