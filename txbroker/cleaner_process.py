"""The worker processes of the log cleaner: `python -m txbroker.log.cleaner.worker`, one for each running pass, with pipes of JSON lines.

A process starts with its first job and takes one job after the other. It ends after a minute without a job, and whenever its standard
input ends: with the broker, however that ends. A process that reports nothing for too long during a job is killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from txbroker.child_processes import child_environment, module_command
from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    Done,
    Event,
    Failed,
    FailureKind,
    LastRecord,
    event_from_json,
    producer_lines,
    to_json,
)
from txbroker.maintenance.cleaning_pass import CRASHED, HUNG, WorkerLost
from txbroker.platform import system

IDLE_S = 60.0
LINE_BYTES_MAX = 256 << 20
LAST_OUTPUT_BYTES = 2000
# The watchdog counts checks without output. After the whole machine was suspended, one check comes at once, and not all of them.
WATCHDOG_CHECKS = 4
KILL_S = 10.0  # how long a process may take to end after SIGKILL
STOP = b"stop\n"

log = logging.getLogger("txbroker.cleaner")

# A pass allocates and frees arrays of some megabytes all the time: returning the memory to the system in between costs a tenth of its time.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}

OnEvent = Callable[[Event | WorkerLost], None]


_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def worker_command() -> list[str]:
    """The command that starts a worker."""
    return module_command("txbroker.log.cleaner.worker", system.name)


class CleanerProcesses:
    """The `Workers` of a broker. `started`: how many processes were started."""

    def __init__(self, reactor: Any, command: Sequence[str] | None = None, *, idle_s: float = IDLE_S) -> None:
        self.started = 0
        self._reactor = reactor
        self._command = list(command or worker_command())
        self._idle_s = idle_s
        self._processes: list[_Process] = []

    def run(self, job: CleaningJob, producers: Iterator[LastRecord], on_event: OnEvent, *, timeout_s: float) -> JobRun:
        """Give a job to an idle process, or to a new one."""
        process = next((process for process in self._processes if process.idle), None)
        if process is not None:
            return process.take(job, producers, on_event, timeout_s)
        process = _Process(self._reactor, self._idle_s, self._processes.remove)
        run = JobRun(process, on_event)
        if self.stuck:  # each one holds memory, and a new one would wait for the same device
            self._refuse(on_event, f"{self.stuck} workers hang and cannot be killed: check the disks")
            return run
        run = process.take(job, producers, on_event, timeout_s)
        try:
            self._reactor.spawnProcess(process, self._command[0], self._command, env=child_environment(**_ONE_THREAD, **_MALLOC), path=None)
        except OSError as error:
            process.abandon()
            self._refuse(on_event, f"cannot start a worker process: {error.strerror or error}")
            return run
        self._processes.append(process)
        self.started += 1
        return run

    def _refuse(self, on_event: OnEvent, reason: str) -> None:
        self._reactor.callLater(0, on_event, Failed(kind=FailureKind.RESOURCES, reason=reason))

    def close(self) -> None:
        """Kill all processes. The next start removes their unfinished files."""
        for process in list(self._processes):
            process.kill()

    @property
    def stuck(self) -> int:
        """Processes that hung and have not ended since they were killed."""
        return sum(process.stuck for process in self._processes)


class JobRun:
    """A job in a process."""

    def __init__(self, process: _Process, on_event: OnEvent) -> None:
        self.on_event = on_event
        self._process = process

    def stop(self) -> None:
        self._process.stop(self)


class _Process(ProcessProtocol):
    """One process. Twisted calls it in the reactor's thread. `stuck`: it hung and has not ended since it was killed."""

    transport: Any = None

    def __init__(self, reactor: Any, idle_s: float, on_end: Callable[[_Process], None]) -> None:
        self.stuck = False
        self._reactor = reactor
        self._idle_s = idle_s
        self._on_end = on_end
        self._run: JobRun | None = None
        self._unsent = b""  # until the process is started
        self._received = bytearray()
        self._last_output = b""
        self._timer: Any = None  # while idle: for its end; during a job: the watchdog; after a kill: for the process' end
        self._timeout_s = 0.0
        self._silent_checks = 0
        self._closing = False
        self._failure = ""  # why the process was killed during a job
        self._failure_kind = CRASHED

    @property
    def idle(self) -> bool:
        return self._run is None and not (self._closing or self._failure)

    def take(self, job: CleaningJob, producers: Iterator[LastRecord], on_event: OnEvent, timeout_s: float) -> JobRun:
        """Begin a job; the process must be idle."""
        run = self._run = JobRun(self, on_event)
        self._timeout_s = timeout_s
        self._silent_checks = 0
        self._call_later(timeout_s / WATCHDOG_CHECKS, self._check_progress)
        self._send_job(run, producer_lines(producers), job)
        return run

    def _send_job(self, run: JobRun, producers: Iterator[str], job: CleaningJob) -> None:
        """Send one line of producers in each turn, then the job."""
        if run is not self._run or self._failure:
            return
        self._silent_checks = 0
        line = next(producers, None)
        if line is not None:
            self._send(line.encode() + b"\n")
            self._reactor.callLater(0, self._send_job, run, producers, job)
        else:
            self._send(to_json(job).encode() + b"\n")

    def abandon(self) -> None:
        """The process could not be started."""
        self._cancel_timer()
        self._run = None

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._reactor.callLater(delay_s, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, data: bytes) -> None:
        if self.transport is None:
            self._unsent += data
        else:
            self.transport.write(data)

    def stop(self, run: JobRun) -> None:
        if run is self._run:
            self._send(STOP)

    def kill(self) -> None:
        """End the process at once; nothing more is reported."""
        self._closing = True
        self._run = None
        self._cancel_timer()
        self._signal_kill()

    def _signal_kill(self) -> None:
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")

    def connectionMade(self) -> None:
        unsent, self._unsent = self._unsent, b""
        self.transport.write(unsent)

    # What the process reports

    def outReceived(self, data: bytes) -> None:
        self._silent_checks = 0
        self._received += data
        if b"\n" not in data:
            if len(self._received) > LINE_BYTES_MAX:
                self._fail(f"it sent a line of more than {LINE_BYTES_MAX} bytes")
            return
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._line(bytes(line))

    def _line(self, line: bytes) -> None:
        run = self._run
        if run is None or self._failure:
            return
        try:
            event = event_from_json(line.decode())
        except (ValueError, KeyError, TypeError) as error:
            self._fail(f"it sent a line that is not an event: {error!r}")
            return
        if isinstance(event, Done | Failed):
            self._run = None
            self._call_later(self._idle_s, self._retire)
        try:
            run.on_event(event)
        except Exception:
            log.exception("internal error handling an event of a worker of the log cleaner")
            self._run = run
            self._fail("internal error handling its events")

    def errReceived(self, data: bytes) -> None:
        self._last_output = (self._last_output + data)[-LAST_OUTPUT_BYTES:]
        log.warning("log cleaner worker: %s", data.decode(errors="replace").rstrip())

    # How the process ends

    def _check_progress(self) -> None:
        """The watchdog. A worker reports each chunk that it reads, and reports all the time while it is throttled."""
        self._timer = None
        if self._run is None or self._failure:
            return
        self._silent_checks += 1
        if self._silent_checks <= WATCHDOG_CHECKS:
            self._call_later(self._timeout_s / WATCHDOG_CHECKS, self._check_progress)
            return
        self._fail(f"it reported no progress for {self._timeout_s:g} s (txbroker.log.cleaner.worker.timeout.ms) and was killed", HUNG)

    def _fail(self, why: str, kind: str = CRASHED) -> None:
        """Kill the process. Its remaining output is ignored: the last event of its job must be that the worker was lost."""
        self._failure, self._failure_kind = why, kind
        self._call_later(KILL_S, self._not_ended)
        self._signal_kill()

    def _not_ended(self) -> None:
        self._timer = None
        self.stuck = True
        pid = self.transport.pid if self.transport is not None else None
        log.error("log cleaner worker %s does not end after SIGKILL: it waits for a device or a network file system", pid)
        self._report_lost(f"{self._failure}; the process does not end")

    def _retire(self) -> None:
        """The process was idle for too long."""
        self._timer = None
        self._closing = True
        self.transport.closeStdin()

    def processEnded(self, reason: Failure) -> None:
        self._on_end(self)
        self._cancel_timer()
        ended = self._failure or _describe_end(reason.value, self._last_output)
        if self._run is not None:
            self._report_lost(ended)
        elif not (self._closing or self._failure):
            log.warning("an idle worker of the log cleaner ended: %s", ended)

    def _report_lost(self, reason: str) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.on_event(WorkerLost(self._failure_kind, reason))


def _describe_end(ended: Any, last_output: bytes) -> str:
    """The exit status or signal of a process, and the last line of its output."""
    how = f"the process was killed by signal {ended.signal}" if ended.signal is not None else f"the process exited with {ended.exitCode}"
    lines = last_output.decode(errors="replace").strip().splitlines()
    return f"{how}: {lines[-1]}" if lines else how
