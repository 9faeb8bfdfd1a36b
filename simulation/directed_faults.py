"""Faults of several steps, each of which waits for what the one before it has caused: for states that single faults hardly reach.

Each is a generator that yields what it waits for. It ends early when the faults end, or when that does not come in time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

from simulation.ensemble import Ensemble
from simulation.fault_actions import FaultActions
from simulation.hosts import BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.network import Latencies, Link, Network
from simulation.plan import Fault
from simulation.scheduler import Scheduler
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import PartitionState
from txbroker.cluster.partition import Partition
from txbroker.names import TopicPartition

Steps = Generator[Callable[[], bool], None, None]
Placed = tuple[TopicPartition, PartitionState, tuple[int, ...]]  # a partition, its state, and its replicas

LOOK_S = 0.02
STEP_S = 12.0  # how long a fault waits for each step: a lagging follower leaves the ISR after up to 9 s
REPORTS_MIN = 2
SWAPS_MIN = 3  # before a broker copies cleaned logs
TORN_BYTES = 2  # of the end of each file
EPOCH_END = 10  # an offset with two digits: without the last one it is another offset
SLOW_DISK_S = 0.5
LEARN_S = 0.3  # until the brokers know a new leader


def run(scheduler: Scheduler, steps: Steps, is_over: Callable[[], bool]) -> bool:
    """Begin a fault; False if there is nothing that it could do."""
    condition = next(steps, None)
    if condition is None:
        return False
    waiting = condition
    deadline_s = scheduler.now_s + STEP_S

    def look() -> None:
        nonlocal waiting, deadline_s
        if is_over() or scheduler.now_s > deadline_s:
            steps.close()
            return
        if waiting():
            following = next(steps, None)
            if following is None:
                return
            waiting, deadline_s = following, scheduler.now_s + STEP_S
        scheduler.after(LOOK_S, look)

    scheduler.after(0.0, look)
    return True


def lag_kill(actions: FaultActions, fault: Fault) -> Steps:
    """A follower falls behind, and the leader is killed when it has left the ISR: another one must lead, though this one is preferred."""
    found = _choose(actions, fault, lambda placed: _preferred_follower(placed) in placed[1].isr and len(placed[1].isr) > 1)
    if found is None:
        return
    name, state, _ = found
    leader, follower = actions.hosts[state.leader], actions.hosts[_preferred_follower(found)]
    with _cut(actions.environment.network, [(follower.name, leader.name)]):
        yield lambda: follower.id not in _isr(actions.state, name)
    if _leader(actions.state, name) == leader.id:
        actions.kill_for(leader, fault.length_s)


def late_isr(actions: FaultActions, fault: Fault) -> Steps:
    """A leader's request to remove a follower from the ISR is late; meanwhile that one has caught up, and another member is killed."""
    controller = actions.hosts.get(actions.state.controller or 0)
    found = _choose(actions, fault, lambda placed: placed[1].leader != actions.state.controller and len(placed[1].isr) > 2)
    if found is None or controller is None:
        return
    name, state, _ = found
    leader = actions.hosts[state.leader]
    others = [actions.hosts[other] for other in state.isr if other != leader.id]
    follower, member = sorted(others, key=lambda host: host is not controller)[:2]
    with _slow(actions.environment.network.slow_requests_s, (leader.name, controller.name), fault.length_s):
        with _cut(actions.environment.network, [(follower.name, leader.name)]):
            yield lambda: _proposes(leader, name)
        actions.kill_for(member, fault.length_s + 2.0)
        yield _after(actions.environment.scheduler, fault.length_s)


def late_failover(actions: FaultActions, fault: Fault) -> Steps:
    """A broker is killed. Before the controller reads that it is reported, another controller is elected, which it reads last."""
    controller = actions.hosts.get(actions.state.controller or 0)
    found = _choose(actions, fault, lambda placed: placed[1].leader != actions.state.controller)
    if controller is None or not controller.sessions or found is None:
        return
    victim = actions.hosts[found[1].leader]
    server = controller.sessions[-1].server
    if server is None or not victim.is_running:
        return
    actions.lag(server, fault.length_s, fault.length_s)
    actions.kill_for(victim, fault.length_s)
    yield lambda: _reports(actions.environment.ensemble, victim) >= REPORTS_MIN
    others = [host.name for host in actions.hosts.values() if host not in (controller, victim)]
    with _cut(actions.environment.network, [(controller.name, other) for other in others] + [(other, controller.name) for other in others]):
        actions.environment.ensemble.delete("/controller")
        yield _after(actions.environment.scheduler, fault.length_s)


def late_roles(actions: FaultActions, fault: Fault) -> Steps:
    """What a controller sends after an election arrives when another controller has held the next one."""
    controller = actions.hosts.get(actions.state.controller or 0)
    found = _choose(actions, fault, lambda placed: placed[1].leader != actions.state.controller and len(placed[1].isr) > 1)
    server = None if controller is None or not controller.sessions else controller.sessions[-1].server
    if controller is None or server is None or found is None:
        return
    name, state, replicas = found
    target = next((actions.hosts[replica] for replica in replicas if replica not in (controller.id, state.leader)), None)
    if target is None:
        return
    others = [host.name for host in actions.hosts.values() if host is not controller]
    with _slow(actions.environment.network.slow_s, (controller.name, target.name), fault.length_s):
        actions.end_session(actions.hosts[state.leader])
        yield lambda: _epoch(actions.state, name) > state.leader_epoch
        with _cut(actions.environment.network, [(other, controller.name) for other in others]):
            actions.lag(server, fault.length_s, fault.length_s)
            actions.environment.ensemble.delete("/controller")
            yield lambda: actions.state.controller not in (None, controller.id)
            decided = _epoch(actions.state, name)
            leader = actions.hosts.get(_leader(actions.state, name))
            if leader is not None:
                actions.end_session(leader)
            yield lambda: _epoch(actions.state, name) > decided
            yield _after(actions.environment.scheduler, fault.length_s)


def lost_answers(actions: FaultActions, fault: Fault) -> Steps:
    """A leader's answers do not reach producers. They send more to the next leader, and then the unanswered batches again.

    In some cases followers do not reach it either: the next leader has none of what producers sent meanwhile.
    """
    written = {name for producer in actions.clients.producers for name in producer.plan.partitions}
    found = _choose(actions, fault, lambda placed: placed[0] in written and len(placed[1].isr) > 1)
    if found is None:
        return
    name, state, replicas = found
    leader = actions.hosts[state.leader]
    links = [(leader.name, producer.name) for producer in actions.clients.producers]
    if fault.detail < 0.5:
        links += [(actions.hosts[replica].name, leader.name) for replica in replicas if replica != leader.id]
    with _cut(actions.environment.network, links):
        yield _after(actions.environment.scheduler, fault.length_s)
        actions.end_session(leader)
        yield lambda: _epoch(actions.state, name) > state.leader_epoch
        yield _after(actions.environment.scheduler, LEARN_S)
        for producer in actions.clients.producers:
            producer.refresh()
        yield _after(actions.environment.scheduler, fault.length_s)
        for producer in actions.clients.producers:
            actions.environment.network.reset(leader.name, producer.name)


def full_create(actions: FaultActions, fault: Fault) -> Steps:
    """A disk is full until an administrator has put a replica of a new partition there: its broker cannot take its role."""
    host = actions.target(fault)
    if not actions.clients.administrators or not actions.fill(host):
        return
    before = _replicas_on(actions.state, host)
    try:
        yield lambda: bool(_replicas_on(actions.state, host) - before)
        yield _after(actions.environment.scheduler, fault.length_s)
    finally:
        actions.clear(host)


def clean_wipe(actions: FaultActions, fault: Fault) -> Steps:
    """A broker gets an empty disk after logs were cleaned: it copies what the cleaners have left of them."""
    if not actions.environment.plan.cleaning or len(actions.hosts) == 1:
        return
    swaps = actions.environment.counts["cleaned segments"] + SWAPS_MIN
    yield lambda: actions.environment.counts["cleaned segments"] >= swaps
    host = actions.target(fault)
    if host.is_running:
        actions.wipe(host, fault)


def torn_epochs(actions: FaultActions, fault: Fault) -> Steps:
    """Power is lost after an election, before the first leader epoch that does not begin at 0 is synced. Disks must sync each message."""
    found = _choose(actions, fault, lambda placed: _first_epoch_ends(actions.hosts, placed)) if actions.environment.plan.durable else None
    if found is None:
        return
    name, state, replicas = found
    hosts = [actions.hosts[replica] for replica in replicas]
    torn: list[BrokerHost] = []

    def looks() -> bool:
        torn.extend(host for host in hosts if _unsynced_epochs(host, name))
        return bool(torn)

    with _slow_disks([host for host in hosts if not host.slow_disk_s]):
        actions.end_session(actions.hosts[state.leader])
        yield looks
        actions.cut_power(torn[0], fault.length_s, TORN_BYTES)


DIRECTED: dict[str, Callable[[FaultActions, Fault], Steps]] = {
    fault.__name__: fault for fault in (lag_kill, late_isr, late_failover, late_roles, lost_answers, full_create, clean_wipe, torn_epochs)
}


# What they look at


def _choose(actions: FaultActions, fault: Fault, suits: Callable[[Placed], bool]) -> Placed | None:
    """A partition with a leader that runs."""
    found = [
        placed for placed in actions.state.states()
        if placed[1].leader >= 0 and actions.hosts[placed[1].leader].is_running and suits(placed)
    ]  # fmt: skip
    return found[int(fault.detail * 1000) % len(found)] if found else None


def _preferred_follower(placed: Placed) -> int:
    """The first replica that does not lead; -1 if there is none."""
    _, state, replicas = placed
    return next((replica for replica in replicas if replica != state.leader), -1)


def _isr(state: ClusterState, name: TopicPartition) -> tuple[int, ...]:
    found = state.state(name)
    return () if found is None else found.isr


def _epoch(state: ClusterState, name: TopicPartition) -> int:
    found = state.state(name)
    return -1 if found is None else found.leader_epoch


def _leader(state: ClusterState, name: TopicPartition) -> int:
    found = state.state(name)
    return -1 if found is None else found.leader


def _proposes(host: BrokerHost, name: TopicPartition) -> bool:
    """Whether a leader has asked for another ISR, and has no answer yet."""
    partition = _partition(host, name)
    followers = None if partition is None else partition._followers
    return followers is not None and followers.proposed is not None


def _reports(ensemble: Ensemble, host: BrokerHost) -> int:
    """How many brokers report that a host refuses connections."""
    return sum(report.startswith(f"{host.id}-") for report in ensemble.nodes.names_under(node_paths.REFUSALS))


def _replicas_on(state: ClusterState, host: BrokerHost) -> set[TopicPartition]:
    return {name for name, _, replicas in state.states() if host.id in replicas}


def _first_epoch_ends(hosts: Mapping[int, BrokerHost], placed: Placed) -> bool:
    """All records have the same leader epoch, and the next one will not begin at an offset of one digit."""
    name, state, replicas = placed
    partition = _partition(hosts[state.leader], name) if len(replicas) > 1 else None
    return partition is not None and len(partition.log.leader_epochs) == 1 and partition.log.log_end_offset >= EPOCH_END


def _unsynced_epochs(host: BrokerHost, name: TopicPartition) -> bool:
    partition = _partition(host, name)
    if partition is None or len(partition.log.leader_epochs) < 2:
        return False
    path = partition.log.leader_epochs.path
    return host.disk.synced(path) < (host.disk.size(path) or 0)


def _partition(host: BrokerHost, name: TopicPartition) -> Partition | None:
    components = None if host.broker is None else host.broker.components
    return None if components is None else components.replicas.find(*name)


def _after(scheduler: Scheduler, seconds: float) -> Callable[[], bool]:
    end_s = scheduler.now_s + seconds
    return lambda: scheduler.now_s >= end_s


@contextmanager
def _cut(network: Network, links: list[Link]) -> Iterator[None]:
    for link in links:
        network.cut_link(*link)
    try:
        yield
    finally:
        for link in links:
            network.heal_link(*link)


@contextmanager
def _slow_disks(hosts: list[BrokerHost]) -> Iterator[None]:
    for host in hosts:
        host.slow_disk_s = SLOW_DISK_S
    try:
        yield
    finally:
        for host in hosts:
            host.slow_disk_s = 0.0


@contextmanager
def _slow(latencies: Latencies, link: Link, seconds: float) -> Iterator[None]:
    latencies.add(link, seconds)
    try:
        yield
    finally:
        latencies.remove(link, seconds)
