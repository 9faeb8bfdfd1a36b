"""The one place that knows the real reactor, threads, disk, clock and chance: makes the broker a Twisted service.

`twistd -n txbroker --config server.properties --override key=value` and `txbroker run` with the same options are the same service.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, ClassVar, TypeAlias

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger, LogLevel, STDLibLogObserver, globalLogBeginner
from twisted.python import usage
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from txbroker import __version__
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides, parse_properties
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError, StartError
from txbroker.signals import StopSignals

InWorker: TypeAlias = Callable[[Callable[[], Any]], Deferred[Any]]

log = logging.getLogger("txbroker")
# Scripts that wait for Apache Kafka's start look for this logger's line.
started_log = logging.getLogger("kafka.server.KafkaServer")


LOG_LEVELS = ("debug", "info", "warning", "error")

TREE_THREADS = 1  # all operations that wait are one job
DISK_THREADS = 16  # syncs, deletes, moves: they wait for the disk and not for each other


class Options(usage.Options):
    """Command line of `twistd txbroker`: the options of `txbroker run`."""

    synopsis = "[--config FILE] [--override KEY=VALUE]..."
    optParameters: ClassVar = [
        ["config", "c", None, "a server.properties file with Kafka's keys"],
        ["ready-file", None, None, "write host:port of each listener into this file once clients are served"],
        ["log-level", None, "info", f"what to log: {', '.join(LOG_LEVELS)}"],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["override"] = []

    def opt_override(self, text: str) -> None:
        """KEY=VALUE, taken in place of what the file says; may be given several times."""
        self["override"].append(text)

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"txbroker {__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        if self["log-level"] not in LOG_LEVELS:
            raise usage.UsageError(f"--log-level is {self['log-level']}; it must be one of {', '.join(LOG_LEVELS)}")


def read_config(path: str | None, overrides: Sequence[str]) -> BrokerConfig:
    """The configuration from a file and overrides; StartError in one sentence when it cannot be used."""
    properties = {}
    if path is not None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; correct --config") from error
        properties = parse_properties(data, path, os.environ)
    return load_broker_config(properties | parse_overrides(overrides, os.environ))


class BrokerService(Service):
    """A broker from start to stop, whatever ends it. `exit_status` is what the process should end with.

    `ready_file` and `on_ready` tell that clients are served. `refuse` is told, in one sentence, why the broker did not start.
    """

    def __init__(
        self,
        config: BrokerConfig,
        ready_file: str | None = None,
        *,
        refuse: Callable[[str], None],
        on_ready: Callable[[Any], None] = lambda broker: None,
    ) -> None:
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._config = config
        self._ready_file = ready_file
        self._refuse = refuse
        self._on_ready = on_ready
        self._broker: Any = None
        self._starting: Deferred[None] = succeed(None)
        self._is_ready = False
        self._ending = False
        self.exit_status = 0

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        self._reactor.callWhenRunning(self._start)

    def _start(self) -> None:
        StopSignals(lambda: self._reactor.callFromThread(self._end)).take()
        self._starting = maybeDeferred(self._start_broker)
        self._starting.addCallback(lambda _: self._started()).addErrback(self._not_started)

    def _start_broker(self) -> Deferred[None]:
        from txbroker.broker.service import Broker

        _raise_file_limit()
        self._remove_ready_file()
        directories = [os.path.abspath(path) for path in self._config.list("log.dirs")]
        self._broker = Broker(self._config, _world(self._reactor, self._config), directories, self._fail)
        started: Deferred[None] = self._broker.start()
        return started

    def _started(self) -> None:
        if self._ending:
            return
        if self._ready_file is not None:
            self._write_ready_file(self._ready_file)
        self._is_ready = True
        listening = ", ".join(f"{name} on {host}:{port}" for name, (host, port) in self._broker.bound.items())
        log.info("listening: %s; data: %s", listening, ", ".join(self._broker.directories))
        started_log.info("[KafkaServer id=%d] started", self._broker.broker_id)
        self._on_ready(self._broker)

    def _write_ready_file(self, path: str) -> None:
        try:
            with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                file.writelines(f"{host}:{port}\n" for host, port in self._broker.bound.values())
            os.replace(f"{path}.tmp", path)
        except OSError as error:
            raise StartError(f"{path} cannot be written: {error.strerror}; correct --ready-file") from error

    def _remove_ready_file(self) -> None:
        """Nobody is to take an earlier broker's for this one's."""
        if self._ready_file is not None:
            try:
                os.unlink(self._ready_file)
            except FileNotFoundError:
                return
            except OSError as error:
                raise StartError(f"{self._ready_file} cannot be removed: {error.strerror}; correct --ready-file") from error

    def _not_started(self, failure: Failure) -> None:
        if failure.check(StartError):
            self._refuse(failure.getErrorMessage())
        else:
            log.critical("the broker did not start: %s", failure.getTraceback())
            self._refuse(f"the broker did not start, by a fault of its own ({failure.getErrorMessage()}): the log says where")
        self.exit_status = 1
        self._end()

    def _fail(self, why: str) -> None:
        log.critical("%s", why)
        self.exit_status = 1
        self._end()

    def _end(self) -> None:
        """Stop the reactor, once; the reactor stops this service first."""
        if not self._ending:
            self._ending = True
            self._reactor.stop()

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        self._ending = True
        if self._broker is None:
            return succeed(None)
        # A start that is still under way goes on to where it can be undone.
        done: Deferred[None] = Deferred()
        self._starting.addBoth(lambda _: self._broker.stop().addBoth(self._stopped).chainDeferred(done))
        return done

    def _stopped(self, _: object) -> None:
        if self._ready_file is not None and self._is_ready:
            with contextlib.suppress(OSError):
                os.unlink(self._ready_file)
        if self.exit_status == 0:
            log.info("stopped")


def makeService(options: Options) -> BrokerService:
    """The service that twistd runs. Opens nothing before `startService`."""
    try:
        config = read_config(options["config"], options["override"])
    except StartError as error:
        raise SystemExit(f"txbroker: {error}") from error
    logging.getLogger().addHandler(_ToTwisted())
    logging.getLogger().setLevel(options["log-level"].upper())
    service = BrokerService(config, options["ready-file"], refuse=_refuse_under_twistd)
    service._reactor.addSystemEventTrigger("after", "shutdown", _keep_exit_status, service)
    return service


def _refuse_under_twistd(why: str) -> None:
    """twistd has its log take the place of standard error, and a daemon has no other."""
    log.critical("%s", why)
    if sys.__stderr__ is not None:
        print(f"txbroker: {why}", file=sys.__stderr__, flush=True)


def _keep_exit_status(service: BrokerService) -> None:
    """twistd itself ends with 0 whatever its service says; it is let to remove its pid file first."""
    if service.exit_status:
        atexit.register(_exit_with, service.exit_status)


def _exit_with(status: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def log_twisted() -> None:
    """Twisted's own warnings and unhandled errors, where `txbroker run` wants them: standard logging."""
    logging.getLogger("twisted").setLevel(logging.WARNING)
    observer: Any = STDLibLogObserver("twisted")
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


class _ToTwisted(logging.Handler):
    """Standard logging, where `twistd` wants it: file, syslog or terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        level = LogLevel.lookupByName("critical" if record.levelno >= logging.CRITICAL else _LEVELS.get(record.levelno, "info"))
        Logger(namespace=record.name).emit(level, "{text}", text=self.format(record))


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


def _world(reactor: Any, config: BrokerConfig) -> Any:
    from txbroker.broker.world import World
    from txbroker.cluster.sqlite_tree import open_sqlite_tree
    from txbroker.log.disk import OsDisk

    # What waits for the disk for long must not hold up answers: neither reads nor the metadata wait for syncs and deletes.
    in_disk_worker = _workers(reactor, "disk", DISK_THREADS)

    def later(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        def run() -> None:
            finished = in_disk_worker(work)
            if done is not None:
                finished.addCallback(lambda _: done())
            finished.addErrback(lambda failure: log.error("work on the disk failed: %s", failure.getTraceback()))

        if delay_ms > 0:
            reactor.callLater(delay_ms / 1000, run)
        else:
            run()

    return World(
        reactor=reactor,
        disk=OsDisk(),
        in_worker=partial(deferToThreadPool, reactor, reactor.getThreadPool()),
        later=later,
        run_all=lambda jobs, *, at_once=None: _run_all(jobs, at_once or config.int("num.recovery.threads.per.data.dir")),
        open_tree=lambda path: open_sqlite_tree(path, worker=_workers(reactor, "tree", TREE_THREADS)),
        now_ms=lambda: time.time_ns() // 1_000_000,
        random=Random(os.urandom(16)),
        random_bytes=os.urandom,
        host_name=socket.getfqdn,
    )


def _workers(reactor: Any, name: str, threads: int) -> InWorker:
    """Threads of their own, which end with the reactor."""
    pool = ThreadPool(0, threads, name)
    pool.start()
    reactor.addSystemEventTrigger("during", "shutdown", pool.stop)
    return partial(deferToThreadPool, reactor, pool)


def _raise_file_limit() -> None:
    """Each log holds a file for every open segment, and each connection a socket: take all descriptors that may be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run_all(jobs: Mapping[str, Sequence[Callable[[], None]]], threads: int) -> None:
    """All jobs, for each directory at most `threads` at once; the first error is raised when all are done."""
    pools = [(ThreadPoolExecutor(threads, f"directory-{i}"), own) for i, own in enumerate(jobs.values()) if own]
    futures = [pool.submit(job) for pool, own in pools for job in own]
    for pool, _ in pools:
        pool.shutdown()
    for future in futures:
        future.result()
