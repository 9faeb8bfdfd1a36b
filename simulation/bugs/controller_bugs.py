"""Mistakes in the controller, and in a broker's dealings with it and with ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.broker.membership import Membership
from txbroker.client.client_errors import Closed
from txbroker.cluster import node_paths
from txbroker.cluster.controller import election_rules, isr_changes, leadership, term
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.controller.takeover import Takeover
from txbroker.cluster.controller.term import ControllerTerm
from txbroker.cluster.node_data import PartitionState, decode_controller_epoch, encode_controller
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.interface import BadVersion, Create, NodeExists, NoNode, Op
from txbroker.cluster.tree.zookeeper import ZooKeeperTree
from txbroker.peers.peer_channel import PeerChannel


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
        now = await self._reads.brokers()
        if now.keys() != self.context.brokers.keys():
            await changed(self)

    return [Patch(ControllerTerm, "brokers_changed", broken)]


def brokers_watched_once() -> list[Patch]:
    """The watch on the list of brokers is not set again."""
    changed = ControllerTerm.brokers_changed

    async def broken(self: ControllerTerm) -> None:
        await changed(self)
        self._reads._brokers_watch = lambda _: None

    return [Patch(ControllerTerm, "brokers_changed", broken)]


def no_second_election() -> list[Patch]:
    """The brokers do not run for election when the controller is gone."""
    return [Patch(Controller, "_controller_watch", lambda self, event: None)]


def watches_lost_with_the_connection() -> list[Patch]:
    """After a reconnection to ZooKeeper the watches are not set again (kazoo 2.11)."""
    return [Patch(ZooKeeperTree, "_read_again", lambda self, kind, path: None)]


def roles_not_sent_after_an_election() -> list[Patch]:
    """A new controller does not send the roles: what its predecessor has not sent is lost."""

    async def broken(self: Takeover, *_: object) -> None:
        await self._leadership.shrink(tp for tp in self._context.partitions() if tp.topic not in self._context.deleting)

    return [Patch(Takeover, "correct", broken)]


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


def role_not_asked_for_again() -> list[Patch]:
    """A broker whose disk was full when it got its role stays without it when there is space again."""
    return [Patch(OwnBroker, "_retry_later", lambda self: None)]


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


def suspect_stays_in_the_isr() -> list[Patch]:
    """A suspected leader loses its leadership, and stays in the ISR: the new leader waits for a broker that may be gone."""
    without_suspects = election_rules.without_suspects

    def broken(state: PartitionState, replicas: Any, online: Any, suspected: Any) -> PartitionState | None:
        changed = without_suspects(state, replicas, online, suspected)
        return None if changed is None else replace(changed, isr=state.isr)

    return [Patch(leadership, "without_suspects", broken)]


def suspect_replaced_by_any_replica() -> list[Patch]:
    """A suspected leader is replaced by any other online replica, in the ISR or not."""

    def broken(state: PartitionState, replicas: Sequence[int], online: Any, suspected: Any) -> PartitionState | None:
        leader = next((replica for replica in replicas if replica in online and replica not in suspected), None)
        if leader is None or state.leader not in suspected:
            return None
        return election_rules._next(state, leader, (leader,))

    return [Patch(leadership, "without_suspects", broken)]


def suspicion_not_fenced() -> list[Patch]:
    """The write that replaces a suspected leader checks neither the controller epoch nor the state's version."""

    async def broken(self: leadership.Leadership, partitions: Any) -> list[Any]:
        left = []
        for name in partitions:
            state = self._context.states.get(name)
            replicas = self._context.assignment(name).replicas
            suspected = self._context.suspected
            changed = state and election_rules.without_suspects(state, replicas, self._context.online(name), suspected)
            if changed:
                changed = replace(changed, controller_epoch=self._epoch)
                stat = await self._tree.set(node_paths.state(name), changed.encode())
                self._context.states[name] = replace(changed, partition_epoch=stat.version)
                left.append(name)
        return left

    return [Patch(leadership.Leadership, "leave", broken)]


def takeover_without_an_epoch() -> list[Patch]:
    """A broker that replaces a suspected controller does not raise the controller epoch: both act."""
    write_election = Controller._write_election

    async def broken(self: Controller, suspected: Any = None) -> tuple[int, int] | None:
        replaced = await self._nodes_of(suspected) if suspected else None
        if replaced is None:
            return await write_election(self) if suspected is None else None
        data, stat = await self._tree.get(node_paths.CONTROLLER_EPOCH)
        controller = Create(node_paths.CONTROLLER, encode_controller(self._broker_id, self._now_ms()), ephemeral=True)
        try:
            await self._tree.multi([*replaced, controller])
        except (NoNode, NodeExists, BadVersion):
            return None
        return decode_controller_epoch(data), stat.version

    return [Patch(Controller, "_write_election", broken)]


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
        role_not_asked_for_again,
        not_registered_again,
        controller_does_not_resign,
        leader_without_election,
        suspect_stays_in_the_isr,
        suspect_replaced_by_any_replica,
        suspicion_not_fenced,
        takeover_without_an_epoch,
    )
}
