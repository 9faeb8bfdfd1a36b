"""The machines of brokers: each has a disk, a wall clock, and at most one broker process at a time, which runs the real broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.cleaners import SimulatedCleaners
from simulation.environment import Environment
from simulation.host_disk import HostDisk
from simulation.memory_disk import MemoryDisk
from simulation.ports import SimulatedPorts
from simulation.process import Process
from simulation.workers import SimulatedWorkers, one_by_one
from simulation.zookeeper_session import SimulatedSession
from txbroker.action_queue import ActionQueue
from txbroker.broker.environment import Environment as BrokerEnvironment
from txbroker.broker.service import Broker
from txbroker.cluster.tree.interface import Tree
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.names import TopicPartition
from txbroker.transport.limits import Limits

T = TypeVar("T")
log = logging.getLogger("txbroker.simulation")

DATA = "/data"
PORT = 9092
WORKER_S = 0.002  # a job of a worker takes up to so long


OWN_SETTINGS = ("listeners", "log.dirs", "broker.id", "zookeeper.connect")


def configuration(broker_id: int, connect: str, overrides: Mapping[str, str]) -> BrokerConfig:
    """The configuration of one broker; ConfigError. `connect`: the value of zookeeper.connect."""
    text = {"listeners": f"PLAINTEXT://b{broker_id}:{PORT}", "log.dirs": DATA, "broker.id": str(broker_id),
            "zookeeper.connect": connect, **overrides}  # fmt: skip
    return load_broker_config(parse_overrides([f"{key}={value}" for key, value in text.items()], {}))


class HostObserver(Protocol):
    """Is notified of what happens on a host."""

    def stepped(self, host: BrokerHost) -> None:
        """Its process has made a step."""

    def ended(self, host: BrokerHost) -> None:
        """Its process has ended."""

    def exited(self, host: BrokerHost) -> None:
        """Its process has ended itself. After `ended`."""

    def process_failed(self, host: BrokerHost, what: str, failure: Failure) -> None:
        """Its broker cannot start, cannot stop, or ends itself."""

    def rewritten(self, host: BrokerHost, name: TopicPartition) -> None:
        """Segments of a log were replaced by cleaned ones."""


class BrokerHost:
    """The machine `b<broker id>`. `broker`: of the process that runs, None if there is none."""

    def __init__(self, environment: Environment, observer: HostObserver, broker_id: int, overrides: Mapping[str, str]) -> None:
        self.id = broker_id
        self.name = f"b{broker_id}"
        self.clock_offset_ms = 0
        self.slow_disk_s = 0.0  # a job of a worker takes up to so much longer
        self.disk = MemoryDisk(self.now_ms)
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.host_disk: HostDisk  # of the process
        self.cleaners: SimulatedCleaners | None = None  # of the process
        self.sessions: list[SimulatedSession] = []
        self.starts = 0
        self.serving = False
        self.stopping = False
        self._killed: list[object] = []  # what killed processes had: its end in the middle of anything is no mistake
        self._environment = environment
        self._observer = observer
        self._overrides = overrides

    def now_ms(self) -> int:
        """This machine's wall clock."""
        return self._environment.now_ms() + self.clock_offset_ms

    @property
    def is_running(self) -> bool:
        """Whether there is a process, perhaps a paused one."""
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start a broker process."""
        environment = self._environment
        environment.network.down.discard(self.name)
        self.starts += 1
        self.serving = self.stopping = False
        self.sessions = []
        process = self.process = environment.process(f"{self.name}.{self.starts}", self.name, on_step=partial(self._observer.stepped, self))
        self.host_disk = HostDisk(self.disk, process)
        if environment.plan.cleaning:
            self._start_cleaners(process)
        config = configuration(self.id, environment.ensemble.connect, self._overrides)
        broker = self.broker = Broker(config, self._of_broker(process), [DATA], partial(self._fatal, process))

        def not_started(failure: Failure) -> None:
            self._failed(process, "cannot start", failure)
            self._exited(process)

        process.step(lambda: broker.start().addCallbacks(lambda _: self._started(process), not_started))

    def kill(self, *, silent: bool = False) -> None:
        """End the process: kill -9. What it has written stays. `silent`: the machine is off, and its peers notice nothing."""
        if self.process is not None and self.process.alive:
            self._killed.append((self.broker, self.sessions, self.process.remains()))
            self.process.kill(silent=silent)
            self._ended()
        if silent:
            self._environment.network.down.add(self.name)

    def stop(self) -> None:
        """Stop the broker in order: SIGTERM. The process ends when it has stopped."""
        process, broker = self.process, self.broker
        if process is None or broker is None or not process.alive or self.stopping:
            return
        self.stopping = True

        def begin() -> None:
            if self.serving:
                stopped = broker.stop().addErrback(lambda failure: self._failed(process, "cannot stop", failure))
                stopped.addCallback(lambda _: self._exited(process))
            else:
                broker.interrupt()

        process.step(begin)

    def replace_disk(self) -> None:
        """The machine gets an empty disk."""
        self.disk = MemoryDisk(self.now_ms)

    def forget(self) -> None:
        """The end of the run: keep nothing of processes, except for those that were killed."""
        self.process = self.broker = self.cleaners = None
        self.sessions = []
        del self.host_disk

    def _ended(self) -> None:
        self.serving = False
        self.broker = None
        self.disk.end_process()
        self._observer.ended(self)

    def _exited(self, process: Process) -> None:
        if process.alive and process is self.process:
            process.kill()
            self._ended()
            self._observer.exited(self)

    def _started(self, process: Process) -> None:
        if process is self.process:
            self.serving = True
            self._environment.trace.add(self.name, "serves")
            if self.stopping:
                self.stopping = False
                self.stop()

    def _fatal(self, process: Process, why: str) -> None:
        self._failed(process, "ends itself", Failure(StartError(why)))
        self.stop()

    def _failed(self, process: Process, what: str, failure: Failure) -> None:
        if process.alive:  # else it was killed in the middle of this
            self._observer.process_failed(self, what, failure)

    def _of_broker(self, process: Process) -> BrokerEnvironment:
        environment, chance = self._environment, stream(self._environment.plan.seed, f"{self.name}.{self.starts}")

        workers = SimulatedWorkers(process.callLater, lambda: chance.random() * (WORKER_S + self.slow_disk_s))

        def session(servers: str, timeout_ms: int, **arguments: Any) -> SimulatedSession:
            made = SimulatedSession(process, environment.ensemble, servers, timeout_ms, **arguments)
            self.sessions.append(made)
            return made

        access = environment.plan.access
        users = frozenset(() if access is None else access.principals)
        brokers = frozenset(f"b{number + 1}" for number in range(environment.plan.brokers))
        ruled = environment.rules.process(self.id, process, self.now_ms)

        def ports(reactor: Any, limits: Limits, run_in_worker: object, actions: ActionQueue) -> SimulatedPorts:
            return SimulatedPorts(process, environment.network, chance, limits, actions, users, brokers, ruled)

        return BrokerEnvironment(
            reactor=process,
            disk=self.host_disk,
            in_worker=workers.in_worker,
            later=workers.later,
            run_all=one_by_one,
            open_tree=_no_tree,
            monotonic_s=process.seconds,
            now_ms=self.now_ms,
            random=chance,
            random_bytes=chance.randbytes,
            host_name=lambda: self.name,
            threads=SimulatedThreads(process, workers.in_worker),
            sessions=session,
            ports=ports,
            cleaners=self.cleaners,
        )

    def _start_cleaners(self, process: Process) -> None:
        chance = stream(self._environment.plan.seed, f"cleaners of {process.name}")
        self.cleaners = SimulatedCleaners(
            process, self.host_disk, chance, lambda: self.slow_disk_s, lambda name: self._observer.rewritten(self, name)
        )


class SimulatedThreads:
    """See `Threads` of `cluster/tree/zookeeper.py`."""

    def __init__(self, process: Process, in_worker: Callable[[Callable[[], Any]], Deferred[Any]]) -> None:
        self.call_from_thread = process.callFromThread
        self.seconds = process.seconds
        self.worker = in_worker
        self._process = process

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Callable[[], object]:
        """See `Threads`."""
        timer = self._process.callLater(delay_s, call)
        return lambda: timer.cancel() if timer.active() else None


def _no_tree(path: str, on_full: Callable[[], None], create: bool) -> Tree:
    raise AssertionError("brokers in the simulation are in a cluster")
