"""A leader that may have been replaced without a request of the controller looks for its successors in the metadata tree."""

from __future__ import annotations

import logging

from txbroker.cluster import node_paths
from txbroker.cluster.followers import UNKNOWN_EPOCH
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import PartitionState, decode_state
from txbroker.cluster.own_broker import PARTITIONS_PER_TURN, OwnBroker
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.interface import Tree, Watcher
from txbroker.cluster.tree.operations import found
from txbroker.names import amount
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState

log = logging.getLogger("txbroker.failover")


class StepDown:
    """Of one broker."""

    def __init__(self, replicas: Replicas, own: OwnBroker, image: ClusterImage, tree: Tree) -> None:
        self._replicas = replicas
        self._own = own
        self._image = image
        self._tree = tree

    async def compare(self, changed: Watcher) -> None:
        """Follow the leaders that the tree has in newer epochs, as if the controller had sent them. `changed` is a watch on each state."""
        led = [partition for partition in self._replicas if partition.is_leader]
        reads = await found([self._tree.get(node_paths.state(partition.topic_partition), watch=changed) for partition in led])
        newer: list[tuple[Partition, PartitionState]] = []
        for partition, read in zip(led, reads, strict=True):
            if read is not None:
                state = decode_state(read[0], read[1].version)
                if state.leader != self._replicas.broker_id and state.leader_epoch > partition.leader_epoch:
                    newer.append((partition, state))
        if newer:
            log.warning("this broker has been replaced as the leader of %s, and steps down", amount(len(newer), "partition"))
            for first in range(0, len(newer), PARTITIONS_PER_TURN):  # so many are carried out at once
                # A request of the controller may have been carried out since: a replica that it has deleted must not be created again.
                part = [(partition, state) for partition, state in newer[first : first + PARTITIONS_PER_TURN]
                        if self._replicas.find(*partition.topic_partition) is partition
                        and state.leader_epoch > partition.leader_epoch]  # fmt: skip
                if part:
                    await self._own.send(self._request(part))

    def _request(self, newer: list[tuple[Partition, PartitionState]]) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for partition, state in newer:
            name = partition.topic_partition
            topic = topics.setdefault(name.topic, LeaderAndIsrTopicState(topic_name=name.topic, topic_id=partition.log.topic_id))
            topic.partition_states.append(
                LeaderAndIsrPartitionState(
                    partition_index=name.partition,
                    controller_epoch=state.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    partition_epoch=state.partition_epoch,
                    replicas=list(partition.state.replicas),
                )
            )
        return LeaderAndIsrRequest(
            controller_id=max(0, self._image.controller_id),
            controller_epoch=self._replicas.controller_epoch,
            broker_epoch=UNKNOWN_EPOCH,
            topic_states=list(topics.values()),
            live_leaders=[],
        )
