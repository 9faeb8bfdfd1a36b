"""Everything that a broker takes from outside. `broker_service.py` makes the real one; tests make their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.cluster.tree.interface import Tree
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.directories import RunAll
from txbroker.log.disk import Disk
from txbroker.log.log_results import Later
from txbroker.log.os_disk import SyncTimes
from txbroker.maintenance.cleaning_pass import Workers
from txbroker.transport.hub import RunInWorker
from txbroker.transport.interfaces import Ports
from txbroker.transport.limits import Limits

if TYPE_CHECKING:
    from txbroker.cluster.tree.zookeeper_security import ZooKeeperSecurity
    from txbroker.cluster.tree.zookeeper_session import OpenSession, Threads  # a broker alone does not import kazoo


class CountedWorkers:
    """Passes jobs to a pool of `threads` threads and counts them: `begun` since the start, `unfinished` now.

    For use in the reactor's thread.
    """

    def __init__(self, run: Callable[[Callable[[], Any]], Deferred[Any]], threads: int) -> None:
        self._run = run
        self.threads = threads
        self.begun = 0
        self.unfinished = 0

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        self.begun += 1
        self.unfinished += 1
        return self._run(job).addBoth(self._finished)

    def _finished(self, result: Any) -> Any:
        self.unfinished -= 1
        return result


class SessionGuard(Protocol):
    """Ends a ZooKeeper session when this process ends, however it ends."""

    def guard(self, servers: str, timeout_ms: int, session: int, password: bytes, security: ZooKeeperSecurity) -> None:
        """Guard this session from now on, instead of the one before it. `servers`: comma-separated host:port pairs."""

    def release(self) -> None:
        """The session has been closed."""


@lazy_dataclass(frozen=True, kw_only=True, slots=True)
class Instruments:
    """What only metrics measure."""

    thread_cpu_s: Callable[[], float]  # CPU time of the calling thread
    pools: Mapping[str, CountedWorkers]
    syncs: SyncTimes


@lazy_dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The reactor, threads, the disk, the clocks and chance.

    `monotonic_s` is the clock of durations and deadlines; `reactor.seconds` and `reactor.callLater` use the same one. `now_ms` is the
    wall clock, milliseconds since 1970: for dates only, that is timestamps and what is compared with timestamps.
    """

    reactor: Any
    disk: Disk
    in_worker: Callable[[Callable[[], Any]], Deferred[Any]]
    later: Later
    run_all: RunAll
    # Of a file; calls the second argument when its disk is full. The third: whether the file may be new.
    open_tree: Callable[[str, Callable[[], None], bool], Tree]
    monotonic_s: Callable[[], float]
    now_ms: Callable[[], int]
    random: Random
    random_bytes: Callable[[int], bytes]
    host_name: Callable[[], str]
    instruments: Instruments | None = None  # None: no metrics
    cleaners: Workers | None = None  # None: no log cleaner
    threads: Threads | None = None  # None: no ZooKeeper
    session_guard: SessionGuard | None = None  # None: the session of a killed broker expires
    sessions: OpenSession | None = None  # None: those of kazoo
    replicas_changed: Callable[[int], None] = lambda count: None  # for the garbage collector
    ports: Callable[[Any, Limits, RunInWorker, ActionQueue], Ports] | None = None  # None: sockets of the operating system

    def unique_id(self) -> str:
        """32 hexadecimal digits, new at each call."""
        return self.random_bytes(16).hex()
