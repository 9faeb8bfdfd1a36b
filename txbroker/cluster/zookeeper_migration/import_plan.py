"""The plan of an import: the resulting topics of one broker, and the conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import (
    FEATURES,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    encode_cluster_id,
    encode_config,
    encode_controller_epoch,
)
from txbroker.cluster.tree.interface import Create, parents_of
from txbroker.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic after the import: the leader epoch of each partition, and the partitions that have a log here."""

    name: str
    topic_id: bytes
    epochs: Mapping[int, int]
    here: frozenset[int]
    configs: Mapping[str, str]
    deleting: bool = False


@dataclass(slots=True, kw_only=True)
class ImportPlan:
    """The topics and configurations to write. `notes` inform, `concerns` require --yes, `refusals` prevent the import."""

    cluster_id: str
    broker_id: int
    topics: list[PlannedTopic] = field(default_factory=list)
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    default_configs: Mapping[str, str] = field(default_factory=dict)
    controller_epoch: int = 0
    producer_ids: ProducerIdBlock | None = None
    copied: Mapping[str, bytes | None] = field(default_factory=dict)  # nodes by path: ACLs, quotas and SCRAM credentials
    notes: list[str] = field(default_factory=list)
    concerns: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def operations(self) -> list[Create]:
        """The operations that create the metadata in an empty tree."""
        block = self.producer_ids
        data = {node_paths.PRODUCER_ID_BLOCK: None if block is None else block.encode()}
        ops = [Create(path, data.get(path)) for path in node_paths.STRUCTURE]
        ops.append(Create(node_paths.CLUSTER_ID, encode_cluster_id(self.cluster_id)))
        ops.append(Create(node_paths.CONTROLLER_EPOCH, encode_controller_epoch(self.controller_epoch)))
        ops.append(Create(node_paths.FEATURE, FEATURES))
        for entity, configs in (
            (node_paths.broker_entity(self.broker_id), self.broker_configs),
            (node_paths.ALL_BROKERS, self.default_configs),
        ):
            if configs:
                ops.append(Create(entity.path, encode_config(configs)))
        for topic in self.topics:
            ops += self._topic(topic)
        parents = {parent: None for path in self.copied for parent in parents_of(path) if parent not in node_paths.STRUCTURE}
        return [*ops, *(Create(path, data) for path, data in {**parents, **self.copied}.items())]

    def _topic(self, topic: PlannedTopic) -> list[Create]:
        only = (self.broker_id,)
        assignment = TopicAssignment(topic.topic_id, {partition: ReplicaAssignment(only) for partition in topic.epochs})
        ops = [
            Create(node_paths.topic_entity(topic.name).path, encode_config(topic.configs)),
            Create(node_paths.topic(topic.name), assignment.encode()),
            Create(node_paths.partitions(topic.name)),
        ]
        for partition, epoch in topic.epochs.items():
            topic_partition = TopicPartition(topic.name, partition)
            state = PartitionState(self.broker_id, epoch, only, self.controller_epoch)
            ops += [Create(node_paths.partition(topic_partition)), Create(node_paths.state(topic_partition), state.encode())]
        if topic.deleting:
            ops.append(Create(node_paths.deletion(topic.name)))
        return ops
