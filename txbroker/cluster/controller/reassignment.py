"""Partition reassignments: moves replicas between brokers (KIP-455), as Kafka's `KafkaController` does.

A reassignment is kept in the topic's node: the replicas are those of the target, then the others of the origin; `adding` and `removing`
are the differences. Its steps, after each of which another controller can continue:

1. Write the topic's node. Replicas that an earlier reassignment was adding, and this one does not keep, are deleted.
2. Raise the leader epoch, so that the leader accepts the added replicas, and start these. They catch up, and the leader adds them to the
   ISR.
3. When all target replicas are in sync, elect a leader among them if another replica leads, and remove the others from the ISR.
4. Delete the removed replicas.
5. When their brokers have answered, write the topic's node with the target. (Kafka does not wait: a removed leader that does not know of
   its removal, because the controller died, serves on.)

A cancellation is a reassignment to the origin. As in Kafka, a broker that is down in step 4 keeps the log of its removed replica. A
broker that runs, and did not get the request before the controller was replaced, deletes the replica when the next controller sends
the metadata of all partitions (`Replicas.delete_unassigned`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.election_rules import elect_among
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import MalformedNode, PartitionState, ReplicaAssignment
from txbroker.cluster.tree.interface import Refused
from txbroker.cluster.tree.operations import for_client
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.controller")



@lazy_dataclass(frozen=True, slots=True)
class Finishing:
    """A reassignment in step 4, which is complete in the context."""

    assignment: ReplicaAssignment  # in the tree
    waiting: set[int]  # brokers that have not answered


Targets = Mapping[TopicPartition, Sequence[int] | None]  # None: cancel the reassignment in progress
Outcomes = dict[TopicPartition, BrokerError | None]  # None: the reassignment has begun, or is complete


class Reassignments:
    """Begins, continues and completes the reassignments of one controller term."""

    def __init__(self, context: ControllerContext, leadership: Leadership, nodes: StateNodes, outbox: OutgoingRequests) -> None:
        self._context = context
        self._leadership = leadership
        self._nodes = nodes
        self._outbox = outbox
        self._finishing: dict[TopicPartition, Finishing] = {}

    async def alter(self, targets: Targets, *, factor_may_change: bool = True) -> Outcomes:
        """Begin or cancel reassignments; the outcome of each partition. Not `factor_may_change`: targets must have as many replicas.

        UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICATION_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
        """
        outcomes: Outcomes = {}
        plans: dict[TopicPartition, ReplicaAssignment] = {}
        for topic_partition, target in targets.items():
            try:
                plans[topic_partition] = self._plan(topic_partition, target, factor_may_change)
                outcomes[topic_partition] = None
            except BrokerError as error:
                outcomes[topic_partition] = error
        before = {tp: self._context.assignment(tp) for tp in plans}
        wanted = {tp: plan for tp, plan in plans.items() if plan != before[tp]}
        begun, failed = await self._assign(wanted)
        outcomes.update(failed)
        for topic_partition in begun:
            self._finishing.pop(topic_partition, None)
            origin, target = list(before[topic_partition].replicas), list(plans[topic_partition].target)
            log.info("reassignment of %s from replicas %s to %s", topic_partition, origin, target)
        await self._continue(begun, {tp: set(before[tp].replicas) - set(plans[tp].replicas) for tp in begun})
        return outcomes

    async def resume(self) -> None:
        """Continue the reassignments in progress after the election of this controller."""
        await self._continue(sorted(self._context.reassigning), {})

    async def complete(self) -> None:
        """Complete those reassignments in progress whose target replicas are in sync now."""
        await self._complete([tp for tp in sorted(self._context.reassigning) if self._is_ready(tp)], {})

    async def stopped(self, broker_id: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """Step 5: a broker has answered the StopReplica for these partitions, or it is gone (None: it will answer none)."""
        done = []
        for topic_partition in self._finishing if partitions is None else partitions:
            finishing = self._finishing.get(topic_partition)
            if finishing is not None:
                finishing.waiting.discard(broker_id)
                if not finishing.waiting:
                    done.append(topic_partition)
        await self._finish(done)

    def in_progress(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments in progress."""
        assignments = {tp: self._context.assignment(tp) for tp in self._context.reassigning}
        assignments.update((tp, finishing.assignment) for tp, finishing in self._finishing.items())
        return {tp: assignment for tp, assignment in sorted(assignments.items()) if tp.topic not in self._context.deleting}

    # Validation

    def _plan(self, topic_partition: TopicPartition, target: Sequence[int] | None, factor_may_change: bool) -> ReplicaAssignment:
        if not self._context.knows(topic_partition):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if topic_partition.topic in self._context.deleting:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic is being deleted.")
        assignment = self._context.assignment(topic_partition)
        if target is None and not assignment.is_reassigning:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        plan = assignment.reassigned_to(assignment.origin if target is None else target)
        problem = self._problem(topic_partition, plan, target)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, problem)
        if not factor_may_change and len(plan.target) != len(assignment.origin):
            message = f"The replication factor would change from {len(assignment.origin)} to {len(plan.target)}."
            raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        return plan

    def _problem(self, topic_partition: TopicPartition, plan: ReplicaAssignment, target: Sequence[int] | None) -> str | None:
        if target is not None:
            if not target:
                return "Empty replica list specified in partition reassignment."
            if len(set(target)) != len(target):
                return f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
            if min(target) < 0:
                return f"Invalid broker id in replica list: {list(target)}"
        if not set(plan.adding) <= self._context.brokers.keys():
            live = sorted(self._context.brokers)
            return f"Replica assignment has brokers that are not alive. Replica list: {list(plan.adding)}, live broker list: {live}"
        state = self._context.states.get(topic_partition)
        if state is not None:
            online = set(self._context.online(topic_partition, shutting_down_too=True)) & set(state.isr)
            kept = set(state.isr) & set(plan.replicas)
            if not kept or (online and not online & kept):
                return f"None of the replicas {list(plan.replicas)} could lead the partition: its in-sync replicas are {list(state.isr)}"
        return None

    # Steps

    async def _assign(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> tuple[dict[TopicPartition, None], dict[TopicPartition, BrokerError]]:
        """Write assignments to the tree and the context. Returns the partitions that were written, and the errors of the others."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = defaultdict(dict)
        for topic_partition, assignment in assignments.items():
            by_topic[topic_partition.topic][topic_partition.partition] = assignment
        written: dict[TopicPartition, None] = {}
        failed: dict[TopicPartition, BrokerError] = {}
        for topic, partitions in by_topic.items():
            here = [TopicPartition(topic, partition) for partition in partitions]
            try:
                exists = await self._nodes.assign(topic, partitions)
            except (Refused, MalformedNode) as error:
                failed.update(dict.fromkeys(here, for_client(error)))
                continue
            if exists:
                self._put(topic, partitions)
                written.update(dict.fromkeys(here))
            else:
                unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
                failed.update(dict.fromkeys(here, unknown))
        return written, failed

    def _put(self, topic: str, partitions: Mapping[int, ReplicaAssignment]) -> None:
        self._context.put_topic(topic, self._context.topics[topic].with_partitions(partitions))

    async def _continue(self, partitions: Iterable[TopicPartition], unneeded: Mapping[TopicPartition, Collection[int]]) -> None:
        """Complete reassignments, or raise the leader epochs and start the added replicas. `unneeded` replicas are deleted."""
        wanted = [tp for tp in partitions if tp.topic not in self._context.deleting]
        new = set(await self._leadership.create([tp for tp in wanted if tp not in self._context.states]))
        completed = await self._complete([tp for tp in wanted if self._is_ready(tp)], unneeded)
        changed = await self._leadership.change([tp for tp in wanted if tp not in completed], self._among_all)
        batch = self._outbox.batch()
        for topic_partition in changed:
            assignment = self._context.assignment(topic_partition)
            for replica in assignment.replicas:
                batch.roles([replica], topic_partition, is_new=replica in assignment.adding or topic_partition in new)
            for replica in sorted(unneeded.get(topic_partition, ())):
                batch.stop(replica, topic_partition, delete=True)
        self._outbox.send(batch)

    def _among_all(self, topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        return elect_among(state, self._context.assignment(topic_partition).replicas, self._electable(topic_partition, state))

    def _is_ready(self, topic_partition: TopicPartition) -> bool:
        state = self._context.states.get(topic_partition)
        return state is not None and topic_partition.topic not in self._context.deleting and self._is_complete(topic_partition, state)

    def _is_complete(self, topic_partition: TopicPartition, state: PartitionState) -> bool:
        """Whether only the target replicas are needed: all are in sync, and one of them can lead."""
        assignment = self._context.assignment(topic_partition)
        if not assignment.is_reassigning:
            return True
        electable = self._electable(topic_partition, state)
        return set(assignment.target) <= set(state.isr) and any(replica in electable for replica in assignment.target)

    def _electable(self, topic_partition: TopicPartition, state: PartitionState) -> tuple[int, ...]:
        """The online replicas; those that shut down only if no other is in sync."""
        online = self._context.online(topic_partition)
        if set(online) & set(state.isr):
            return online
        return self._context.online(topic_partition, shutting_down_too=True)

    async def _complete(
        self, partitions: Collection[TopicPartition], unneeded: Mapping[TopicPartition, Collection[int]]
    ) -> Collection[TopicPartition]:
        """Steps 3 and 4, and 5 where no broker has to answer. Returns the partitions whose state was written."""

        def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            if not self._is_complete(topic_partition, state):
                return None  # its ISR has changed in the tree
            return elect_among(state, self._context.assignment(topic_partition).target, self._electable(topic_partition, state))

        changed = dict.fromkeys(await self._leadership.change(partitions, rule))
        batch = self._outbox.batch()
        for topic_partition in changed:
            before = self._context.assignment(topic_partition)
            self._put(topic_partition.topic, {topic_partition.partition: ReplicaAssignment(before.target)})
            batch.roles(before.target, topic_partition)
            removed = {*before.removing, *unneeded.get(topic_partition, ())}
            for replica in sorted(removed):
                batch.stop(replica, topic_partition, delete=True)
            if before.is_reassigning:
                self._finishing[topic_partition] = Finishing(before, removed & self._context.brokers.keys())
        self._outbox.send(batch)
        await self._finish([tp for tp in changed if tp in self._finishing and not self._finishing[tp].waiting])
        return changed

    async def _finish(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            del self._finishing[topic_partition]
        existing = [tp for tp in partitions if self._context.knows(tp)]
        completed, _ = await self._assign({tp: self._context.assignment(tp) for tp in existing})
        for topic_partition in completed:
            replicas = list(self._context.assignment(topic_partition).replicas)
            log.info("reassignment of %s is complete: replicas %s", topic_partition, replicas)
