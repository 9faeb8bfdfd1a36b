"""The controller's fenced writes to the tree: partition states and the removal of topics.

Each transaction begins with a check of the version of `/controller_epoch`: after the election of another controller, all writes of the
previous one fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from twisted.internet.defer import Deferred

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import (
    MalformedNode,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    decode_state_and_epochs,
    decode_topic,
)
from txbroker.cluster.tree.interface import MULTI_OPS_MAX, BadVersion, Check, Create, Delete, NoNode, Op, Refused, Set, Tree
from txbroker.cluster.tree.operations import Read, read_each, together
from txbroker.names import NULL_TOPIC_ID, TopicPartition

log = logging.getLogger("txbroker.controller")


IsrEpochs = Callable[[TopicPartition, Iterable[int]], Sequence[int]]


class ControllerMoved(Exception):
    """Another broker has been elected controller: this term has ended."""


class Updated(NamedTuple):
    """The result of an update of partition states."""

    written: dict[TopicPartition, PartitionState]  # with their new partition epochs
    conflicts: list[TopicPartition]  # not written: the node was changed or removed concurrently


class Written(NamedTuple):
    """A partition's state as read."""

    state: PartitionState
    isr_epochs: tuple[int, ...]  # the broker epochs of the ISR that its controller knew; empty: Apache Kafka has written it
    zxid: int  # the transaction that wrote it (its node's mzxid)


class StateNodes:
    """Reads and fenced writes for one controller term.

    A node that ZooKeeper does not let this broker read or write, such as one with an access control list, concerns its partition only: the
    others are written, as by Kafka's controller.
    """

    def __init__(self, tree: Tree, epoch: int, epoch_version: int, isr_epochs: IsrEpochs) -> None:
        """`epoch_version` is the version of `/controller_epoch` written by this controller's election.

        `isr_epochs`: the epochs of an ISR's brokers that this controller knows, which it writes with the state.
        """
        self._tree = tree
        self.unreadable: set[TopicPartition] = set()  # partitions whose state node is malformed: not served, never overwritten
        self._epoch = epoch
        self._isr_epochs = isr_epochs
        self._fence = Check(node_paths.CONTROLLER_EPOCH, epoch_version)
        self._refused: set[TopicPartition] = set()  # partitions whose states could not be written
        self.on_refused: Callable[[], None] = lambda: None  # called when a state could not be written

    async def write(self, ops: Sequence[Op]) -> None:
        """One fenced transaction. TreeError of the first operation that fails (its index counts the fence), or ControllerMoved."""
        try:
            await self._tree.multi([self._fence, *ops])
        except (BadVersion, NoNode) as error:
            if error.index == 0:
                raise ControllerMoved(f"controller epoch {self._epoch} has ended") from error
            raise

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """The states of these partitions, except those without state and those that are `unreadable`."""
        return {topic_partition: written.state for topic_partition, written in (await self.read_written(partitions)).items()}

    async def read_written(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Written]:
        """The same, with what shows whether a broker has restarted since they were written."""
        wanted = [(tp, node_paths.state(tp)) for tp in partitions]
        reads = await self._get([path for _, path in wanted])
        states: dict[TopicPartition, Written] = {}
        for (topic_partition, path), read in zip(wanted, reads, strict=True):
            self.unreadable.discard(topic_partition)
            if read is None:
                continue
            try:
                if isinstance(read, Refused):
                    raise read
                states[topic_partition] = Written(*decode_state_and_epochs(read[0], read[1].version), read[1].mzxid)
            except MalformedNode as error:
                self.unreadable.add(topic_partition)
                log.error("partition %s is not served, repair or delete %s: %s", topic_partition, path, error)
            except Refused as error:
                self.unreadable.add(topic_partition)
                log.error("partition %s is not served: %s", topic_partition, error)
        return states

    async def create(self, states: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
        """Write the first states of partitions, and their missing parent nodes. Returns the partitions whose states were written."""
        topics = {tp.topic: node_paths.partitions(tp.topic) for tp in states}
        missing_topics = {topic_of(path) for path in await self._missing(set(topics.values()))}
        missing = set(await self._missing({node_paths.partition(tp) for tp in states if tp.topic not in missing_topics}))
        groups: list[list[Op]] = [[Create(topics[topic])] for topic in sorted(missing_topics)]
        partitions: dict[str, TopicPartition] = {}
        for topic_partition, state in states.items():
            node, path = node_paths.partition(topic_partition), node_paths.state(topic_partition)
            above = [Create(node)] if topic_partition.topic in missing_topics or node in missing else []
            groups.append([*above, Create(path, self._encoded(topic_partition, state))])
            partitions[path] = topic_partition
        written: list[TopicPartition] = []
        unwritten: set[str] = set()  # topics
        for chunk in _chunks(groups):
            allowed = [group for group in chunk if topic_of(group[-1].path) not in unwritten]
            try:
                await self.write(list(chain.from_iterable(allowed)))
                written += [partitions[group[-1].path] for group in allowed if group[-1].path in partitions]
            except Refused:
                for group in allowed:
                    await self._create_alone(group, partitions.get(group[-1].path), written, unwritten)
        return written

    async def _create_alone(
        self, group: Sequence[Op], topic_partition: TopicPartition | None, written: list[TopicPartition], unwritten: set[str]
    ) -> None:
        """Create the node of a topic's partitions (None), or those of one partition."""
        topic = topic_of(group[-1].path)
        if topic in unwritten:
            return
        try:
            await self.write(group)
        except Refused as error:
            if topic_partition is not None:
                self._report(topic_partition, error)
                return
            unwritten.add(topic)
            self.on_refused()
            log.error("the partitions of topic %s get no leaders: %s", topic, error)
        else:
            written += [] if topic_partition is None else [topic_partition]

    async def update(self, states: Mapping[TopicPartition, PartitionState]) -> Updated:
        """Write states, each only if its node still has the state's partition epoch. One that ZooKeeper refuses is left as it is."""
        updated = Updated({}, [])
        items = [(tp, replace(state, controller_epoch=self._epoch)) for tp, state in states.items()]
        alone = [item for item in items if item[0] in self._refused]
        others = [item for item in items if item[0] not in self._refused]
        for start in range(0, len(others), MULTI_OPS_MAX - 1):
            chunk = others[start : start + MULTI_OPS_MAX - 1]
            try:
                await self._update(chunk, updated)
            except (BadVersion, NoNode, Refused):
                alone += chunk  # one was changed concurrently, or is refused: write the others one by one
        for item in alone:
            try:
                await self._update([item], updated)
                self._refused.discard(item[0])
            except (BadVersion, NoNode):
                updated.conflicts.append(item[0])
            except Refused as error:
                self._report(item[0], error)
        return updated

    def _report(self, topic_partition: TopicPartition, error: Refused) -> None:
        self.on_refused()
        if topic_partition not in self._refused:
            self._refused.add(topic_partition)
            log.error("the state of partition %s stays as it is: %s", topic_partition, error)

    async def assign(self, topic: str, partitions: Mapping[int, ReplicaAssignment]) -> bool:
        """Write the replicas of existing partitions, and keep the rest of the topic's node. False if the topic does not exist.

        Refused, MalformedNode.
        """
        return await self._rewrite(topic, lambda before: before.with_partitions(partitions)) is not None

    async def identify(self, topic: str, topic_id: bytes) -> TopicAssignment | None:
        """Give a topic this id, unless it has one by now. Its assignment; None if the topic does not exist. Refused, MalformedNode."""
        return await self._rewrite(topic, lambda before: replace(before, topic_id=topic_id) if before.topic_id == NULL_TOPIC_ID else before)

    async def _rewrite(self, topic: str, change: Callable[[TopicAssignment], TopicAssignment]) -> TopicAssignment | None:
        path = node_paths.topic(topic)
        while True:
            try:
                data, stat = await self._tree.get(path)
                after = change(decode_topic(data))
                await self.write([Set(path, after.encode(), stat.version)])
            except BadVersion:
                continue  # partitions were added concurrently
            except NoNode:
                return None
            return after

    async def delete_topic(self, topic: str) -> None:
        """Remove all nodes of a topic, its configuration, and finally its deletion request. Refused."""
        groups: list[list[Delete]] = []
        try:
            partitions = await self._tree.children(node_paths.partitions(topic))
        except NoNode:
            partitions = []
        else:
            groups = await self._partition_deletes(topic, partitions)
            groups.append([Delete(node_paths.partitions(topic))])
        last = [node_paths.topic(topic), node_paths.topic_entity(topic).path, node_paths.deletion(topic)]
        missing = set(await self._missing(last))
        groups += [[Delete(path)] for path in last if path not in missing]
        for chunk in _chunks(groups):
            await self.write(list(chain.from_iterable(chunk)))

    async def _partition_deletes(self, topic: str, partitions: Iterable[str]) -> list[list[Delete]]:
        nodes = [f"{node_paths.partitions(topic)}/{partition}" for partition in partitions]
        stateless = set(await self._missing(f"{node}/state" for node in nodes))
        return [[Delete(path) for path in (f"{node}/state", node) if path not in stateless] for node in nodes]

    async def _missing(self, nodes: Iterable[str]) -> list[str]:
        wanted = sorted(nodes)
        return [node for node, found in zip(wanted, await self._get(wanted), strict=True) if found is None]

    async def _get(self, paths: Sequence[str]) -> list[Read | Refused | None]:
        starts = range(0, len(paths), MULTI_OPS_MAX)
        parts = await together([Deferred.fromCoroutine(self._get_part(paths[start : start + MULTI_OPS_MAX])) for start in starts])
        return list(chain.from_iterable(parts))

    async def _get_part(self, paths: Sequence[str]) -> Sequence[Read | Refused | None]:
        try:
            return await self._tree.get_all(paths)
        except Refused:
            return await read_each(self._tree, paths)

    async def _update(self, items: Sequence[tuple[TopicPartition, PartitionState]], updated: Updated) -> None:
        await self.write([Set(node_paths.state(tp), self._encoded(tp, state), state.partition_epoch) for tp, state in items])
        updated.written.update((tp, replace(state, partition_epoch=state.partition_epoch + 1)) for tp, state in items)

    def _encoded(self, topic_partition: TopicPartition, state: PartitionState) -> bytes:
        return state.encode(self._isr_epochs(topic_partition, state.isr))


def topic_of(path: str) -> str:
    """The topic of a node under `/brokers/topics`."""
    return path.split("/")[3]


def _chunks(groups: Iterable[Sequence[Op]]) -> Iterator[list[Sequence[Op]]]:
    """The groups of operations in lists short enough for one transaction; groups are never split."""
    chunk: list[Sequence[Op]] = []
    size = 0
    for group in groups:
        if size + len(group) > MULTI_OPS_MAX - 1:
            yield chunk
            chunk, size = [], 0
        chunk.append(group)
        size += len(group)
    if chunk:
        yield chunk
