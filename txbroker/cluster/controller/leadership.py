"""Leader elections of many partitions: applies `election_rules` and writes the new states to the tree."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from txbroker.cluster.config_store import read_config
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.election_rules import elect_offline, first_state, without_replicas, without_restarted, without_suspects
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.node_data import PartitionState
from txbroker.cluster.node_paths import topic_entity
from txbroker.cluster.tree.interface import Refused, Tree
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.controller")

UNCLEAN_KEY = "unclean.leader.election.enable"

Rule = Callable[[TopicPartition, PartitionState], PartitionState | None]


class Elected(NamedTuple):
    """Partitions whose new state was written."""

    new: list[TopicPartition]  # partitions that had no state before
    changed: list[TopicPartition]


class Leadership:
    """Changes partition states in the tree and in the context."""

    def __init__(self, context: ControllerContext, nodes: StateNodes, tree: Tree, unclean_default: Callable[[], bool], epoch: int) -> None:
        """`unclean_default` is the broker's `unclean.leader.election.enable`, the default of topics."""
        self._context = context
        self._nodes = nodes
        self._tree = tree
        self._unclean_default = unclean_default
        self._epoch = epoch

    async def change(self, partitions: Iterable[TopicPartition], rule: Rule) -> list[TopicPartition]:
        """Apply the rule to each state and write the results, again after a concurrent change. Returns the written partitions."""
        changed: list[TopicPartition] = []
        waiting = [tp for tp in partitions if tp in self._context.states]
        while waiting:
            wanted = {tp: rule(tp, self._context.states[tp]) for tp in waiting if tp in self._context.states}
            updated = await self._nodes.update({tp: state for tp, state in wanted.items() if state is not None})
            self._context.states.update(updated.written)
            changed += updated.written
            waiting = updated.conflicts
            await self.refresh(waiting)
        return changed

    async def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the states of these partitions again."""
        wanted = list(partitions)
        states = await self._nodes.read(wanted)
        for topic_partition in wanted:
            self._context.states.pop(topic_partition, None)
        self._context.states.update(states)

    async def create(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Write the first states of the partitions that have an online replica."""
        states: dict[TopicPartition, PartitionState] = {}
        for topic_partition in partitions:
            if topic_partition in self._nodes.unreadable:
                continue
            replicas, online = self._context.assignment(topic_partition).replicas, self._context.online(topic_partition)
            trusted = [replica for replica in online if replica not in self._context.suspected]
            state = first_state(replicas, trusted or online, self._epoch)
            if state is not None:
                states[topic_partition] = state
        written = await self._nodes.create(states)
        self._context.states.update((topic_partition, states[topic_partition]) for topic_partition in written)
        return written

    async def elect_led_offline(self, partitions: Iterable[TopicPartition] | None = None) -> Elected:
        """Elect leaders for those of all partitions, or of these, that have no online leader."""
        led_offline = self._context.led_offline(partitions)
        offline = [tp for tp in led_offline if tp in self._context.states]
        new = await self.create([tp for tp in led_offline if tp not in self._context.states])
        unclean = await self._unclean_topics(offline)

        def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            replicas = self._context.by_preference(self._context.assignment(topic_partition).replicas)
            return elect_offline(state, replicas, self._context.online(topic_partition), unclean=topic_partition.topic in unclean)

        return Elected(new, await self.change(offline, rule))

    async def shrink(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove offline replicas from the ISR and from leadership."""

        def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            concerned = {*state.isr, state.leader} - {-1}
            return without_replicas(state, {r for r in concerned if not self._context.is_online(r, topic_partition)})

        return await self.change(partitions, rule)

    async def replace_restarted(self, restarted: Mapping[TopicPartition, Collection[int]]) -> list[TopicPartition]:
        """Remove these replicas, whose brokers have restarted since they were in sync, from ISRs and leadership."""

        def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            replicas, online = self._context.assignment(topic_partition).replicas, self._context.online(topic_partition)
            return without_restarted(state, replicas, online, restarted[topic_partition], self._context.suspected)

        return await self.change(restarted, rule)

    async def leave(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove suspected brokers from leadership and from the ISR, in one write for each partition."""

        def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            replicas = self._context.assignment(topic_partition).replicas
            return without_suspects(state, replicas, self._context.online(topic_partition), self._context.suspected)

        return await self.change(partitions, rule)

    async def _unclean_topics(self, partitions: Iterable[TopicPartition]) -> set[str]:
        """The topics that allow unclean election, of the partitions that have no other way to get a leader."""
        topics = {tp.topic for tp in partitions if self._needs_unclean(tp)}
        return {topic for topic in sorted(topics) if await self._allows_unclean(topic)}

    def _needs_unclean(self, topic_partition: TopicPartition) -> bool:
        state = self._context.states.get(topic_partition)
        online = self._context.online(topic_partition)
        return state is not None and bool(online) and not any(replica in online for replica in state.isr)

    async def _allows_unclean(self, topic: str) -> bool:
        try:
            config, _ = await read_config(self._tree, topic_entity(topic))
        except Refused as error:
            log.error("no unclean election for topic %s: %s", topic, error)
            return False
        return config[UNCLEAN_KEY].lower() == "true" if UNCLEAN_KEY in config else self._unclean_default()
