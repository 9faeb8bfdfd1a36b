"""The simulated network: a link that is cut holds everything back, and delivers it once when it is whole again."""

from __future__ import annotations

from random import Random

from simulation.network import Network, Pipe
from simulation.scheduler import Scheduler

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


def test_a_link_is_whole_when_all_faults_that_have_cut_it_have_ended() -> None:
    scheduler = Scheduler()
    network = Network(scheduler, Random(1), latency_s=0.01)
    pipe, arrived = Pipe(network, LINK), list[int]()
    network.cut_link(*LINK)
    network.cut_link(*LINK)
    pipe.put(lambda: arrived.append(1))
    network.heal_link(*LINK)
    scheduler.run(1.0)
    assert arrived == []
    network.heal_link(*LINK)
    network.heal_link(*LINK)  # a fault that ends after `heal`
    scheduler.run(2.0)
    assert arrived == [1] and not network.cut


def test_the_slowest_of_several_faults_counts_until_it_ends() -> None:
    network = Network(Scheduler(), Random(1), latency_s=0.01)
    for seconds in (2.0, 1.0, 2.0):
        network.slow_s.add(LINK, seconds)
    network.slow_s.remove(LINK, 2.0)
    assert network.slow_s.of(LINK) == 2.0 <= network.latency_s(LINK)
    network.slow_s.remove(LINK, 2.0)
    assert network.slow_s.of(LINK) == 1.0
    network.heal()
    network.slow_s.remove(LINK, 1.0)
    assert not network.slow_s and network.latency_s(LINK) < 1.0
