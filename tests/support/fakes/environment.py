"""A broker's `Environment` of fakes: everything that it takes from outside, in one thread and without real time."""

from __future__ import annotations

from random import Random

from simulation.workers import SimulatedWorkers, one_by_one
from tests.support.fakes.reactor import FakeReactor
from txbroker.broker.environment import Environment
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.log.disk import Disk

START_MS = 1_700_000_000_000


def fake_environment(reactor: FakeReactor, disk: Disk, random: Random) -> Environment:
    """Workers' jobs and their results are calls of the reactor, and `reactor.stop` ends the workers.

    The wall clock begins at START_MS and goes on with the reactor's time.
    """

    workers = SimulatedWorkers(reactor.callLater)
    reactor.addSystemEventTrigger("during", "shutdown", workers.shut_down)
    trees = MemoryTrees(lambda call: reactor.callLater(0, call))
    return Environment(
        reactor=reactor,
        disk=disk,
        in_worker=workers.in_worker,
        later=workers.later,
        run_all=one_by_one,
        open_tree=lambda *_: trees.session(),
        monotonic_s=reactor.seconds,
        now_ms=lambda: START_MS + int(reactor.seconds() * 1000),
        random=random,
        random_bytes=random.randbytes,
        host_name=lambda: "localhost",
    )
