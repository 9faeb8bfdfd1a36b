"""What a new controller does with the partitions that it finds: corrects every state, and sends roles and metadata to all brokers.

In parts: brokers carry out one while the next one is written. Partitions without a leader come first, as clients wait for them. Between
the parts new topics get their leaders. Brokers that have metadata of the predecessor first get only the brokers of the cluster, before the
topics are read: so clients find the new controller. Brokers that have just started first get all topics as they are: without them they
would answer that these topics do not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.fenced_writes import Written
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import PartitionState
from txbroker.names import TopicPartition

PARTITIONS_TOGETHER = 500  # their states are written in one transaction, and sent in one batch


class Takeover:
    """Of one term. The methods are called in their order."""

    def __init__(
        self,
        context: ControllerContext,
        leadership: Leadership,
        outbox: OutgoingRequests,
        informed: Callable[[], Collection[int]],
        new_topics: Callable[[], Awaitable[None]],
    ) -> None:
        """`informed`: brokers that have the predecessor's metadata. `new_topics` brings up topics that were created meanwhile."""
        self._context = context
        self._leadership = leadership
        self._outbox = outbox
        self._find_informed = informed
        self._new_topics = new_topics
        self._informed: Collection[int] = ()
        self._unfinished: Collection[int] = ()  # brokers whose metadata is complete only after the last request
        self._announced: Mapping[TopicPartition, PartitionState] = {}  # what the other brokers have

    def announce_brokers(self) -> None:
        """The brokers are read."""
        self._informed = self._context.brokers.keys() & self._find_informed()
        batch = self._outbox.batch()
        batch.metadata(self._informed)
        self._outbox.send(batch)

    def announce_topics(self) -> None:
        """The topics and states are read."""
        context = self._context
        self._announced = dict(context.states)
        self._unfinished = self._informed if context.is_complete else set(context.brokers)
        batch = self._outbox.batch()
        batch.metadata(context.brokers.keys() - self._informed, context.partitions(), full=context.is_complete)
        self._outbox.send(batch)

    async def correct(self, written: Mapping[TopicPartition, Written], suspects: Collection[int]) -> list[TopicPartition]:
        """Correct and send all partitions; returns those that `suspects` have left. `written`: their states, as read."""
        context = self._context
        await self._leadership.replace_restarted(self._restarted(written))
        urgent = {*context.led_offline(), *(tp for tp, state in context.states.items() if state.leader in suspects)}
        left: list[TopicPartition] = []
        for part in _parts(sorted(context.partitions(), key=lambda tp: tp not in urgent)):
            left += await self._correct([tp for tp in part if context.knows(tp)], suspects)  # topics may be deleted by hand meanwhile
            await self._new_topics()
        return left

    def end(self) -> None:
        """Have brokers forget other topics, if all are known. They have all partitions by now: one of each topic names it."""
        self._outbox.taking_over = False
        self._announced = {}
        batch = self._outbox.batch()
        batch.metadata(self._unfinished, self._context.first_partitions(), full=self._context.is_complete)
        self._outbox.send(batch)

    async def _correct(self, part: Sequence[TopicPartition], suspects: Collection[int]) -> list[TopicPartition]:
        context = self._context
        remaining = [tp for tp in part if tp.topic not in context.deleting]
        new = set((await self._leadership.elect_led_offline(remaining)).new)
        await self._leadership.shrink(remaining)
        left = await self._leadership.leave(remaining) if suspects else []
        states = {tp: context.states[tp] for tp in part if tp in context.states}
        batch = self._outbox.batch()
        for topic_partition in states:
            batch.only_roles(context.online(topic_partition), topic_partition, is_new=topic_partition in new)
        for topic_partition, state in states.items():
            has_it = state == self._announced.get(topic_partition)
            batch.metadata(self._informed if has_it else context.brokers, [topic_partition])
        self._outbox.send(batch)
        return left

    def _restarted(self, written: Mapping[TopicPartition, Written]) -> dict[TopicPartition, set[int]]:
        """The members of ISRs whose brokers have other epochs now than the controller knew that wrote the state.

        A leader that has lost unsynced records would write others in the same leader epoch, at offsets that its followers have filled.
        A partition with one replica has no follower.

        Controllers of Apache Kafka write no broker epochs: then the members that registered after the state was written, which misses a
        restart that the controller had not noticed yet.
        """
        restarted: dict[TopicPartition, set[int]] = {}
        context, brokers = self._context, self._context.brokers
        for topic_partition, (state, epochs, zxid) in written.items():
            if len(context.assignment(topic_partition).replicas) > 1 and topic_partition.topic not in context.deleting:
                now = {id_: brokers[id_].epoch for id_ in state.isr if id_ in brokers}
                if epochs:
                    since = {id_ for id_, epoch in zip(state.isr, epochs, strict=True) if now.get(id_, epoch) != epoch}
                else:
                    since = {id_ for id_, epoch in now.items() if epoch > zxid}
                if since:
                    restarted[topic_partition] = since
        return restarted


def _parts(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    return (partitions[start : start + PARTITIONS_TOGETHER] for start in range(0, len(partitions), PARTITIONS_TOGETHER))
