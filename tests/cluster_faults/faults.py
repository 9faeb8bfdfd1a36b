"""The faults: each harms one broker or all, waits until the cluster has coped with that, and repairs it."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.cluster_faults.load import PARTITIONS, TOPIC
from tests.support.cluster import SESSION_MS, Cluster
from tests.support.waiting import PATIENCE_S

Fault = Callable[[Cluster, random.Random], str]


def kill_leader(cluster: Cluster, chance: random.Random) -> str:
    """kill -9 of a leader; other replicas lead its partitions, then it comes back."""
    partition = chance.randrange(PARTITIONS)
    return _killed(cluster, cluster.leader(TOPIC, partition), f"leader of partition {partition}")


def kill_follower(cluster: Cluster, chance: random.Random) -> str:
    """kill -9 of a broker that is neither the controller nor the leader of some partition."""
    partition = chance.randrange(PARTITIONS)
    others = cluster.brokers.keys() - {cluster.leader(TOPIC, partition), cluster.controller()}
    return _killed(cluster, chance.choice(sorted(others)), f"follower of partition {partition}")


def kill_controller(cluster: Cluster, chance: random.Random) -> str:
    """kill -9 of the controller; another broker takes over."""
    victim = cluster.controller()
    done = _killed(cluster, victim, "controller")
    assert cluster.controller() != victim
    return done


def kill_and_start_at_once(cluster: Cluster, chance: random.Random) -> str:
    """kill -9, and a start before the session has expired (KIP-380: it comes back with a new broker epoch)."""
    victim = chance.choice(sorted(cluster.brokers))
    cluster.brokers[victim].kill()
    cluster.start_brokers([victim])
    return f"killed broker {victim} and started it at once"


def kill_all(cluster: Cluster, chance: random.Random) -> str:
    """kill -9 of all brokers at the same time; they come back one after the other."""
    order = chance.sample(sorted(cluster.brokers), len(cluster.brokers))
    for broker_id in order:
        cluster.brokers[broker_id].kill()
    cluster.start_brokers(order)
    return f"killed all brokers and started them: {order}"


def pause(cluster: Cluster, chance: random.Random) -> str:
    """SIGSTOP longer than the session: the broker wakes up as one that has been replaced."""
    victim = chance.choice(sorted(cluster.brokers))
    was_controller = cluster.controller() == victim
    cluster.brokers[victim].pause()
    cluster.until_leader_is_not(victim, TOPIC)
    cluster.brokers[victim].resume()
    cluster.until_registered()
    return f"paused broker {victim}{', the controller,' if was_controller else ''} for longer than {SESSION_MS} ms"


def pause_controller(cluster: Cluster, chance: random.Random) -> str:
    """SIGSTOP of the controller, longer than the session: it must not write anything when it wakes up."""
    victim = cluster.controller()
    cluster.brokers[victim].pause()
    assert cluster.controller() != victim
    cluster.until_leader_is_not(victim, TOPIC)
    cluster.brokers[victim].resume()
    cluster.until_registered()
    return f"paused the controller {victim} for longer than {SESSION_MS} ms"


def stop(cluster: Cluster, chance: random.Random) -> str:
    """A clean stop, which hands leadership over first, and a start."""
    victim = chance.choice(sorted(cluster.brokers))
    stop_cleanly(cluster, victim)
    cluster.start_brokers([victim])
    return f"stopped broker {victim} cleanly and started it"


def rolling_restart(cluster: Cluster, chance: random.Random) -> str:
    """Every broker is stopped cleanly and started, one after the other, each when the replicas are in sync."""
    for broker_id in cluster.brokers:
        stop_cleanly(cluster, broker_id)
        cluster.start_brokers([broker_id])
        cluster.until_in_sync(TOPIC)
    return "restarted all brokers one after the other"


def restart_zookeeper(cluster: Cluster, chance: random.Random) -> str:
    """kill -9 of ZooKeeper and a start: the brokers keep their sessions if it is quick, or open new ones."""
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    cluster.until_registered()
    return "killed ZooKeeper and started it"


def _killed(cluster: Cluster, victim: int, what: str) -> str:
    cluster.brokers[victim].kill()
    cluster.until_registered()
    cluster.until_leader_is_not(victim, TOPIC)
    cluster.start_brokers([victim])
    return f"killed broker {victim}, the {what}"


def stop_cleanly(cluster: Cluster, broker_id: int) -> None:
    """Stop a broker with SIGTERM, and check its status."""
    server = cluster.brokers[broker_id]
    status = server.stop(PATIENCE_S)
    assert status == server.stopped_status, f"broker {broker_id} ended with {status}:\n{server.log_tail()}"


ALL: tuple[Fault, ...] = (
    kill_leader, kill_follower, kill_controller, kill_and_start_at_once, kill_all, pause, pause_controller, stop, rolling_restart,
    restart_zookeeper,
)  # fmt: skip
