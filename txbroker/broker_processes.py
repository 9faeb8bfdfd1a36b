"""The brokers of `txbroker run --processes N`: N processes of one cluster on one machine, and the server of their metadata.

Python runs on one core in each process: N brokers use N cores. They find each other in a metadata tree that one more process serves from a
file. What ends is started again. Until every broker has served clients once, the end of a process is a failed start, and all are stopped.

Each process reports its state as it would to systemd, to a socket of this process (NOTIFY_SOCKET). If systemd watches this process
(WatchdogSec), this process watches the others in the same way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import CannotListenError, ProcessExitedAlready
from twisted.internet.protocol import DatagramProtocol, ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.broker.process_data import check_process_data, path_in_use
from txbroker.child_processes import child_environment, module_command, remove_temporary
from txbroker.config.listeners import parse_listeners
from txbroker.config.process_layout import process_overrides
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StorageError
from txbroker.log.directory import make_directory
from txbroker.log.disk import Disk
from txbroker.log.os_disk import OsDisk
from txbroker.names import amount
from txbroker.ready_file import ReadyFile
from txbroker.retrying import retrying, warning
from txbroker.signals import StopSignals
from txbroker.startup import log_directories
from txbroker.supervisor import Supervisor

RESTART_S = 0.5
RESTART_S_MAX = 30.0
EARLIER_END_S = 30.0  # how long a start waits for the processes of an earlier one
LOOK_S = 0.1
WATCHDOG_CHECKS = 4  # in the time within which a process must report
FAILED = 1

log = logging.getLogger("txbroker.processes")


class BrokerProcesses:
    """Starts, watches and stops the processes. `exit_status` is that of this process."""

    def __init__(
        self,
        reactor: Any,
        config: BrokerConfig,
        arguments: Sequence[str],
        processes: int,
        ready_file: str | None,
        *,
        systemd: Supervisor,
        refuse: Callable[[str], None],
        on_ready: Callable[[Sequence[str]], None],
    ) -> None:
        """`arguments`: those of `txbroker run` that each broker gets, too. `on_ready` gets the addresses, once, when all serve clients."""
        self.exit_status = 0
        self.reactor = reactor
        self._config = config
        self._arguments = arguments
        self._processes = processes
        self._ready_file = ReadyFile(ready_file)
        self._systemd = systemd
        self._refuse = refuse
        self._on_ready = on_ready
        self._directory = ""
        self._metrics_url: str | None = None
        self._tree: _Process | None = None
        self._brokers: list[_Process] = []
        self._has_served = False
        self._writing: Deferred[None] = succeed(None)
        self._stopping = False

    def start(self) -> None:
        """Start everything; to be called when the reactor runs."""
        StopSignals(self.reactor, self.stop, reload=self._reload).take()
        self._systemd.starting()
        self.reactor.addSystemEventTrigger("during", "shutdown", self._clean_up)
        Deferred.fromCoroutine(self._start()).addErrback(lambda failure: self._not_started(f"internal error: {failure.getTraceback()}"))

    def _reload(self) -> bool:
        """Let all brokers load certificates again; False if no listener has one."""
        if not parse_listeners(self._config).have_tls:
            return False
        self._reload_brokers()
        return True

    def _reload_brokers(self) -> None:
        for broker in self._brokers:
            if broker.is_ready:  # others read the files during their start
                broker.send(signal.SIGHUP)

    async def _start(self) -> None:
        disk = OsDisk()
        try:
            self._ready_file.remove_earlier()
            directories = log_directories(self._config)
            await self._until_unused(disk, directories)
            if self._stopping:
                return
            self._make_directory()
            data = check_process_data(disk, directories, self._processes, self._config.int("broker.id"))
            make_directory(disk, os.path.dirname(data.metadata))
            socket = os.path.join(self._directory, "metadata")
            overrides = process_overrides(self._config, self._processes, socket, data.broker_id)
            self._open_metrics()
            command = module_command("txbroker.tree_process", socket, data.metadata)
            self._tree = self._process("the server of the metadata", command, partial(self._start_brokers, overrides))
        except (StartError, StorageError, OSError) as error:
            self._not_started(str(error))
            return
        self._tree.start()

    def stop(self) -> None:
        """Stop the brokers, then the server of the metadata, then the reactor."""
        if self._stopping:
            return
        self._stopping = True
        self._writing.cancel()
        self._systemd.stopping()
        for broker in self._brokers:
            broker.stop(signal.SIGTERM)
        self._stop_next()

    def ended(self, process: _Process, why: str) -> None:
        """A process has ended."""
        if self._stopping and process is self._tree and any(broker.runs for broker in self._brokers):
            process.start()  # the brokers need it for a clean stop
        elif self._stopping:
            if process is not self._tree and process.status:
                self.exit_status = FAILED
            self._stop_next()
        elif not self._has_served:
            self._not_started(f"{process.name} has ended during the start ({why}); its lines above say why")
        else:
            log.error("%s has ended (%s); restarting it", process.name, why)
            process.start()

    def cannot_start(self, process: _Process, error: Exception) -> None:
        """A process could not be created; it is attempted again, unless this is the first start of all."""
        problem = f"{process.name} cannot be started: {getattr(error, 'strerror', None) or error}"
        if self._has_served or self._stopping:
            log.error("%s; retrying: check the limits of processes and memory", problem, exc_info=not isinstance(error, OSError))
        else:
            self._not_started(f"{problem}; raise the limits of processes and memory")

    def _start_brokers(self, overrides: Sequence[Mapping[str, str]]) -> None:
        if self._brokers or self._stopping:
            return
        for number, keys in enumerate(overrides):
            ready_file = os.path.join(self._directory, f"ready.{number}")
            command = module_command("txbroker", "run", *self._arguments, "--ready-file", ready_file)
            for key, value in keys.items():
                command += ["--override", f"{key}={value}"]
            broker = self._process(f"process {number}", [*command, "--stop-with-input"], self._broker_ready, ready_file)
            self._brokers.append(broker)
            broker.start()

    async def _until_unused(self, disk: Disk, directories: Sequence[str]) -> None:
        """Wait for the processes of an earlier `txbroker run`, which may be stopping after it was killed; StartError, StorageError."""
        end_s = self.reactor.seconds() + EARLIER_END_S
        waits = False
        while not self._stopping and (used := path_in_use(disk, directories)) is not None:
            if self.reactor.seconds() >= end_s:
                raise StartError(f"{used} is in use by another broker; stop that one, or choose another log.dirs")
            if not waits:
                log.warning("%s is in use by another broker: the start waits for its end, up to %.0f s", used, EARLIER_END_S)
                waits = True
            await deferLater(self.reactor, LOOK_S)

    def _make_directory(self) -> None:
        """The directory of the sockets and ready files, which other users cannot read."""
        try:
            self._directory = tempfile.mkdtemp(prefix="txbroker-")
        except OSError as error:
            problem = f"no temporary directory can be made: {error.strerror}"
            raise StartError(f"{problem}; set TMPDIR to a directory that can be written") from error

    def _process(self, name: str, command: Sequence[str], on_ready: Callable[[], None], ready_file: str | None = None) -> _Process:
        """A process that is not started yet, and the socket for its reports; StartError."""
        notify = os.path.join(self._directory, f"notify.{name.split()[-1]}")
        process = _Process(self, name, command, notify, self._systemd.watchdog_s, on_ready, ready_file)
        try:
            self.reactor.listenUNIXDatagram(notify, _States(process.report))
        except CannotListenError as error:
            problem = f"the socket {notify} cannot be made: {error.socketError}"
            raise StartError(f"{problem}; set TMPDIR to a directory with a short path") from error
        return process

    def _open_metrics(self) -> None:
        """Open the metrics port, if configured; its modules are imported only then."""
        port = self._config.int("txbroker.metrics.port")
        if port >= 0:
            from txbroker.metrics.http import HOST_NAMES_KEY
            from txbroker.metrics.process_pages import ProcessPages

            host, names = self._config.text("txbroker.metrics.host"), self._config.list(HOST_NAMES_KEY)
            pages = ProcessPages(self.reactor, host, names, lambda: [broker.metrics_url for broker in self._brokers])
            self._metrics_url = pages.start(port)

    def _broker_ready(self) -> None:
        ready = sum(broker.is_ready for broker in self._brokers)
        self._systemd.status(f"{ready} of {amount(self._processes, 'process')} serving clients")
        if ready < self._processes or self._has_served:
            return
        self._has_served = True
        addresses = [address for broker in self._brokers for address in broker.addresses]
        metrics = [] if self._metrics_url is None else [self._metrics_url]
        say = warning(log, "the ready file cannot be written, retrying: %s; correct --ready-file", OSError)
        attempts = retrying(
            partial(self._write_ready_file, [*addresses, *metrics]), self.reactor, Backoff(random.random, RESTART_S, RESTART_S_MAX), say
        )
        self._writing = Deferred.fromCoroutine(attempts).addErrback(_cancelled)
        log.info("%s serving clients: %s", amount(self._processes, "process"), ", ".join(addresses))
        self._systemd.ready(f"{amount(self._processes, 'process')} serving clients")
        self._on_ready(addresses)

    async def _write_ready_file(self, lines: Sequence[str]) -> None:
        self._ready_file.write(lines)

    def ready_failed(self, failure: Failure) -> None:
        """What follows when a process is ready has failed."""
        known = failure.check(StartError) is not None
        self._not_started(failure.getErrorMessage() if known else f"internal error: {failure.getTraceback()}")

    def _not_started(self, why: str) -> None:
        self._refuse(why)
        self.exit_status = FAILED
        self.stop()

    def _stop_next(self) -> None:
        if any(broker.runs for broker in self._brokers):
            return
        if self._tree is not None:
            self._tree.stop(None)
        if self._tree is None or not self._tree.runs:
            self._ready_file.remove()
            self._systemd.stopped()
            self.reactor.stop()

    def _clean_up(self) -> None:
        if self._directory:
            remove_temporary(self._directory)


class _Process(ProcessProtocol):
    """One process. Its standard input is a pipe of this process: it stops when that ends."""

    transport: Any = None

    def __init__(
        self,
        group: BrokerProcesses,
        name: str,
        command: Sequence[str],
        notify: str,
        watchdog_s: float | None,
        on_ready: Callable[[], None],
        ready_file: str | None,
    ) -> None:
        """`notify`: the socket for its reports; it makes one in each `watchdog_s`, and is killed if none comes in twice this time."""
        self.name = name
        self.addresses: list[str] = []  # of a broker, while it is ready
        self.metrics_url: str | None = None
        self._ready_file = ready_file
        self.status = 0
        self.runs = False
        self.is_ready = False
        self._group = group
        self._command = list(command)
        self._environment = {"NOTIFY_SOCKET": notify}
        self._watchdog_s = watchdog_s
        if watchdog_s is not None:
            self._environment["WATCHDOG_USEC"] = str(round(watchdog_s * 2_000_000))
        self._on_ready = on_ready
        self._backoff = Backoff(random.random, RESTART_S, RESTART_S_MAX)  # grows while the process does not become ready
        self._starting: Deferred[None] = succeed(None)
        self._reading: Deferred[None] = succeed(None)
        self._stopped = False
        self._check: Any = None
        self._silent_checks = 0

    def start(self) -> None:
        """Start it, after a pause if it has ended before; again if it cannot be created, as without memory, until `stop`."""
        attempts = retrying(self._spawn, self._group.reactor, self._backoff, partial(self._group.cannot_start, self))
        self._starting = Deferred.fromCoroutine(attempts).addErrback(_cancelled)

    async def _spawn(self) -> None:
        if self._stopped:
            raise CancelledError
        environment = child_environment(**self._environment)
        environment.pop("WATCHDOG_PID", None)  # names this process
        command, descriptors = self._command, {0: "w", 1: 1, 2: 2}  # the output is that of this process
        self._group.reactor.spawnProcess(self, command[0], command, env=environment, path=None, childFDs=descriptors)

    def connectionMade(self) -> None:
        self.runs = True

    def stop(self, number: signal.Signals | None) -> None:
        """Send a signal, or end the standard input."""
        self._stopped = True
        self._starting.cancel()
        if not self.runs:
            return
        if number is None:
            self.transport.closeStdin()
        else:
            self.send(number)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, which must have been started."""
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess(number)

    def report(self, state: Mapping[str, str]) -> None:
        """What the process sends to its supervisor."""
        if "READY" in state:
            self._ready()
        if "WATCHDOG" in state and self.runs:
            self._silent_checks = 0
            if self._check is None:
                self._check_later()

    def _check_later(self) -> None:
        assert self._watchdog_s is not None
        self._check = self._group.reactor.callLater(self._watchdog_s * 2 / WATCHDOG_CHECKS, self._check_reports)

    def _check_reports(self) -> None:
        """Kill it if it does not report. Checks are counted: if this process was paused, reports wait to be received."""
        self._silent_checks += 1
        if self._silent_checks <= WATCHDOG_CHECKS:
            self._check_later()
            return
        self._check = None
        log.error("%s has not reported for its watchdog time: it is killed", self.name)
        self.send(signal.SIGKILL)

    def _ready(self) -> None:
        self._backoff.succeeded()
        self._reading.cancel()
        say = warning(log, f"the addresses of {self.name} cannot be read, retrying: %s", OSError)
        attempts = retrying(self._read, self._group.reactor, Backoff(random.random, RESTART_S, RESTART_S_MAX), say)
        self._reading = Deferred.fromCoroutine(attempts)
        self._reading.addCallbacks(lambda _: self._on_ready(), _cancelled).addErrback(self._group.ready_failed)

    async def _read(self) -> None:
        """Read what the process has written for this one; it exists before the process reports that it is ready."""
        if self._ready_file is not None:
            with open(self._ready_file, encoding="utf-8") as file:
                lines = file.read().split()
            self.addresses = [line for line in lines if not line.startswith("http")]
            self.metrics_url = next((line for line in lines if line.startswith("http")), None)
        self.is_ready = True

    def processEnded(self, reason: Failure) -> None:
        self._reading.cancel()
        self.runs = self.is_ready = False
        self._backoff.failed(self._group.reactor.seconds())
        self.metrics_url = None
        if self._check is not None:
            self._check.cancel()
            self._check = None
        value: Any = reason.value
        self.status = value.exitCode if value.exitCode is not None else FAILED
        self._group.ended(self, f"signal {value.signal}" if value.signal is not None else f"exit status {value.exitCode}")


def _cancelled(failure: Failure) -> None:
    failure.trap(CancelledError)


class _States(DatagramProtocol):
    """Receives the messages of sd_notify(3): lines of KEY=VALUE."""

    def __init__(self, report: Callable[[Mapping[str, str]], None]) -> None:
        self._report = report

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        lines = datagram.decode("utf-8", "replace").split("\n")
        self._report(dict(line.split("=", 1) for line in lines if "=" in line))
