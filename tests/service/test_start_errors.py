"""Why a broker cannot start, where the reason is met after its log directories and its metadata file are open."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from tests.support.fakes.reactor import FakeReactor
from tests.support.fakes.world import fake_world
from txbroker.broker.service import Broker
from txbroker.cluster.tree.interface import NoSpaceInStore
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.errors import StartError


class FullTree:
    """A tree that can be read, and whose disk is full."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def _refuse(self, *_: object, **__: object) -> Deferred[Any]:
        return fail(NoSpaceInStore("/", "cannot write /data/metadata: No space left on device"))

    create = set = delete = multi = _refuse


def test_a_disk_that_becomes_full_during_the_start_is_named() -> None:
    reactor = FakeReactor()
    world = fake_world(reactor, MemoryDisk(), Random(1))
    full = replace(world, open_tree=lambda path, on_full, create: FullTree(world.open_tree(path, on_full, create)))
    config = load_broker_config(parse_overrides(["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", "broker.id=1"], {}))
    outcome: list[object] = []
    Broker(config, full, ["/data"], outcome.append).start().addBoth(outcome.append)
    reactor.advance(10)
    (failure,) = outcome
    assert isinstance(failure, Failure) and failure.check(StartError)
    assert failure.getErrorMessage() == "the disk is full: cannot write /data/metadata: No space left on device; free space there"
