"""The simulated network: a link that is cut holds everything back, and delivers it once when it is whole again."""

from __future__ import annotations

from random import Random

from txbroker.testing.simulation.network import Network, Pipe
from txbroker.testing.simulation.scheduler import Scheduler

LINK = ("a", "b")


def test_what_was_sent_before_and_during_a_cut_arrives_once_and_in_order() -> None:
    scheduler = Scheduler()
    network = Network(scheduler, Random(1), latency_s=0.01)
    pipe, arrived = Pipe(network, LINK), list[int]()
    for number in range(20):
        pipe.put(lambda number=number: arrived.append(number))  # type: ignore[misc]
        scheduler.run(scheduler.now_s + 0.001)
        if number % 4 == 1:
            network.cut_link(*LINK)
        elif number % 4 == 3:
            network.heal_link(*LINK)
    network.heal()
    scheduler.run(5.0)
    assert arrived == list(range(20))
