"""Runs a broker in this process, with the real reactor, threads, disk, clocks and random numbers.

`txbroker run` and `twistd txbroker` (`tap.py`) run the same service.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import STDLibLogObserver, globalLogBeginner
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from txbroker import __version__
from txbroker.build_info import version_text
from txbroker.child_processes import InputEnd
from txbroker.config.listeners import parse_listeners
from txbroker.config.origins import changed_settings
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StartInterrupted
from txbroker.garbage_collection import GarbageCollection
from txbroker.names import amount
from txbroker.platform import system
from txbroker.ready_file import ReadyFile
from txbroker.signals import StopSignals
from txbroker.startup import Startup, log_directories
from txbroker.supervisor import supervisor

if TYPE_CHECKING:
    from txbroker.cleaner_process import CleanerProcesses

InWorker: TypeAlias = Callable[[Callable[[], Any]], Deferred[Any]]

log = logging.getLogger("txbroker")
# Scripts that wait for Apache Kafka's start look for this logger's line.
started_log = logging.getLogger("kafka.server.KafkaServer")
running_log = logging.getLogger("kafka.server.BrokerLifecycleManager")


ANSWER_S = 0.2
TREE_THREADS = 1  # all waiting operations are one job
DISK_THREADS = 16  # for syncs, deletes and moves, which wait for the disk and not for each other


def monotonic_reactor() -> Any:
    """Twisted's reactor with a monotonic clock, so that changes of the wall clock affect neither `seconds` nor `callLater`.

    Twisted's default is `time.time`. Calls that are scheduled already keep their delays; the reactor must not be running.
    """
    if system.reactor is not None and "twisted.internet.reactor" not in sys.modules:
        import_module(system.reactor).install()
    from twisted.internet import reactor

    clock: Any = reactor
    if clock.seconds is not time.monotonic:
        difference = time.monotonic() - clock.seconds()
        for call in clock.getDelayedCalls():
            call.time += difference
            call.seconds = time.monotonic
        clock.seconds = time.monotonic
    return clock


class BrokerService:
    """A broker from start to stop. `exit_status` is the status for the process to exit with.

    When clients are served, `ready_file` is written and `on_ready` is called. If the broker cannot start, `refuse` is called with one
    sentence that says why. `adapt` returns the Environment for the broker, made from the real one.
    """

    def __init__(
        self,
        startup: Startup,
        ready_file: str | None = None,
        *,
        refuse: Callable[[str], None],
        on_ready: Callable[[Any], None] = lambda broker: None,
        adapt: Callable[[Any], Any] = lambda environment: environment,
    ) -> None:
        self._reactor: Any = monotonic_reactor()
        self._adapt = adapt
        self._startup = startup
        self._has_tls = parse_listeners(startup.config).have_tls
        self._supervisor = supervisor(self._reactor)
        self._ready_file = ReadyFile(ready_file)
        self._refuse = refuse
        self._on_ready = on_ready
        self._broker: Any = None
        self._environment: Any = None
        self._garbage_collection = GarbageCollection()
        self._starting: Deferred[None] = succeed(None)
        self._ending = False
        self.exit_status = 0

    @property
    def bound(self) -> Mapping[str, tuple[str, int]]:
        """Host and port of each listener of the broker, by its name."""
        bound: Mapping[str, tuple[str, int]] = self._broker.bound
        return bound

    def startService(self) -> None:
        """Start the broker once the reactor runs."""
        self._reactor.callWhenRunning(self._start)

    def stop_with_input(self) -> None:
        """Stop when the standard input ends: the process that has started this one has ended."""
        self._reactor.callWhenRunning(InputEnd, self._reactor, self._end)

    def restart(self, startup: Startup, between: Callable[[], Deferred[None] | None]) -> Deferred[None]:
        """Stop the broker, call `between` and wait for it, and start another one with this configuration; `between` must not fail.

        Fires when clients are served again. If the new one cannot start it fails with StartError, and the process ends soon after.
        If the process is to stop it fails with StartInterrupted; if that was before `between`, this is not called.
        """
        done: Deferred[None] = Deferred()

        async def run() -> None:
            await self._broker.stop()
            self._check_goes_on()
            await maybeDeferred(between)
            self._check_goes_on()
            self._startup = startup
            await self._start_broker()

        def ended(failure: Failure) -> None:
            done.errback(failure)
            self._reactor.callLater(ANSWER_S, self._not_started, failure)  # the caller may have to answer a client

        self._garbage_collection.begin_again()
        self._starting = Deferred.fromCoroutine(run())
        self._starting.addCallback(lambda _: self._started()).addCallback(done.callback).addErrback(ended)
        return done

    def _check_goes_on(self) -> None:
        if self._ending:  # nothing would stop another broker
            raise StartInterrupted("the broker is not started again: the process stops")

    def _start(self) -> None:
        StopSignals(self._reactor, self._end, reload=self._reload).take()
        self._starting = maybeDeferred(self._start_broker)
        self._starting.addCallback(lambda _: self._started()).addErrback(self._not_started)

    def _reload(self) -> bool:
        """Load certificates again; False if no listener has one."""
        if not self._has_tls:
            return False
        if self._broker is not None:
            self._broker.reload_certificates()
        return True

    def _start_broker(self) -> Deferred[None]:
        from txbroker.broker.service import Broker

        self._garbage_collection.begin()
        # Each log segment and each connection needs a descriptor.
        system.raise_file_limit()
        self._ready_file.remove_earlier()
        self._supervisor.starting()
        config = self._startup.config
        python = platform.python_version()
        log.info("txbroker %s, Python %s, platform %s, process %d: starting", version_text(__version__), python, system.name, os.getpid())
        log.info("settings that differ from the defaults: %s", ", ".join(changed_settings(config)) or "none")
        for warning in self._startup.warnings:
            log.warning("%s", warning)
        if self._environment is None:
            self._environment = self._adapt(_environment(self._reactor, config, self._garbage_collection))
        self._broker = Broker(
            config,
            self._environment,
            log_directories(config),
            self._fail,
            progress=self._progress,
            cluster_id=self._startup.cluster_id,
            first_topics=self._startup.topics,
        )
        started: Deferred[None] = self._broker.start()
        return started

    def _progress(self, directory: str, done: int, total: int) -> None:
        log.info("%s: %d of %s loaded", directory, done, amount(total, "log"))
        self._supervisor.status(f"loading logs: {done} of {total} of {directory}")

    def _started(self) -> None:
        if self._ending:
            return
        self._write_ready_file()
        self._garbage_collection.started()
        listening = ", ".join(f"{name} on {host}:{port}" for name, (host, port) in self._broker.bound.items())
        log.info("listening: %s; data: %s", listening, ", ".join(self._broker.directories))
        started_log.info("[KafkaServer id=%d] started", self._broker.broker_id)
        running_log.info("[BrokerLifecycleManager id=%d] Transitioning from RECOVERY to RUNNING.", self._broker.broker_id)
        self._supervisor.ready(f"serving clients: {listening}")
        self._on_ready(self._broker)

    def _write_ready_file(self) -> None:
        addresses = [f"{host}:{port}" for host, port in self._broker.bound.values()]
        metrics = [] if self._broker.metrics_url is None else [self._broker.metrics_url]
        try:
            self._ready_file.write([*addresses, *metrics])
        except OSError as error:
            raise StartError(f"{self._ready_file.path} cannot be written: {error.strerror}; correct --ready-file") from error

    def _not_started(self, failure: Failure) -> None:
        if failure.check(StartInterrupted) and self._ending:
            log.info("%s", failure.getErrorMessage())
            return
        if failure.check(StartError):
            self._refuse(failure.getErrorMessage())
        else:
            log.critical("internal error during the start: %s", failure.getTraceback())
            self._refuse(f"internal error during the start: {failure.getErrorMessage()}; the log has the traceback, please report it")
        self.exit_status = 1
        self._end()

    def _fail(self, why: str) -> None:
        log.critical("%s", why)
        self.exit_status = 1
        self._end()

    def _end(self) -> None:
        """Stop the reactor, once; it stops this service first."""
        if not self._ending:
            self._ending = True
            self._reactor.stop()

    def stopService(self) -> Deferred[None]:
        """Stop the broker, for the end of the process; fires when it has stopped."""
        self._ending = True
        self._supervisor.stopping()
        if self._broker is None:
            return succeed(None)
        # A start in progress runs until it can be undone; loading of logs is interrupted.
        self._broker.interrupt()
        done: Deferred[None] = Deferred()
        self._starting.addBoth(lambda _: self._broker.stop().addBoth(self._stopped).chainDeferred(done))
        return done

    def _stopped(self, _: object) -> None:
        self._ready_file.remove()
        self._supervisor.stopped()
        if self.exit_status == 0:
            log.info("stopped")


def log_twisted() -> None:
    """Send Twisted's warnings and unhandled errors to standard logging, for `txbroker run`."""
    logging.getLogger("twisted").setLevel(logging.WARNING)
    observer: Any = STDLibLogObserver("twisted")
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


def _environment(reactor: Any, config: BrokerConfig, garbage_collection: GarbageCollection) -> Any:
    from txbroker.broker.environment import CountedWorkers, Environment, Instruments
    from txbroker.cluster.tree.sqlite import open_sqlite_tree
    from txbroker.guard_process import SessionGuard
    from txbroker.log.os_disk import OsDisk, SyncTimes

    # Separate pools, so that reads and the metadata tree do not wait for syncs and deletes, which take long.
    in_disk_worker = CountedWorkers(worker_pool(reactor, "disk", DISK_THREADS), DISK_THREADS)
    in_tree_worker = CountedWorkers(worker_pool(reactor, "tree", TREE_THREADS), TREE_THREADS)
    readers = reactor.getThreadPool()
    in_read_worker = CountedWorkers(partial(deferToThreadPool, reactor, readers), readers.max)
    instruments = None
    if config.int("txbroker.metrics.port") >= 0:
        pools = {"disk": in_disk_worker, "tree": in_tree_worker, "read": in_read_worker}
        instruments = Instruments(thread_cpu_s=time.thread_time, pools=pools, syncs=SyncTimes())

    def later(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        def run() -> None:
            finished = in_disk_worker(work)
            if done is not None:
                finished.addCallback(lambda _: done())
            finished.addErrback(lambda failure: log.error("internal error in a disk worker: %s", failure.getTraceback()))

        if delay_ms > 0:
            reactor.callLater(delay_ms / 1000, run)
        else:
            run()

    return Environment(
        reactor=reactor,
        disk=OsDisk(None if instruments is None else instruments.syncs),
        in_worker=in_read_worker,
        later=later,
        run_all=lambda jobs, *, at_once=None: _run_all(jobs, at_once or config.int("num.recovery.threads.per.data.dir")),
        open_tree=lambda path, on_full, create: open_sqlite_tree(path, worker=in_tree_worker, on_full=on_full, create=create),
        monotonic_s=time.monotonic,
        now_ms=lambda: time.time_ns() // 1_000_000,
        random=Random(os.urandom(16)),
        random_bytes=os.urandom,
        host_name=socket.getfqdn,
        instruments=instruments,
        cleaners=_cleaners(reactor),
        threads=ReactorThreads(reactor, in_read_worker),
        session_guard=SessionGuard(reactor),
        replicas_changed=garbage_collection.replicas_changed,
    )


def _cleaners(reactor: Any) -> CleanerProcesses | None:
    from txbroker.cleaner_process import CleanerProcesses

    if system.starts_processes:
        return CleanerProcesses(reactor)
    log.warning("the log cleaner does not run, as Twisted cannot start processes here: install pywin32 if this is Windows")
    return None


class ReactorThreads:
    """The way from other threads to the reactor, and back: `Threads` of `cluster/tree/zookeeper.py`."""

    def __init__(self, reactor: Any, worker: InWorker) -> None:
        self.call_from_thread = reactor.callFromThread
        self.seconds = reactor.seconds
        self.worker = worker
        self._reactor = reactor

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Callable[[], object]:
        """See `Threads`."""
        timer = self._reactor.callLater(delay_s, call)
        return lambda: timer.cancel() if timer.active() else None


def worker_pool(reactor: Any, name: str, threads: int) -> InWorker:
    """A thread pool that stops with the reactor."""
    pool = ThreadPool(0, threads, name)
    pool.start()
    reactor.addSystemEventTrigger("during", "shutdown", pool.stop)
    return partial(deferToThreadPool, reactor, pool)


def _run_all(jobs: Mapping[str, Sequence[Callable[[], None]]], threads: int) -> None:
    """Run all jobs, at most `threads` at once for each directory; raises the first error when all are done."""
    pools = [(ThreadPoolExecutor(threads, f"directory-{i}"), own) for i, own in enumerate(jobs.values()) if own]
    futures = [pool.submit(job) for pool, own in pools for job in own]
    for pool, _ in pools:
        pool.shutdown()
    for future in futures:
        future.result()
