"""kill -9 of brokers of a cluster at chosen points of a transaction: the broker that has come to the point, and each of the others.

The first broker at a point is a coordinator, or the leader of a partition that gets its marker; the others are replicas, and coordinators
and leaders of other transactions.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import Cluster
from tests.transactions.kill_rounds import POINTS, BrokerThatKills, Load, check_outcomes, check_states, write_plan

BROKERS = 3
OVERRIDES = {
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
    "leader.imbalance.check.interval.seconds": "2",  # leaders return to the brokers that were killed
    "leader.imbalance.per.broker.percentage": "0",
}


class Kill(NamedTuple):
    """When a broker comes to this point, kill the one that is `shift` places after it."""

    what: str
    when: str
    shift: int


EVERY = [Kill(what, when, shift) for what, when in POINTS for shift in range(BROKERS)]


class ClusterKillRounds:
    """Three brokers, producers and the checks."""

    def __init__(self, directory: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._cluster = Cluster(directory, overrides=OVERRIDES, own_kind=BrokerThatKills)
        self._plan = directory / "plan"
        for broker in self._cluster.brokers.values():
            assert isinstance(broker, BrokerThatKills)
            broker.plan = self._plan
        self._say = say

    def run(self, kills: Sequence[Kill]) -> None:
        """Kill and start again, one after the other, and check everything at the end."""
        cluster = self._cluster
        try:
            cluster.start()
            cluster.create_topic("t", 2)
            cluster.create_topic("u", 1)
            loads = [Load(cluster.bootstrap, name) for name in ("a", "b", "c")]
            for load in loads:
                load.start()
            for number, kill in enumerate(kills, 1):
                cluster.until_in_sync("t", "u", "__transaction_state")
                victim = self._kill(kill)
                self._say(f"   {number}: broker {victim} killed {kill.when} {kill.what}, shift {kill.shift}")
                cluster.start_brokers([victim])
            cluster.until_in_sync("t", "u", "__transaction_state")
            check_outcomes(cluster.bootstrap, loads)
            for broker in cluster.brokers.values():
                assert "Traceback" not in broker.log(), broker.log_tail()
            cluster.stop()
            check_states(cluster.brokers[1].data, loads)
        finally:
            cluster.close()

    def _kill(self, kill: Kill) -> int:
        """The id of the broker that was killed."""
        brokers = self._cluster.brokers
        write_plan(self._plan, kill.what, kill.when, 1, [broker.pid for broker in brokers.values()], kill.shift)

        def ended() -> int | None:
            return next((broker_id for broker_id, broker in brokers.items() if not broker.running), None)

        victim: int = self._cluster.until(ended, f"a broker was killed: {kill}")
        broker = brokers[victim]
        assert isinstance(broker, BrokerThatKills) and broker.exit_status == -signal.SIGKILL, broker.log_tail()
        return victim
