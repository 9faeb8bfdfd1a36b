"""A whole broker in this process on a real directory and a real metadata file, without sockets of clients, threads and real time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.workers import SimulatedWorkers
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from txbroker.broker.components import Components
from txbroker.broker.service import Broker
from txbroker.cluster.topics import NewTopic
from txbroker.cluster.tree.sqlite import open_sqlite_tree
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.log.log import Log
from txbroker.log.os_disk import OsDisk


class WholeBroker:
    """`WholeBroker([directory])` starts it; StartError, after which nothing is open. `stop` stops it cleanly."""

    def __init__(self, directories: Sequence[Path], *overrides: str) -> None:
        self.reactor = FakeReactor()
        workers = SimulatedWorkers(self.reactor.callLater)

        def open_tree(path: str, on_full: Any, create: bool) -> Any:
            return open_sqlite_tree(path, worker=workers.in_worker, on_full=on_full, create=create)

        environment = replace(fake_environment(self.reactor, OsDisk(), Random(1)), open_tree=open_tree)
        paths = [str(path) for path in directories]
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={','.join(paths)}", "broker.id=1", *overrides]
        self.broker = Broker(load_broker_config(parse_overrides(settings, {})), environment, paths, self._fatal)
        self.result(self.broker.start())
        self.advance(1)

    def _fatal(self, why: str) -> None:
        raise AssertionError(f"the broker wants to stop: {why}")

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds * 100)):
            self.reactor.advance(0.01)

    def result(self, done: Deferred[Any]) -> Any:
        """The result of a Deferred; its error is raised."""
        results: list[Any] = []
        done.addBoth(results.append)
        for _ in range(10_000):
            if results:
                break
            self.reactor.advance(0.001)
        assert results, "the Deferred did not fire"
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]

    @property
    def components(self) -> Components:
        """Those of the broker."""
        assert self.broker.components is not None
        return self.broker.components

    def create(self, topic: str, partitions: int) -> None:
        """A topic with this broker's replicas."""
        self.result(self.components.topic_admin.create(NewTopic(name=topic, partition_count=partitions, replication_factor=1)))
        self.advance(1)

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of a partition that this broker leads; BrokerError."""
        found = self.components.replicas.get(topic, partition)
        assert found.is_leader
        return found.log

    def stop(self) -> None:
        """Stop it cleanly."""
        self.result(self.broker.stop())

