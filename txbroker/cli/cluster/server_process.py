"""One server process of a cluster, with its directory and its log."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from txbroker.console.failures import CommandFailed, warn

LOG_TAIL_LINES = 15


class ServerProcess:
    """A process whose output is appended to `log`. `name` is for messages."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; CommandFailed when the program cannot be started. Ctrl-C in the terminal does not reach it."""
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                                 start_new_session=True)
            except OSError as error:
                raise CommandFailed(f"{self.name} cannot be started: {self._command[0]}: {error.strerror}; install it, "
                                    "on Debian default-jre-headless for java") from error

    @property
    def status(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of a started process."""
        assert self._process is not None
        return self._process.pid

    def terminate(self) -> None:
        """SIGTERM; SIGCONT first, because a paused process does not see it."""
        if self.running:
            self._send(signal.SIGCONT, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.running:
            self._send(signal.SIGKILL)
            assert self._process is not None
            self._process.wait()

    def failure(self) -> CommandFailed:
        """The error of a process that ended by itself; prints the end of its log."""
        for line in self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]:
            warn(line)
        return CommandFailed(f"{self.name} {ended(self.status)}; correct what the end of its log names ({self.log})")

    def _send(self, *signals: signal.Signals) -> None:
        assert self._process is not None
        for each in signals:
            self._process.send_signal(each)


def ended(status: int | None) -> str:
    """How a process ended, for people."""
    return "has not started" if status is None else f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
