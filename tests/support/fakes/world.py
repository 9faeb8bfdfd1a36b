"""A broker's `World` of fakes: everything that it takes from outside, in one thread and without real time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.support.fakes.reactor import FakeReactor
from tests.support.fakes.worker import one_by_one
from txbroker.broker.world import World
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.log.disk import Disk

START_MS = 1_700_000_000_000


def fake_world(reactor: FakeReactor, disk: Disk, random: Random) -> World:
    """Workers' jobs run in turns of the reactor of their own. The wall clock begins at START_MS and goes on with the reactor's time."""

    def in_worker(job: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                done.callback(job())
            except Exception:
                done.errback(Failure())

        reactor.callLater(0, run)
        return done

    def later(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        def run() -> None:
            work()
            if done is not None:
                done()

        reactor.callLater(delay_ms / 1000, run)

    trees = MemoryTrees(lambda call: reactor.callLater(0, call))
    return World(
        reactor=reactor,
        disk=disk,
        in_worker=in_worker,
        later=later,
        run_all=one_by_one,
        open_tree=lambda *_: trees.session(),
        monotonic_s=reactor.seconds,
        now_ms=lambda: START_MS + int(reactor.seconds() * 1000),
        random=random,
        random_bytes=random.randbytes,
        host_name=lambda: "localhost",
    )
