"""The faults. Each is a generator: it harms the cluster, yields what it did, and repairs that when it is resumed.

They can be combined: a fault does not wait for anything that another one may prevent.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.cluster_faults.load import PARTITIONS, TOPIC
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.network import inside
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

DISK_MIB = 1024


class Harm(NamedTuple):
    """What a fault did. `silenced`: the broker that can lead nothing as long as the fault lasts."""

    what: str
    silenced: int | None = None


Fault = Callable[[Cluster, random.Random], Iterator[Harm]]


# --- brokers' processes ---


def kill_leader(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of a leader."""
    yield from _kill(cluster, _leader(cluster, chance), "a leader")


def kill_follower(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of a broker that is neither the controller nor the leader of some partition."""
    others = sorted(cluster.brokers.keys() - {_leader(cluster, chance), _controller(cluster, chance)})
    yield from _kill(cluster, chance.choice(others), "a follower")


def kill_controller(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of the controller."""
    yield from _kill(cluster, _controller(cluster, chance), "the controller")


def kill_and_start_at_once(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9, and a start before the session has expired (KIP-380: it comes back with a new broker epoch)."""
    victim = chance.choice(sorted(cluster.brokers))
    cluster.brokers[victim].kill()
    yield Harm(f"killed broker {victim} to start it at once", victim)
    _start(cluster.brokers[victim])


def kill_all(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of all brokers at the same time."""
    order = chance.sample(sorted(cluster.brokers), len(cluster.brokers))
    for broker_id in order:
        cluster.brokers[broker_id].kill()
    yield Harm(f"killed all brokers: {order}")
    cluster.start_brokers([broker_id for broker_id in order if not cluster.brokers[broker_id].running])


def pause_leader(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """SIGSTOP of a leader: after its session it wakes up as one that has been replaced."""
    victim = _leader(cluster, chance)
    yield from _pause(cluster.brokers[victim], "a leader", victim)


def pause_controller(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """SIGSTOP of the controller: it must not write anything when it wakes up after its session."""
    victim = _controller(cluster, chance)
    yield from _pause(cluster.brokers[victim], "the controller", victim)


def stop(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """A clean stop, which hands leadership over first."""
    victim = chance.choice(sorted(cluster.brokers))
    if cluster.brokers[victim].running:
        stop_cleanly(cluster, victim)
    yield Harm(f"stopped broker {victim} cleanly", victim)
    _start(cluster.brokers[victim])


def rolling_restart(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """Every broker is stopped cleanly and started, one after the other, each when the replicas are in sync."""
    for broker_id in cluster.brokers:
        stop_cleanly(cluster, broker_id)
        cluster.start_brokers([broker_id])
        cluster.until_in_sync(TOPIC)
    yield Harm("restarted all brokers one after the other")


def wipe_a_follower(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9, and a start with an empty disk after the others have removed the broker from every ISR."""
    victim = chance.choice(sorted(cluster.brokers))
    cluster.brokers[victim].kill()
    for partition in range(PARTITIONS):
        cluster.until_isr(TOPIC, partition, *cluster.brokers.keys() - {victim})
    for path in cluster.brokers[victim].data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    yield Harm(f"killed broker {victim} and emptied its disk", victim)
    _start(cluster.brokers[victim])


# --- ZooKeeper ---


def kill_zookeeper(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of ZooKeeper's leader, or of its only server."""
    leader = _zookeeper_leader(cluster, chance)
    cluster.zookeepers[leader].kill()
    yield Harm(f"killed ZooKeeper {leader}, the leader")
    cluster.start_zookeeper()


def pause_zookeeper(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """SIGSTOP of ZooKeeper's leader."""
    leader = _zookeeper_leader(cluster, chance)
    yield from _pause(cluster.zookeepers[leader], "the leader")


def stop_most_of_zookeeper(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """kill -9 of so many servers of ZooKeeper that no quorum is left."""
    victims = chance.sample(sorted(cluster.zookeepers), len(cluster.zookeepers) // 2 + 1)
    for number in victims:
        cluster.zookeepers[number].kill()
    yield Harm(f"killed ZooKeeper {victims}: there is no quorum")
    cluster.start_zookeeper()


# --- the network between hosts ---


def cut_leader_from_brokers(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """A leader that clients and ZooKeeper reach, and other brokers do not."""
    victim = _leader(cluster, chance)
    yield from _cut(cluster, {f"broker-{victim}"}, _brokers(cluster) - {f"broker-{victim}"}, f"broker {victim}, a leader, from the brokers")


def cut_controller_from_brokers(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """A controller that ZooKeeper reaches, and other brokers do not."""
    victim = _controller(cluster, chance)
    yield from _cut(cluster, {f"broker-{victim}"}, _brokers(cluster) - {f"broker-{victim}"}, f"the controller {victim} from the brokers")


def cut_broker_from_zookeeper(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """A broker that loses its session and does not know it, while clients and brokers reach it."""
    victim = chance.choice((_leader(cluster, chance), _controller(cluster, chance)))
    yield from _cut(cluster, {f"broker-{victim}"}, _zookeepers(cluster), f"broker {victim} from ZooKeeper")


def cut_broker_from_all(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """A leader that only clients reach."""
    victim = _leader(cluster, chance)
    others = (_brokers(cluster) | _zookeepers(cluster)) - {f"broker-{victim}"}
    yield from _cut(cluster, {f"broker-{victim}"}, others, f"broker {victim}, a leader, from all but clients")


def cut_one_way(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """What one broker sends to another, or to ZooKeeper, is lost; the other direction works."""
    source, target = chance.sample(sorted(_brokers(cluster)), 2)
    if chance.random() < 0.3:
        yield from _cut(cluster, {source}, _zookeepers(cluster), f"what {source} sends to ZooKeeper", both=False)
    else:
        yield from _cut(cluster, {source}, {target}, f"what {source} sends to {target}", both=False)


def cut_in_halves(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """Brokers and ZooKeeper in two parts; only one of them has a quorum of ZooKeeper."""
    hosts = sorted(_brokers(cluster) | _zookeepers(cluster))
    half = set(chance.sample(hosts, len(hosts) // 2))
    yield from _cut(cluster, half, set(hosts) - half, f"{', '.join(sorted(half))} from the others")


def cut_zookeeper_leader(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """ZooKeeper's leader loses the other servers; brokers reach all of them."""
    leader = f"zookeeper-{_zookeeper_leader(cluster, chance)}"
    yield from _cut(cluster, {leader}, _zookeepers(cluster) - {leader}, f"{leader}, the leader, from the other servers")


# --- disks ---


def fill_disk(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
    """The disk of a broker has no space left for some time. Apache Kafka ends, and starts again when there is space."""
    victim = chance.choice(sorted(cluster.brokers))
    server = cluster.brokers[victim]
    free_kib = chance.choice((0, 4, 64))
    until(lambda: _resize(server, (shutil.disk_usage(server.data).used >> 10) + free_kib), "the size is not smaller than what is used")
    yield Harm(f"filled the disk of broker {victim}")
    _resize(server, DISK_MIB << 10)
    if server.running and server.kind != BrokerProcess.kind:
        # It may be on its way to its end.
        until(lambda: not server.running or not cluster.partitions(TOPIC) or _leads_or_follows(cluster, victim), "the broker decides")
    if not server.running:
        _start(server)


def stop_cleanly(cluster: Cluster, broker_id: int) -> None:
    """Stop a broker with SIGTERM, and check its status."""
    server = cluster.brokers[broker_id]
    status = server.stop(PATIENCE_S)
    assert status == server.stopped_status, f"broker {broker_id} ended with {status}:\n{server.log_tail()}"


def mount_disks(cluster: Cluster) -> None:
    """Give each broker a file system of its own for its data, in memory, which `fill_disk` makes smaller."""
    for server in cluster.brokers.values():
        server.data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(server.data)], check=True)


def keep_disks(cluster: Cluster) -> None:
    """Copy the data of brokers to where it stays when these file systems end with this process."""
    cluster.close()
    for server in cluster.brokers.values():
        shutil.copytree(server.data, server.directory / "kept", dirs_exist_ok=True)


def unmount_disks(cluster: Cluster) -> None:
    """Remove the file systems of brokers that have ended."""
    for server in cluster.brokers.values():
        subprocess.run(["umount", "--lazy", str(server.data)], check=False)


def _resize(server: Server, kib: int) -> bool:
    """Whether that was possible: the process may write more at any time."""
    # With its type: in a user namespace `mount` would repeat options of the file system that must not be given again.
    command = ["mount", "-t", "tmpfs", "-o", f"remount,size={max(kib, 4)}k", "tmpfs", str(server.data)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _leads_or_follows(cluster: Cluster, broker_id: int) -> bool:
    return any(broker_id in state.isr for state in cluster.partitions(TOPIC).values())


def _kill(cluster: Cluster, victim: int, what: str) -> Iterator[Harm]:
    cluster.brokers[victim].kill()
    yield Harm(f"killed broker {victim}, {what}", victim)
    _start(cluster.brokers[victim])


def _pause(server: Server, what: str, broker_id: int | None = None) -> Iterator[Harm]:
    if server.running:
        server.pause()
    yield Harm(f"paused {server.directory.name}, {what}", broker_id)
    if server.running:
        server.resume()


def _start(server: Server) -> None:
    if not server.running:
        server.start()


def _cut(cluster: Cluster, some: set[str], others: set[str], what: str, *, both: bool = True) -> Iterator[Harm]:
    assert cluster.network is not None
    for one in sorted(some):
        for other in sorted(others):
            cluster.network.drop(one, other)
            if both:
                cluster.network.drop(other, one)
    yield Harm(f"cut {what}")
    cluster.network.restore()


def _brokers(cluster: Cluster) -> set[str]:
    return {f"broker-{broker_id}" for broker_id in cluster.brokers}


def _zookeepers(cluster: Cluster) -> set[str]:
    return {f"zookeeper-{number}" for number in cluster.zookeepers}


def _leader(cluster: Cluster, chance: random.Random) -> int:
    """A leader, by a broker's metadata, which other faults may have made old; some broker if there is none."""
    try:
        states = cluster.partitions(TOPIC)
    except OSError:
        states = {}
    leaders = {state.leader for state in states.values()} & cluster.brokers.keys()
    return chance.choice(sorted(leaders or cluster.brokers))


def _controller(cluster: Cluster, chance: random.Random) -> int:
    """The controller, in the same way."""
    try:
        found: int = cluster.metadata([]).controller_id
    except OSError:
        found = -1
    return found if found in cluster.brokers else chance.choice(sorted(cluster.brokers))


def _zookeeper_leader(cluster: Cluster, chance: random.Random) -> int:
    leaders = [number for number, server in cluster.zookeepers.items() if server.running and not server.paused and server.leads]
    return leaders[0] if leaders else chance.choice(sorted(cluster.zookeepers))


BROKERS: tuple[Fault, ...] = (
    kill_leader, kill_follower, kill_controller, kill_and_start_at_once, kill_all, stop, rolling_restart, wipe_a_follower, pause_leader,
    pause_controller,
)  # fmt: skip
DISKS: tuple[Fault, ...] = (fill_disk,)
ZOOKEEPER: tuple[Fault, ...] = (kill_zookeeper, pause_zookeeper, stop_most_of_zookeeper)
NETWORK: tuple[Fault, ...] = (
    cut_leader_from_brokers, cut_controller_from_brokers, cut_broker_from_zookeeper, cut_broker_from_all, cut_one_way, cut_in_halves,
    cut_zookeeper_leader,
)  # fmt: skip
# Faults at the same time are made in this order and repaired in the opposite one: a broker starts only if it reaches ZooKeeper.
NAMES = {fault.__name__: fault for fault in (*BROKERS, *DISKS, *ZOOKEEPER, *NETWORK)}
# These wait for the whole cluster: they are not combined.
ALONE = frozenset({kill_all, rolling_restart, wipe_a_follower})


def possible() -> list[Fault]:
    """The faults that this process can make, of a cluster with several servers of ZooKeeper. See tests/support/network.py."""
    return [*BROKERS, *ZOOKEEPER, *((*DISKS, *NETWORK) if inside() else ())]
