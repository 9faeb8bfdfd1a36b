"""One controller term: from this broker's election until another broker is elected, or this one stops.

It reads the tree, corrects the state of every partition, and then reacts to watches: brokers that start and stop, new topics and
partitions, topic deletions, reassignments, failed log directories. The controller calls one method at a time. Requests to brokers are
sent in batches: LeaderAndIsr to the replicas first, then UpdateMetadata to all brokers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial

from txbroker.clock import DelayedCall
from txbroker.cluster import node_paths
from txbroker.cluster.controller.admin_nodes import AdminNodes
from txbroker.cluster.controller.broker_channels import Channels, OpenChannel
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.fenced_writes import ControllerMoved, StateNodes, topic_of
from txbroker.cluster.controller.isr_changes import alter_partition
from txbroker.cluster.controller.leader_balance import BalanceSettings, LeaderBalance
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.node_reads import NodeReads
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.controller.reassignment import Outcomes, Reassignments, Targets
from txbroker.cluster.controller.request_batch import ControllerRequest, Controlling
from txbroker.cluster.controller.takeover import Takeover
from txbroker.cluster.controller.topic_deletion import TopicDeletions
from txbroker.cluster.node_data import (
    FEATURES,
    MalformedNode,
    decode_log_dir_event,
)
from txbroker.cluster.tree.interface import Delete, NodeExists, NoNode, Refused, Tree, Watcher, WatchEvent
from txbroker.errors import ErrorCode, error_name
from txbroker.names import TopicPartition, amount
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from txbroker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from txbroker.wire.schema import Response

log = logging.getLogger("txbroker.controller")

REFUSED_RETRY_S = 60.0  # after ZooKeeper refused to read or write a node
# A replica has no log to serve: its log directory has failed, or its log belongs to an earlier topic of the same name.
_WITHOUT_LOG = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID)

Handler = Callable[[], Awaitable[None]]


class ControllerTerm:
    """The parts of an active controller, and their reactions to changes of the tree."""

    def __init__(
        self,
        tree: Tree,
        controlling: Controlling,
        epoch_version: int,
        open_channel: OpenChannel,
        unclean_default: Callable[[], bool],
        enqueue: Callable[[ControllerTerm, Handler], None],
        call_later: Callable[[float, Callable[[], None]], DelayedCall],
        new_topic_id: Callable[[], bytes],
        balance: BalanceSettings | None,
        suspected: Callable[[], Mapping[int, int]],
        informed: Callable[[], Collection[int]],
    ) -> None:
        """`enqueue` calls a handler of this term after all earlier ones, unless the term has ended by then.

        `suspected`: the broker epochs of suspected brokers (`cluster/suspicions.py`). `informed`: see `Takeover`.

        `balance` is None if preferred leaders are not elected automatically.
        """
        self.controlling = controlling
        self.context = ControllerContext()
        self._tree = tree
        self._enqueue = enqueue
        self._call_later = call_later
        self._suspected = suspected
        self._nodes = StateNodes(tree, controlling.epoch, epoch_version, self.context.isr_epochs)
        self.leadership = Leadership(self.context, self._nodes, tree, unclean_default, controlling.epoch)
        self._channels = Channels(open_channel, self._answered)
        self.outbox = OutgoingRequests(controlling, self.context, self._channels)
        self._deletions = TopicDeletions(self.context, self.leadership, self._nodes, self.outbox)
        parts = self.context, self.leadership, self._nodes, self.outbox
        self.reassignments = Reassignments(*parts)
        self._admin_nodes = AdminNodes(tree, *parts, self.reassignments, self._enqueues)
        self._has_new_topics = False
        self._takeover = Takeover(self.context, self.leadership, self.outbox, informed, self._new_topics)
        self._balance: LeaderBalance | None = None
        if balance is not None:
            enqueued = partial(enqueue, self)
            self._balance = LeaderBalance(balance, self.context, self.leadership, self.outbox, call_later, enqueued)
        self._nodes.on_refused = self._state_refused
        self._elects_again: DelayedCall | None = None  # leaders of partitions whose states could not be written
        self._reads = NodeReads(
            tree,
            self.context,
            self._nodes,
            new_topic_id,
            brokers=self._enqueues(self.brokers_changed),
            topics=self._topics_watch,
            topic=self._topic_watch,
            deletions=self._enqueues(self.deletions_changed),
        )
        self._log_dirs_watch = self._enqueues(self.log_dirs_changed)

    def close(self) -> None:
        """Stop sending requests."""
        self._channels.close()
        if self._elects_again is not None:
            self._elects_again.cancel()
        if self._balance is not None:
            self._balance.stop()

    async def release(self) -> None:
        """Delete `/controller`, unless another broker has been elected since."""
        try:
            await self._nodes.write([Delete(node_paths.CONTROLLER)])
        except (ControllerMoved, NoNode):
            return

    async def begin(self) -> None:
        """Take over the cluster from its current state."""
        await self._apart(self._ensure_features)
        self.context.brokers = await self._reads.brokers()
        self._takeover.announce_brokers()
        asked = await self._reads.deletions()  # read before the topics: the watch reports later requests
        await self._reads.new_topics()
        self.context.deleting.update(asked & self.context.topics.keys())
        written = await self._nodes.read_written(self.context.partitions())
        self.context.states = {topic_partition: each.state for topic_partition, each in written.items()}
        suspects = self._newly_suspected()
        self._takeover.announce_topics()
        led = self._led_by(suspects)
        left = await self._takeover.correct(written, suspects)
        self._log_left(suspects, left, led)
        self._takeover.end()
        unknown = asked - self.context.topics.keys()
        await self._deletions.begin(sorted(self.context.deleting))
        await self._drop_deletions(unknown)
        await self.reassignments.resume()
        await self._apart(self._admin_nodes.reassign)
        await self._apart(self._admin_nodes.elect)
        await self._apart(self._admin_nodes.isr_changed)
        await self._apart(self.log_dirs_changed)
        if self._balance is not None:
            self._balance.start()
        topics, brokers = amount(len(self.context.topics), "topic"), amount(len(self.context.brokers), "broker")
        log.info("this broker is the controller, epoch %d: %s, %s", self.controlling.epoch, topics, brokers)

    # Reactions to watches

    async def brokers_changed(self) -> None:
        """The children of `/brokers/ids` changed: brokers started, stopped, or restarted (new broker epoch)."""
        now = await self._reads.brokers()
        known = self.context.brokers
        gone = {broker_id for broker_id, broker in known.items() if broker_id not in now or now[broker_id].epoch != broker.epoch}
        started = {broker_id for broker_id in now if broker_id not in known or broker_id in gone}
        for broker_id in gone:
            self._channels.drop(broker_id)
            self.context.forget_broker(broker_id)
        if gone:
            log.info("brokers stopped: %s", sorted(gone))
            await self._brokers_died(gone)
            for broker_id in gone:
                await self.reassignments.stopped(broker_id)
            await self._admin_nodes.reassignments_changed()
        if started:
            log.info("brokers started: %s", sorted(started))
            self.context.brokers = {broker_id: now[broker_id] for broker_id in sorted(now)}
            await self._brokers_started(started)

    async def suspects_changed(self) -> None:
        """Brokers are suspected, or no longer. Leadership leaves a suspect, which leaves the ISRs; nothing else of it changes."""
        suspects = self._newly_suspected()
        if not suspects:
            return
        concerned = [tp for tp in self.context.partitions_on(suspects) if tp.topic not in self.context.deleting]
        led = self._led_by(suspects)
        left = await self.leadership.leave(concerned)
        self._log_left(suspects, left, led)
        batch = self.outbox.batch()
        for topic_partition in left:
            batch.roles(self.context.assignment(topic_partition).replicas, topic_partition)
        self.outbox.send(batch)

    async def topics_changed(self) -> None:
        """The children of `/brokers/topics` changed."""
        self._has_new_topics = False
        await self._bring_up(await self._reads.new_topics())

    async def topic_changed(self, name: str) -> None:
        """A topic's node was written: it may have new partitions."""
        before = self.context.topics.get(name)
        if before is None or name in self.context.deleting:
            return
        now = (await self._reads.topics([name])).get(name)
        if now is None:
            return
        # Only the controller changes the replicas of existing partitions.
        new = {partition: assignment for partition, assignment in now.partitions.items() if partition not in before.partitions}
        self.context.put_topic(name, before.with_partitions(new))
        await self._bring_up([TopicPartition(name, partition) for partition in new])

    async def deletions_changed(self) -> None:
        """The children of `/admin/delete_topics` changed."""
        asked = await self._reads.deletions()
        if asked - self.context.topics.keys():
            await self.topics_changed()  # the watch of a topic that was just created may not have run yet
        await self._deletions.begin(sorted((asked & self.context.topics.keys()) - self.context.deleting))
        await self._drop_deletions(asked - self.context.topics.keys())

    async def log_dirs_changed(self) -> None:
        """Log directories of brokers failed: their LeaderAndIsr responses show which replicas are offline."""
        names = await self._tree.children(node_paths.LOG_DIR_EVENTS, watch=self._log_dirs_watch)
        brokers: set[int] = set()
        for name in names:
            try:
                brokers.add(decode_log_dir_event((await self._tree.get(f"{node_paths.LOG_DIR_EVENTS}/{name}"))[0]))
            except (MalformedNode, Refused) as error:
                log.error("skipping %s/%s: %s", node_paths.LOG_DIR_EVENTS, name, error)
        batch = self.outbox.batch()
        for topic_partition in self._with_state(self.context.partitions_on(brokers)):
            if topic_partition.topic not in self.context.deleting:  # a role after the StopReplica would create the log again
                batch.roles(brokers & set(self.context.assignment(topic_partition).replicas), topic_partition)
                continue
            for broker_id in brokers:  # whether it is offline shows the answer to the StopReplica
                self.context.offline.get(broker_id, set()).discard(topic_partition)
        self.outbox.send(batch)
        self._deletions.resume(brokers)
        for name in names:
            await self._delete(f"{node_paths.LOG_DIR_EVENTS}/{name}")

    # Requests

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """AlterPartition. The response does not wait for the reassignments that the new ISRs complete."""
        response = await alter_partition(request, self.context, self.leadership, self.outbox)
        if self.context.reassigning:
            self._enqueue(self, self._reassignments_may_be_complete)
        return response

    async def reassign(self, targets: Targets, *, factor_may_change: bool) -> Outcomes:
        """AlterPartitionReassignments."""
        outcomes = await self.reassignments.alter(targets, factor_may_change=factor_may_change)
        await self._admin_nodes.reassignments_changed()
        return outcomes

    async def _reassignments_may_be_complete(self) -> None:
        await self.reassignments.complete()
        await self._admin_nodes.reassignments_changed()

    # Effects

    async def _new_topics(self) -> None:
        if self._has_new_topics:
            await self.topics_changed()

    async def elect_led_offline(self) -> None:
        """Elect leaders for partitions without one, and send the results."""
        elected = await self.leadership.elect_led_offline()
        batch = self.outbox.batch()
        for topic_partition in elected.new:
            batch.roles(self.context.assignment(topic_partition).replicas, topic_partition, is_new=True)
        for topic_partition in elected.changed:
            batch.roles(self.context.assignment(topic_partition).replicas, topic_partition)
        self.outbox.send(batch)

    async def replicas_offline(self, partitions: Collection[TopicPartition]) -> None:
        """Replicas of these partitions went offline with their brokers or log directories."""
        elected = await self.leadership.elect_led_offline()
        shrunk = await self.leadership.shrink(tp for tp in partitions if tp.topic not in self.context.deleting)
        batch = self.outbox.batch()
        for topic_partition in dict.fromkeys([*elected.changed, *shrunk]):
            batch.roles(self.context.assignment(topic_partition).replicas, topic_partition)
        batch.metadata(self.context.brokers, partitions)
        self.outbox.send(batch)

    def _newly_suspected(self) -> set[int]:
        """Bring the context up to date. Returns the suspected brokers that were not suspected before, and do not shut down anyway."""
        context = self.context
        before, known = context.suspected, context.brokers
        context.suspected = {id_ for id_, epoch in self._suspected().items() if id_ in known and known[id_].epoch == epoch}
        return context.suspected - before - context.shutting_down

    def _led_by(self, brokers: Collection[int]) -> int:
        return sum(state.leader in brokers for tp, state in self.context.states.items() if tp.topic not in self.context.deleting)

    def _log_left(self, suspects: Collection[int], left: Collection[TopicPartition], led: int) -> None:
        if suspects:
            log.warning(
                "removed suspected brokers %s from %s; %d of the %d that they led have another leader",
                sorted(suspects), amount(len(left), "ISR"), led - self._led_by(suspects), led,
            )  # fmt: skip

    async def _brokers_died(self, brokers: Collection[int]) -> None:
        await self.replicas_offline(list(self.context.partitions_on(brokers)))

    async def _brokers_started(self, brokers: Collection[int]) -> None:
        announcement = self.outbox.batch()
        announcement.metadata(self.context.brokers.keys() - brokers)
        announcement.metadata(brokers, self.context.partitions(), full=self.context.is_complete)
        self.outbox.send(announcement)
        roles = self.outbox.batch()
        for topic_partition in self._with_state(self.context.partitions_on(brokers)):
            replicas = self.context.assignment(topic_partition).replicas
            started = [replica for replica in replicas if replica in brokers]
            roles.roles([replica for replica in started if not self._deletions.is_deleted(replica, topic_partition)], topic_partition)
        self.outbox.send(roles)
        await self.elect_led_offline()
        await self._reassignments_may_be_complete()
        self._deletions.resume(brokers)

    async def _bring_up(self, partitions: Iterable[TopicPartition]) -> None:
        batch = self.outbox.batch()
        for topic_partition in await self.leadership.create(partitions):
            batch.roles(self.context.assignment(topic_partition).replicas, topic_partition, is_new=True)
        self.outbox.send(batch)

    def _with_state(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [topic_partition for topic_partition in partitions if topic_partition in self.context.states]

    # Writes

    async def _ensure_features(self) -> None:
        try:
            await self._tree.create(node_paths.FEATURE, FEATURES)
        except NodeExists:
            return

    async def _drop_deletions(self, topics: Iterable[str]) -> None:
        """Remove deletion requests for topics that do not exist."""
        for name in sorted(topics):
            await self._delete(node_paths.deletion(name))

    async def _delete(self, path: str) -> None:
        try:
            await self._nodes.write([Delete(path)])
        except NoNode:
            return
        except Refused as error:
            log.error("%s stays: %s", path, error)

    # Watches

    def _topics_watch(self, _: WatchEvent) -> None:
        self._has_new_topics = True
        self._enqueue(self, partial(self._apart, self._new_topics))

    def _enqueues(self, handler: Handler) -> Watcher:
        return lambda _: self._enqueue(self, partial(self._apart, handler))

    async def _apart(self, handler: Handler) -> None:
        """A step that concerns one kind of node: if ZooKeeper refuses it, the term goes on, and the step is made again later."""
        try:
            await handler()
        except Refused as error:
            log.error("the controller goes on without this, and repeats it in %.0f s: %s", REFUSED_RETRY_S, error)
            self._call_later(REFUSED_RETRY_S, lambda: self._enqueue(self, partial(self._apart, handler)))

    def _state_refused(self) -> None:
        if self._elects_again is None:
            self._elects_again = self._call_later(REFUSED_RETRY_S, self._elect_again)

    def _elect_again(self) -> None:
        self._elects_again = None
        self._enqueue(self, self.elect_led_offline)

    def _topic_watch(self, event: WatchEvent) -> None:
        name = topic_of(event.path)
        self._enqueue(self, lambda: self.topic_changed(name))

    # Responses of brokers

    def _answered(self, broker_id: int, request: ControllerRequest, response: Response) -> None:
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            stop_request, stop_response = request, response
            self._enqueue(self, lambda: self._stop_answered(broker_id, stop_request, stop_response))
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
            roles_request, roles_response = request, response
            self._enqueue(self, lambda: self._roles_answered(broker_id, roles_request, roles_response))

    async def _stop_answered(self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        await self._deletions.answered(broker_id, request, response)
        stopped = [TopicPartition(topic.topic_name, p.partition_index) for topic in request.topic_states for p in topic.partition_states]
        await self.reassignments.stopped(broker_id, stopped)
        await self._admin_nodes.reassignments_changed()

    async def _roles_answered(self, broker_id: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        """Mark replicas that a broker cannot serve as offline, and those that it opened as online.

        Kafka's controller does so for failed log directories only, and leaves partitions to a leader whose log is another topic's.
        """
        if response.error_code != ErrorCode.NONE:
            log.warning("broker %d refused LeaderAndIsr with error %d", broker_id, response.error_code)
            return
        if broker_id not in self.context.brokers:
            return
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        before = self.context.offline.get(broker_id, set())
        failed: set[TopicPartition] = set()
        refused: Counter[str] = Counter()
        unusable: Counter[str] = Counter()
        opened: set[TopicPartition] = set()
        for topic in response.topics:
            for answer in topic.partition_errors:
                topic_partition = TopicPartition(names.get(topic.topic_id, ""), answer.partition_index)
                if answer.error_code in _WITHOUT_LOG and self.context.knows(topic_partition):
                    failed.add(topic_partition)
                    if topic_partition not in before:
                        unusable[error_name(answer.error_code)] += 1
                elif answer.error_code == ErrorCode.NONE:
                    opened.add(topic_partition)
                elif answer.error_code != ErrorCode.STALE_CONTROLLER_EPOCH:  # it has this leader epoch, or a newer one
                    refused[error_name(answer.error_code)] += 1
        for code, count in refused.items():
            log.warning("broker %d refused its role in %s: %s", broker_id, amount(count, "partition"), code)
        self.context.offline[broker_id] = (before - opened) | failed
        if back := before & opened - failed:
            if any(topic_partition.topic in self.context.deleting for topic_partition in back):
                self._deletions.resume([broker_id])  # it was offline when the deletion began
            await self.elect_led_offline()
        for code, count in unusable.items():
            log.warning("broker %d cannot serve its logs of %s: %s", broker_id, amount(count, "partition"), code)
        if failed - before:
            await self.replicas_offline(failed - before)
