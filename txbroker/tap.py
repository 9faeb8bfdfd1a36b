"""The one place that knows the real reactor, threads, disk, clock and chance: makes the broker a Twisted service.

`twistd -n txbroker --config server.properties --override key=value` and `txbroker run` with the same options are the same service.
"""

from __future__ import annotations

import logging
import os
import resource
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, ClassVar, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.python import usage
from twisted.python.failure import Failure

from txbroker import __version__
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides, parse_properties
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError, StartError

T = TypeVar("T")

log = logging.getLogger("txbroker")
# Scripts that wait for Apache Kafka's start look for this logger's line.
started_log = logging.getLogger("kafka.server.KafkaServer")


class Options(usage.Options):
    """Command line of `twistd txbroker`."""

    synopsis = "[--config FILE] [--override KEY=VALUE]..."
    optParameters: ClassVar = [
        ["config", "c", None, "a server.properties file with Kafka's keys"],
        ["ready-file", None, None, "write host:port of each listener into this file once clients are served"],
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


def read_config(path: str | None, overrides: Sequence[str]) -> BrokerConfig:
    """The configuration from a file and overrides; StartError in one sentence when it cannot be used."""
    properties = {}
    if path is not None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        properties = parse_properties(data, path, os.environ)
    return load_broker_config(properties | parse_overrides(overrides, os.environ))


class BrokerService(Service):
    """A broker from start to stop. `exit_status` is what the process should end with."""

    def __init__(self, config: BrokerConfig, ready_file: str | None = None, on_ready: Callable[[Any], None] | None = None) -> None:
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._config = config
        self._ready_file = ready_file
        self._on_ready = on_ready
        self._broker: Any = None
        self._starting: Deferred[None] = succeed(None)
        self.exit_status = 0

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        self._reactor.callWhenRunning(self._start)

    def _start(self) -> None:
        _raise_file_limit()
        from txbroker.broker.service import Broker

        try:
            directories = [os.path.abspath(path) for path in self._config.list("log.dirs")]
            self._broker = Broker(self._config, _world(self._reactor, self._config), directories, self._fail)
        except StartError as error:
            self._fail(str(error))
            return
        self._starting = self._broker.start()
        self._starting.addCallbacks(lambda _: self._started(), self._not_started)

    def _started(self) -> None:
        started_log.info("[KafkaServer id=%d] started", self._broker.broker_id)
        if self._ready_file is not None:
            temporary = f"{self._ready_file}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:
                file.writelines(f"{host}:{port}\n" for host, port in self._broker.bound.values())
            os.replace(temporary, self._ready_file)
        if self._on_ready is not None:
            self._on_ready(self._broker)

    def _not_started(self, failure: Failure) -> None:
        if failure.check(StartError):
            self._fail(failure.getErrorMessage())
        else:
            self._fail(f"the broker did not start: {failure.getTraceback()}")

    def _fail(self, why: str) -> None:
        self.exit_status = 1
        log.critical("%s", why)
        if self._reactor.running:
            self._reactor.stop()

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._broker is None:
            return succeed(None)
        log.info("stopping")
        # A start that is still under way goes on to where it can be undone.
        done: Deferred[None] = Deferred()
        self._starting.addBoth(lambda _: self._broker.stop().addBoth(self._stopped).chainDeferred(done))
        return done

    def _stopped(self, _: object) -> None:
        log.info("stopped")


def makeService(options: Options) -> BrokerService:
    """The service that twistd runs. Opens nothing before `startService`."""
    try:
        config = read_config(options["config"], options["override"])
    except StartError as error:
        raise SystemExit(f"txbroker: {error}") from error
    logging.getLogger().addHandler(_ToTwisted())
    logging.getLogger().setLevel(logging.INFO)
    service = BrokerService(config, options["ready-file"])
    service._reactor.addSystemEventTrigger("after", "shutdown", _exit_with, service)
    return service


def _exit_with(service: BrokerService) -> None:
    """twistd itself always ends with 0."""
    if service.exit_status:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(service.exit_status)


class _ToTwisted(logging.Handler):
    """Standard logging, where `twistd` wants it: file, syslog or terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        from twisted.logger import Logger, LogLevel

        level = LogLevel.lookupByName("critical" if record.levelno >= logging.CRITICAL else _LEVELS.get(record.levelno, "info"))
        Logger(namespace=record.name).emit(level, "{text}", text=self.format(record))


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


def _world(reactor: Any, config: BrokerConfig) -> Any:
    from txbroker.broker.world import World
    from txbroker.cluster.sqlite_tree import open_sqlite_tree
    from txbroker.log.disk import OsDisk

    pool = reactor.getThreadPool()

    def in_worker(job: Callable[[], T]) -> Deferred[T]:
        return deferToThreadPool(reactor, pool, job)

    def later(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        def run() -> None:
            finished = in_worker(work)
            if done is not None:
                finished.addCallback(lambda _: done())
            finished.addErrback(lambda failure: log.error("work on the disk failed: %s", failure.getTraceback()))

        if delay_ms > 0:
            reactor.callLater(delay_ms / 1000, run)
        else:
            run()

    threads = config.int("num.recovery.threads.per.data.dir")
    random_bytes = secrets.token_bytes
    return World(
        reactor=reactor,
        disk=OsDisk(),
        in_worker=in_worker,
        later=later,
        run_all=lambda jobs: _run_all(jobs, threads),
        open_tree=lambda path: open_sqlite_tree(path, worker=in_worker),
        now_ms=lambda: time.time_ns() // 1_000_000,
        random=Random(random_bytes(16)),
        random_bytes=random_bytes,
        host_name=socket.getfqdn,
    )


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
