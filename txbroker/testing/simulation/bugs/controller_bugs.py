"""Mistakes in the controller, and in a broker's dealings with it and with ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from txbroker.broker.membership import Membership
from txbroker.client.client_errors import Closed
from txbroker.cluster.controller import election_rules, isr_changes, leadership, term
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.controller.term import ControllerTerm
from txbroker.cluster.node_data import PartitionState
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.interface import Op
from txbroker.cluster.tree.zookeeper import ZooKeeperTree
from txbroker.peers.peer_channel import PeerChannel
from txbroker.testing.simulation.bugs.patching import Patch


def writes_not_fenced() -> list[Patch]:
    """The controller's writes do not check the controller epoch: a replaced controller goes on (KAFKA-6082)."""

    async def broken(self: StateNodes, ops: Sequence[Op]) -> None:
        await self._tree.multi(list(ops))

    return [Patch(StateNodes, "write", broken)]


def epoch_not_raised() -> list[Patch]:
    """An election keeps the leader epoch."""

    def broken(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
        return replace(state, leader=leader, isr=isr)

    return [Patch(election_rules, "_next", broken)]


def leader_outside_of_isr() -> list[Patch]:
    """Any online replica is elected, in the ISR or not."""

    def broken(state: PartitionState, replicas: Sequence[int], online: Any, *, unclean: bool) -> PartitionState | None:
        leader = next((replica for replica in replicas if replica in online), None)
        return None if leader is None else election_rules._next(state, leader, tuple(online))

    return [Patch(leadership, "elect_offline", broken)]


def last_member_removed() -> list[Patch]:
    """The last replica of an ISR is removed when its broker stops: any other one may lead afterwards."""

    def broken(state: PartitionState, offline: Any) -> PartitionState | None:
        isr = tuple(replica for replica in state.isr if replica not in offline)
        return None if isr == state.isr else election_rules._next(state, -1 if state.leader in offline else state.leader, isr)

    return [Patch(term if hasattr(term, "without_replicas") else leadership, "without_replicas", broken)]


def isr_of_any_version() -> list[Patch]:
    """AlterPartition is accepted whatever state it was made for: it undoes what was written since."""
    asked = isr_changes._asked

    def broken(context: Any, broker_id: int, topic_partition: Any, partition: Any) -> PartitionState | None:
        state = context.states[topic_partition]
        partition.partition_epoch, partition.leader_epoch = state.partition_epoch, state.leader_epoch
        return asked(context, broker_id, topic_partition, partition)

    return [Patch(isr_changes, "_asked", broken)]


def isr_of_a_stopped_broker() -> list[Patch]:
    """A leader that the controller has replaced changes the ISR: leader and leader epoch are not compared."""

    def broken(context: Any, broker_id: int, topic_partition: Any, partition: Any) -> PartitionState | None:
        state: PartitionState = context.states[topic_partition]
        isr = tuple(item.broker_id for item in partition.new_isr_with_epochs) or tuple(partition.new_isr)
        return None if isr == state.isr else replace(state, isr=isr)

    return [Patch(isr_changes, "_asked", broken)]


def restart_not_noticed() -> list[Patch]:
    """A broker that restarts between two looks of the controller is not noticed (KAFKA-1120)."""
    changed = ControllerTerm.brokers_changed

    async def broken(self: ControllerTerm) -> None:
        now = await self._read_brokers()
        if now.keys() != self.context.brokers.keys():
            await changed(self)

    return [Patch(ControllerTerm, "brokers_changed", broken)]


def brokers_watched_once() -> list[Patch]:
    """The watch on the list of brokers is not set again."""
    changed = ControllerTerm.brokers_changed

    async def broken(self: ControllerTerm) -> None:
        await changed(self)
        self._brokers_watch = lambda _: None

    return [Patch(ControllerTerm, "brokers_changed", broken)]


def no_second_election() -> list[Patch]:
    """The brokers do not run for election when the controller is gone."""
    return [Patch(Controller, "_controller_watch", lambda self, event: None)]


def watches_lost_with_the_connection() -> list[Patch]:
    """After a reconnection to ZooKeeper the watches are not set again (kazoo 2.11)."""
    return [Patch(ZooKeeperTree, "_read_again", lambda self, kind, path: None)]


def roles_not_sent_after_an_election() -> list[Patch]:
    """A new controller does not send the roles: what its predecessor has not sent is lost."""

    async def broken(self: ControllerTerm) -> None:
        await self.leadership.shrink(tp for tp in self.context.partitions() if tp.topic not in self.context.deleting)

    return [Patch(ControllerTerm, "_take_over_partitions", broken)]


def roles_not_sent_to_a_started_broker() -> list[Patch]:
    """A broker that starts does not get its roles."""

    async def broken(self: ControllerTerm, brokers: Any) -> None:
        batch = self.outbox.batch()
        batch.metadata(self.context.brokers, self.context.partitions())
        self.outbox.send(batch)
        await self.elect_led_offline()

    return [Patch(ControllerTerm, "_brokers_started", broken)]


def request_lost_with_its_connection() -> list[Patch]:
    """A request of the controller is not repeated when its connection is lost."""

    async def broken(self: PeerChannel, request: Any) -> Any:
        try:
            return await self._link.send(request)
        except Exception as error:
            raise Closed(str(error)) from error

    return [Patch(PeerChannel, "_send", broken)]


def every_other_request_dropped() -> list[Patch]:
    """Sometimes the controller forgets to send what it has decided."""
    send = OutgoingRequests.send
    calls = [0]

    def broken(self: OutgoingRequests, batch: Any) -> None:
        calls[0] += 1
        if calls[0] % 5:
            send(self, batch)

    return [Patch(OutgoingRequests, "send", broken)]


def old_roles_accepted() -> list[Patch]:
    """A broker accepts roles of an older leader epoch, and of an older controller."""
    take_role = Replicas._take_role

    def broken(self: Replicas, key: Any, topic_id: bytes, state: Any, now_ms: int) -> None:
        known = self._partitions.get(key)
        if known is not None and state.leader_epoch < known.state.leader_epoch:
            self._change_role(known, state)
            return
        take_role(self, key, topic_id, state, now_ms)

    return [
        Patch(Replicas, "_take_role", broken),
        Patch(Replicas, "check_controller", lambda self, epoch: None),
        Patch(OwnBroker, "_check_broker", lambda self, epoch: None),
    ]


def not_registered_again() -> list[Patch]:
    """A broker does not register again after its session has expired."""

    async def broken(self: Membership, tree: Any) -> None: ...

    return [Patch(Membership, "renew", broken)]


def controller_does_not_resign() -> list[Patch]:
    """A controller goes on when its session has expired or another broker is elected."""
    return [Patch(Controller, "_resign", lambda self: None)]


def leader_without_election() -> list[Patch]:
    """When a leader stops, its partitions get no other one until it returns."""
    return [Patch(leadership, "elect_offline", lambda state, replicas, online, *, unclean: None)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        writes_not_fenced,
        epoch_not_raised,
        leader_outside_of_isr,
        last_member_removed,
        isr_of_any_version,
        isr_of_a_stopped_broker,
        restart_not_noticed,
        brokers_watched_once,
        no_second_election,
        watches_lost_with_the_connection,
        roles_not_sent_after_an_election,
        roles_not_sent_to_a_started_broker,
        request_lost_with_its_connection,
        every_other_request_dropped,
        old_roles_accepted,
        not_registered_again,
        controller_does_not_resign,
        leader_without_election,
    )
}
