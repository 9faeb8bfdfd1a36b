"""Reads the metadata of a Kafka cluster from its ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.cli.handover.zookeeper import ZooKeeper, check_is_kafkas
from txbroker.cli.step_progress import OnProgress
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import (
    MalformedNode,
    TopicAssignment,
    decode_cluster_id,
    decode_config,
    decode_controller_epoch,
    decode_producer_id_block,
    decode_state,
    decode_topic,
)
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.zookeeper_migration.kafka_metadata import ForeignCluster, ForeignPartition, ForeignTopic, counted
from txbroker.console.failures import CommandFailed
from txbroker.names import TopicPartition

_MIGRATION = "/migration"
_REASSIGNMENT = "/admin/reassign_partitions"


def read_cluster(zookeeper: ZooKeeper, broker_id: int, on_progress: OnProgress, *, may_be_empty: bool = False) -> ForeignCluster:
    """The metadata that one broker can import. `may_be_empty`: the chroot may have no Kafka cluster. CommandFailed."""
    if not may_be_empty:
        check_is_kafkas(zookeeper)
    try:
        return _read(zookeeper, broker_id, on_progress)
    except MalformedNode as error:
        raise CommandFailed(f"the metadata at {zookeeper.address} is damaged: {error}") from error


def _read(zookeeper: ZooKeeper, broker_id: int, on_progress: OnProgress) -> ForeignCluster:
    names = zookeeper.children(node_paths.TOPICS)
    assignments = {name: decode_topic(data) for name, data in _data(zookeeper, names, on_progress)}
    cluster_id, epoch = zookeeper.get(node_paths.CLUSTER_ID), zookeeper.get(node_paths.CONTROLLER_EPOCH)
    block = zookeeper.get(node_paths.PRODUCER_ID_BLOCK)
    return ForeignCluster(
        source=f"the ZooKeeper at {zookeeper.address}",
        cluster_id=None if not cluster_id else decode_cluster_id(cluster_id),
        topics=_topics(zookeeper, assignments, on_progress),
        broker_configs=_config(zookeeper, node_paths.broker_entity(broker_id)),
        default_configs=_config(zookeeper, node_paths.ALL_BROKERS),
        controller_epoch=0 if not epoch else decode_controller_epoch(epoch),
        producer_ids=None if not block else decode_producer_id_block(block),
        deleting=frozenset(zookeeper.children(node_paths.DELETE_TOPICS)),
        alive=frozenset(int(name) for name in zookeeper.children(node_paths.BROKER_IDS) if name.isdecimal()),
        acls=_acls(zookeeper, on_progress),
        clients=_clients(zookeeper, on_progress),
        tokens=_tokens(zookeeper, on_progress),
        notes=tuple(_notes(zookeeper, assignments)),
        concerns=tuple(_concerns(zookeeper)),
    )


def _data(zookeeper: ZooKeeper, names: list[str], on_progress: OnProgress) -> Iterator[tuple[str, bytes | None]]:
    found = zookeeper.get_all([node_paths.topic(name) for name in names], on_progress)
    for name in names:
        if node_paths.topic(name) in found:
            yield name, found[node_paths.topic(name)]


def _topics(zookeeper: ZooKeeper, assignments: dict[str, TopicAssignment], on_progress: OnProgress) -> dict[str, ForeignTopic]:
    wanted = [TopicPartition(name, partition) for name, assignment in assignments.items() for partition in assignment.partitions]
    states = zookeeper.get_all([node_paths.state(topic_partition) for topic_partition in wanted], on_progress)
    configs = zookeeper.get_all([node_paths.topic_entity(name).path for name in assignments], on_progress)
    topics = {}
    for name, assignment in assignments.items():
        partitions = {}
        for number, replicas in assignment.partitions.items():
            data = states.get(node_paths.state(TopicPartition(name, number)))
            state = None if not data else decode_state(data, 0)
            partitions[number] = ForeignPartition(
                replicas=replicas.replicas,
                isr=replicas.replicas if state is None else state.isr,
                leader_epoch=-1 if state is None else state.leader_epoch,
            )
        config = configs.get(node_paths.topic_entity(name).path)
        topics[name] = ForeignTopic(
            topic_id=assignment.topic_id, partitions=partitions, configs=decode_config(config) if config else {}
        )
    return topics


def _config(zookeeper: ZooKeeper, entity: Entity) -> dict[str, str]:
    data = zookeeper.get(entity.path)
    return decode_config(data) if data else {}


def _acls(zookeeper: ZooKeeper, on_progress: OnProgress) -> dict[str, bytes | None]:
    """The nodes with ACLs."""
    kinds = [f"{root}/{kind}" for root in node_paths.ACL_ROOTS for kind in zookeeper.children(root)]
    return dict(zookeeper.get_all([f"{kind}/{name}" for kind in kinds for name in zookeeper.children(kind)], on_progress))


def _clients(zookeeper: ZooKeeper, on_progress: OnProgress) -> dict[str, bytes | None]:
    """The nodes with the quotas of clients, and the SCRAM credentials of users."""
    paths = [Entity(kind, name).path for kind in node_paths.QUOTA_TYPES for name in zookeeper.children(f"/config/{kind}")]
    of_users = [f"{path}/{node_paths.CLIENT_TYPE}" for path in paths if path.startswith(f"/config/{node_paths.USER_TYPE}/")]
    paths += [f"{parent}/{name}" for parent in of_users for name in zookeeper.children(parent)]
    return dict(zookeeper.get_all(paths, on_progress))


def _tokens(zookeeper: ZooKeeper, on_progress: OnProgress) -> dict[str, bytes | None]:
    """The nodes with delegation tokens."""
    return dict(zookeeper.get_all([f"{node_paths.TOKENS}/{name}" for name in zookeeper.children(node_paths.TOKENS)], on_progress))


def _notes(zookeeper: ZooKeeper, assignments: dict[str, TopicAssignment]) -> Iterator[str]:
    consumers = [name for name in zookeeper.children("/consumers") if zookeeper.children(f"/consumers/{name}/offsets")]
    if consumers:
        yield f"offsets that {counted(consumers, 'group')} of old consumers committed to ZooKeeper are not imported"
    moving = [name for name, topic in assignments.items() if any(each.adding or each.removing for each in topic.partitions.values())]
    if moving or zookeeper.exists(_REASSIGNMENT):
        yield f"a reassignment of partitions of {counted(moving, 'topic')} is in progress: it is not continued"


def _concerns(zookeeper: ZooKeeper) -> Iterator[str]:
    if zookeeper.get(_MIGRATION):
        yield "a migration to KRaft was started: if it was finalized, the metadata in ZooKeeper is stale"
