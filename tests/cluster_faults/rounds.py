"""One round of a fault test: clients, faults one after the other, each followed by progress, and the check of everything at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

from tests.cluster_faults.faults import ALONE, DISKS, NAMES, NETWORK, ZOOKEEPER, Fault, kill_and_start_at_once
from tests.cluster_faults.load import TOPIC, Load, compare_files
from tests.crash.ledger import Lost
from tests.support.broker import BrokerProcess
from tests.support.cluster import SESSION_MS, Cluster

# Replicas are compared byte for byte, and the cleaner of each broker works at times of its own.
OVERRIDES = {"log.cleaner.enable": "false"}
_ORDER = {fault: place for place, fault in enumerate(NAMES.values())}
# Faults that go together last so long, in seconds: shorter and longer than a session.
_LASTS_S = (0.5, SESSION_MS / 1000 * 2.5)


def plan(chance: random.Random, possible: Sequence[Fault], together: float) -> Iterable[Sequence[Fault]]:
    """Faults without end: one, or, with the probability `together`, two or three at the same time."""
    combined = [fault for fault in possible if fault not in ALONE]
    while True:
        yield chance.sample(combined, chance.choice((2, 2, 3))) if chance.random() < together else [chance.choice(possible)]


def run(cluster: Cluster, faults: Iterable[Sequence[Fault]], chance: random.Random, say: Callable[[str], None] = print, *,
        full: bool = False, debug: bool = False) -> None:
    """Run the faults on a cluster that has started, and stop it. Lost, or AssertionError when the cluster does not recover."""
    load = Load(cluster, full=full, debug=debug)
    try:
        load.start()
        for these in faults:
            started_s = time.monotonic()
            done = inflict(cluster, chance, these)
            load.wait_for_progress()
            say(f"{done} ({time.monotonic() - started_s:.1f} s)")
        say(load.finish())
    except AssertionError as problem:
        # The history up to here may say why; that of a client which has ended lacks what was under way.
        try:
            load.check_history()
        except Lost as anomalies:
            raise Lost(f"{problem}\n{anomalies}") from problem
        raise
    finally:
        load.abandon()
    cluster.stop()
    say(compare_files(cluster))


def inflict(cluster: Cluster, chance: random.Random, faults: Sequence[Fault]) -> str:
    """Make these faults, wait until the cluster has coped or some time has passed, repair them, and wait until all replicas are in sync."""
    under_way = [fault(cluster, chance) for fault in sorted(faults, key=lambda fault: _ORDER.get(fault, 0))]
    harms = [next(each) for each in under_way]
    silenced = harms[0].silenced if len(harms) == 1 else None
    if silenced is not None and faults[0] is not kill_and_start_at_once:
        cluster.until_leader_is_not(silenced, TOPIC)
    elif len(harms) > 1 or faults[0] in (*DISKS, *ZOOKEEPER, *NETWORK):
        time.sleep(chance.uniform(*_LASTS_S))
    for each in reversed(under_way):
        next(each, None)
    for server in (*cluster.zookeepers.values(), *cluster.brokers.values()):
        if not server.running:
            raise Lost(f"{server.directory.name} ({server.kind}) has ended:\n{server.log_tail()}")
    cluster.until_registered()
    cluster.until_in_sync(TOPIC)
    return " and ".join(harm.what for harm in harms)


def tracebacks(cluster: Cluster) -> None:
    """Lost if a broker of ours has logged a traceback."""
    for server in cluster.brokers.values():
        if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log():
            raise Lost(f"a broker logged a traceback: {server.log_path}")
