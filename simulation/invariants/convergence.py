"""What must be reached after the faults have ended (I11), and what must then be readable (I1)."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.clients.all_clients import AllClients
from simulation.clients.cluster_client import PASSING, ClusterClient
from simulation.clients.consumer import Consumer, ConsumerPlan
from simulation.environment import Environment
from simulation.hosts import BrokerHost
from simulation.invariants import administration
from simulation.invariants.cluster_state import ClusterState
from simulation.ledger import Ledger
from txbroker.cluster.node_data import PartitionState
from txbroker.names import TopicPartition

OVERDUE_S = 0.5  # a timer may be so late


def _is_controller(host: BrokerHost) -> bool:
    components = None if host.broker is None else host.broker.components
    controller = None if components is None else components._controller
    return controller is not None and controller.active


class Convergence:
    """Of one run."""

    def __init__(self, environment: Environment, hosts: Mapping[int, BrokerHost], state: ClusterState, clients: AllClients) -> None:
        self._environment = environment
        self._hosts = hosts
        self._state = state
        self._clients = clients

    def problem(self, without: int | None = None) -> str | None:
        """What is missing; None if the cluster is whole, or whole except for the broker `without`, which does not come back."""
        hosts = [host for host in self._hosts.values() if host.id != without]
        for host in hosts:
            if not host.serving:
                return f"{host.name} does not serve"
        controller = self._state.controller
        active = [host.id for host in hosts if _is_controller(host)]
        if active != [controller]:
            return f"ZooKeeper has b{controller} as the controller, and of the brokers {active} are active"
        for name, state, replicas in self._state.states():
            problem = self._partition_problem(name, state, replicas, hosts, without)
            if problem is not None:
                return problem
        if without is not None:
            return None
        for host in hosts if self._environment.plan.cleaning else ():
            components = None if host.broker is None else host.broker.components
            if components is not None and components.cleaner.uncleanable:
                return f"{host.name} has the uncleanable partitions {components.cleaner.uncleanable}"
        busy = "; ".join(text for client in self._clients.working if client.finishing for text in client.busy)
        if not busy and self._clients.administrators:
            return administration.problem(self._environment.ensemble, self._hosts, self._clients.administrators)
        return busy or (self._open_transaction() if self._environment.plan.transactional else None)

    def _partition_problem(
        self, name: TopicPartition, state: PartitionState, replicas: tuple[int, ...], hosts: list[BrokerHost], without: int | None
    ) -> str | None:
        if state.isr == (without,):
            return None  # no other replica may lead
        expected = {replica for replica in replicas if replica != without}
        if state.leader < 0 or state.leader == without:
            return f"{name} has no leader"
        if set(state.isr) != expected:
            return f"the ISR of {name} is {state.isr}"
        for host in hosts:
            known = None if host.broker is None or host.broker.components is None else host.broker.components.image.partition(*name)
            if known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                return f"{host.name} takes {known} for the state of {name}, which is {state}"
        return None

    def _open_transaction(self) -> str | None:
        for host in self._hosts.values():
            if host.broker is not None and host.broker.components is not None:
                for name, partition in host.broker.components.replicas._partitions.items():
                    if partition.is_leader and partition.last_stable_offset < partition.high_watermark:
                        stable, end = partition.last_stable_offset, partition.high_watermark
                        return f"{name} has the last stable offset {stable}, and the high watermark {end}"
        return None

    def overdue(self) -> list[str]:
        """The requests that wait in a broker after their timeouts."""
        found = []
        now_s = self._environment.scheduler.now_s
        for host in self._hosts.values():
            if host.broker is not None and host.broker.components is not None:
                for purgatory in host.broker.components._purgatories:
                    found += [f"{parked.operation!r} in b{host.id}" for deadline_s, _, parked in purgatory._deadlines
                              if parked.operation is not None and deadline_s < now_s - OVERDUE_S]  # fmt: skip
        return found

    async def read_all(self, client: ClusterClient) -> None:
        """Read all partitions to their ends; everything acknowledged must be there (I1)."""
        environment = self._environment
        visible: dict[TopicPartition, dict[bytes, int]] = {}
        for topic in environment.plan.topics:
            for index in range(topic.partitions):
                partition = TopicPartition(topic.name, index)
                await self._read(client, partition)
                if environment.plan.transactional:
                    visible[partition] = await self._read(client, partition, read_committed=True)
        compacted = {partition for partition in visible if environment.ledger.of(partition).compacted}
        environment.ledger.transactions.check_end(visible, compacted)

    async def _read(self, client: ClusterClient, partition: TopicPartition, *, read_committed: bool = False) -> dict[bytes, int]:
        ledger = self._environment.ledger
        plan = ConsumerPlan((partition,), 0.0, 1 << 20, False, 0.0, 0, read_committed=read_committed)
        reader = _Reader("committed reader" if read_committed else "reader", client, plan, ledger)
        ledger.history.assigned(reader.name, partition)
        began = ledger.history.now()
        while True:
            try:
                start = (await reader.offset_of(partition, -2))[1]
            except PASSING:
                client.forget_leader(partition)
                await client.sleep(0.1)
            else:
                break
        end = await reader.read_to_end(partition, start)
        ledger.history.complete([reader.name], partition, began, read_committed=read_committed)
        seen = ledger.of(partition)
        missing = [f"{offset} ({value!r})" for offset, value in seen.acknowledged.items() if offset >= end]
        if missing:
            self._environment.violate("I1", f"{partition} ends at {end}: acknowledged records are lost: {', '.join(missing[:3])}")
        lost = [value for value in seen.unplaced if value not in seen.offsets]
        if lost and not seen.compacted:
            self._environment.violate("I1", f"{partition} does not have the acknowledged values {sorted(lost)[:3]}")
        return reader.values


class _Reader(Consumer):
    """Keeps what it has read."""

    def __init__(self, name: str, client: ClusterClient, plan: ConsumerPlan, ledger: Ledger) -> None:
        super().__init__(name, client, plan, ledger)
        self.values: dict[bytes, int] = {}

    def seen(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Keep a record."""
        self.values[value] = offset
