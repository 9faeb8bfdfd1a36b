"""What must be reached after the faults have ended (I11), and what must then be readable (I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbroker.names import TopicPartition
from txbroker.testing.simulation.clients.cluster_client import PASSING, ClusterClient
from txbroker.testing.simulation.clients.consumer import Consumer, ConsumerPlan

if TYPE_CHECKING:
    from txbroker.testing.simulation.world import World


class Convergence:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def problem(self) -> str | None:
        """What is missing; None if the cluster is whole."""
        world = self._world
        for host in world.hosts.values():
            if not host.serving:
                return f"{host.name} does not serve"
        for name, state, replicas in world.state.states():
            if state.leader < 0:
                return f"{name} has no leader"
            if len(state.isr) < len(replicas):
                return f"the ISR of {name} is {state.isr}"
            for host in world.hosts.values():
                known = None if host.broker is None or host.broker.components is None else host.broker.components.image.partition(*name)
                if known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                    return f"{host.name} takes {known} for the state of {name}, which is {state}"
        for committer in world.committers:
            if committer.busy:
                return f"{committer.name} cannot read its commits"
        for producer in world.producers:
            if producer.busy:
                return "; ".join(producer.busy)
        return None

    async def read_all(self, client: ClusterClient) -> None:
        """Read all partitions to their ends; everything acknowledged must be there (I1)."""
        world = self._world
        for topic in world.plan.topics:
            for index in range(topic.partitions):
                await self._read(client, TopicPartition(topic.name, index))

    async def _read(self, client: ClusterClient, partition: TopicPartition) -> None:
        ledger = self._world.ledger
        reader = Consumer("reader", client, ConsumerPlan((partition,), 0.0, 1 << 20, False, 0.0, 0), ledger)
        while True:
            try:
                _, end = await reader.offset_of(partition, -1)
                position = (await reader.offset_of(partition, -2))[1]
                while position < end:
                    position = await reader.poll(partition, position)
            except PASSING:
                client.forget_leader(partition)
                await client.sleep(0.1)
            else:
                break
        seen = ledger.of(partition)
        missing = [f"{offset} ({value!r})" for offset, value in seen.acknowledged.items() if offset >= end]
        if missing:
            self._world.violate("I1", f"{partition} ends at {end}: acknowledged records are lost: {', '.join(missing[:3])}")
        lost = [value for value in seen.unplaced if value not in seen.offsets]
        if lost:
            self._world.violate("I1", f"{partition} does not have the acknowledged values {sorted(lost)[:3]}")
