"""The cleaner's workers as processes: `python -m txbroker.log.cleaner.worker`, one for each pass at a time, which speaks lines of JSON.

A process begins with the first job, serves job after job, and ends when it was idle for a minute, with the broker's stop, or when the
broker is gone in any other way: its standard input ends then.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from txbroker.log.cleaner.cleaning_job import CleaningJob, Done, Event, Failed, FailureKind, event_from_json, to_json
from txbroker.maintenance.cleaning_pass import Crashed

IDLE_S = 60.0
LINE_BYTES_MAX = 256 << 20
LAST_WORDS_BYTES = 2000
STOP = b"stop\n"

log = logging.getLogger("txbroker.cleaner")


# A pass makes and drops arrays of some megabytes all the time: memory that goes back to the system between them costs a tenth of its time.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}


def worker_command() -> list[str]:
    """How a worker of this Python is started."""
    return [sys.executable, "-P", "-m", "txbroker.log.cleaner.worker"]  # -P: not from what lies in the working directory


def _environment() -> dict[str, str]:
    """This package, wherever it was imported from and whatever the working directory is now; no more threads than one."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **_MALLOC}


class CleanerProcesses:
    """The `Workers` of a broker. `started` counts the processes."""

    def __init__(self, reactor: Any, command: Sequence[str] | None = None, *, idle_s: float = IDLE_S) -> None:
        self.started = 0
        self._reactor = reactor
        self._command = list(command or worker_command())
        self._idle_s = idle_s
        self._processes: list[_Process] = []

    def run(self, job: CleaningJob, on_event: Callable[[Event | Crashed], None]) -> JobRun:
        """Give a job to an idle process, or to a new one."""
        process = next((process for process in self._processes if process.idle), None)
        if process is None:
            process = _Process(self._reactor, self._idle_s, self._processes.remove)
            run = process.take(job, on_event)
            try:
                self._reactor.spawnProcess(process, self._command[0], self._command, env=_environment(), path=None)
            except OSError as error:
                reason = f"no process can be started: {error.strerror or error}"
                self._reactor.callLater(0, on_event, Failed(kind=FailureKind.RESOURCES, reason=reason))
                return run
            self._processes.append(process)
            self.started += 1
            return run
        return process.take(job, on_event)

    def close(self) -> None:
        """Kill all: what they leave unfinished is removed at the next start."""
        for process in list(self._processes):
            process.kill()

    @property
    def pids(self) -> list[int]:
        """Of those that are alive."""
        return [process.transport.pid for process in self._processes if process.transport is not None]


class JobRun:
    """A job in a process."""

    def __init__(self, process: _Process, on_event: Callable[[Event | Crashed], None]) -> None:
        self.on_event = on_event
        self._process = process

    def stop(self) -> None:
        self._process.stop(self)


class _Process(ProcessProtocol):
    """One process. Twisted calls it in the reactor's thread."""

    transport: Any = None

    def __init__(self, reactor: Any, idle_s: float, ended: Callable[[_Process], None]) -> None:
        self._reactor = reactor
        self._idle_s = idle_s
        self._ended = ended
        self._run: JobRun | None = None
        self._unsent = b""  # before there is a process to send it to
        self._received = bytearray()
        self._last_words = b""
        self._timer: Any = None
        self._closing = False
        self._failed = False

    @property
    def idle(self) -> bool:
        return self._run is None and not (self._closing or self._failed)

    def take(self, job: CleaningJob, on_event: Callable[[Event | Crashed], None]) -> JobRun:
        """Carry out a job; the process must be idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._run = JobRun(self, on_event)
        self._send(to_json(job).encode() + b"\n")
        return self._run

    def _send(self, data: bytes) -> None:
        if self.transport is None:
            self._unsent += data
        else:
            self.transport.write(data)

    def stop(self, run: JobRun) -> None:
        if run is self._run:
            self._send(STOP)

    def kill(self) -> None:
        """End it at once, without a word to anybody."""
        self._closing = True
        self._run = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")

    def connectionMade(self) -> None:
        unsent, self._unsent = self._unsent, b""
        self.transport.write(unsent)

    def outReceived(self, data: bytes) -> None:
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
        if run is None or self._failed:
            return
        try:
            event = event_from_json(line.decode())
        except (ValueError, KeyError, TypeError) as error:
            self._fail(f"it sent something that is no event: {error!r}")
            return
        if isinstance(event, Done | Failed):
            self._run = None
            self._timer = self._reactor.callLater(self._idle_s, self._retire)
        try:
            run.on_event(event)
        except Exception:
            log.exception("an event of a cleaner's worker could not be taken")
            self._run = run
            self._fail("its events could not be taken")

    def _fail(self, why: str) -> None:
        """It cannot be gone on with: as if it had died. What it has still sent is not taken: its last word must be that it crashed."""
        self._failed = True
        self._last_words = why.encode()
        if self.transport.pid is not None:
            self.transport.signalProcess("KILL")

    def errReceived(self, data: bytes) -> None:
        self._last_words = (self._last_words + data)[-LAST_WORDS_BYTES:]
        log.warning("a cleaner's worker: %s", data.decode(errors="replace").rstrip())

    def _retire(self) -> None:
        """It had nothing to do for long."""
        self._timer = None
        self._closing = True
        self.transport.closeStdin()

    def processEnded(self, reason: Failure) -> None:
        self._ended(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        run, self._run = self._run, None
        if run is not None:
            run.on_event(Crashed(_how(reason.value, self._last_words)))
        elif not self._closing:
            log.warning("an idle worker of the cleaner ended: %s", _how(reason.value, self._last_words))


def _how(ended: Any, last_words: bytes) -> str:
    """How a process ended, and what it said last."""
    how = f"its process was killed by signal {ended.signal}" if ended.signal is not None else f"its process ended with {ended.exitCode}"
    lines = last_words.decode(errors="replace").strip().splitlines()
    return f"{how}: {lines[-1]}" if lines else how
