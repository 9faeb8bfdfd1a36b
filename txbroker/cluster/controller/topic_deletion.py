"""Deleting topics, as Kafka's `TopicDeletionManager` does.

Steps: (1) UpdateMetadata with leader -2 makes all brokers forget the topic; (2) its partitions lose their leaders in the tree;
(3) StopReplica stops its replicas; (4) StopReplica deletes their logs; (5) when all replicas have confirmed, its nodes are removed, the
deletion request last. A replica that is offline, or that fails to delete, delays step 5 until its broker restarts, or reports its log
directories again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import NO_LEADER, PartitionState
from txbroker.cluster.tree.interface import Refused
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

log = logging.getLogger("txbroker.controller")

Replica = tuple[int, TopicPartition]  # broker and partition


class TopicDeletions:
    """The deletions in progress in one controller term."""

    def __init__(self, context: ControllerContext, leadership: Leadership, nodes: StateNodes, outbox: OutgoingRequests) -> None:
        self._context = context
        self._leadership = leadership
        self._nodes = nodes
        self._outbox = outbox
        self._replicas: dict[str, set[Replica]] = {}  # replicas not deleted yet

    async def begin(self, topics: Collection[str]) -> None:
        """Steps 1 to 4 for existing topics whose deletion has not begun, and step 5 again for topics whose nodes could not be removed."""
        for topic in [topic for topic, replicas in self._replicas.items() if not replicas]:
            await self._finish(topic)
        if not topics:
            return
        self._context.deleting.update(topics)
        partitions = list(self._context.partitions_of(topics))
        metadata = self._outbox.batch()
        metadata.metadata(self._context.brokers, partitions)
        self._outbox.send(metadata)
        await self._leadership.change(partitions, _without_leader)
        for topic in topics:
            of_topic = self._context.partitions_of([topic])
            self._replicas[topic] = {(replica, tp) for tp in of_topic for replica in self._context.assignment(tp).replicas}
        self._stop([replica for topic in topics for replica in sorted(self._replicas[topic])])
        for topic in topics:
            await self._finish(topic)

    def is_deleted(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a broker has confirmed the deletion of its replica, while others have not yet."""
        remaining = self._replicas.get(topic_partition.topic)
        return remaining is not None and (broker_id, topic_partition) not in remaining

    def resume(self, brokers: Iterable[int]) -> None:
        """These brokers have started, or their disks have space again: stop and delete their remaining replicas."""
        started = set(brokers)
        self._stop([replica for topic in self._replicas.values() for replica in sorted(topic) if replica[0] in started])

    async def answered(self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        """A broker has answered a StopReplica: step 5 for topics without remaining replicas."""
        failed = {TopicPartition(e.topic_name, e.partition_index) for e in response.partition_errors if e.error_code != ErrorCode.NONE}
        topics: dict[str, None] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                if not state.delete_partition or topic.topic_name not in self._replicas:
                    continue
                if response.error_code != ErrorCode.NONE or topic_partition in failed:
                    later = "the deletion continues after its next start, or when it reports its log directories"
                    log.warning("broker %d failed to delete %s: %s", broker_id, topic_partition, later)
                    continue
                self._replicas[topic.topic_name].discard((broker_id, topic_partition))
                topics[topic.topic_name] = None
        for name in topics:
            await self._finish(name)

    def _stop(self, replicas: Iterable[Replica]) -> None:
        online = [(broker, tp) for broker, tp in replicas if self._context.is_online(broker, tp, shutting_down_too=True)]
        for delete in (False, True):
            batch = self._outbox.batch()
            for broker, topic_partition in online:
                batch.stop(broker, topic_partition, delete=delete)
            self._outbox.send(batch)

    async def _finish(self, topic: str) -> None:
        if self._replicas[topic]:
            return
        try:
            await self._nodes.delete_topic(topic)
        except Refused as error:
            log.error("the nodes of topic %s stay until the next deletion of a topic, or election: %s", topic, error)
            return
        del self._replicas[topic]
        self._context.forget_topic(topic)
        log.info("topic %s is deleted", topic)


def _without_leader(_: TopicPartition, state: PartitionState) -> PartitionState | None:
    if state.leader == NO_LEADER:
        return None  # an earlier controller began this deletion, or there was no leader
    return replace(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
