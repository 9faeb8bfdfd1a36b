"""The process of one broker for tests: it starts on a free port, and ends with the process that has started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from txbroker.testing.errors import KitError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOOK_S = 0.005
LOCK = "lock"  # a file that the session of a test run keeps locked
BROKER = "txbroker.testing.server"
PACKAGE = Path(__file__).parent.parent.parent
GUARD = Path(__file__).with_name("pause_guard.py")
_REFUSAL = "txbroker: "
_TAIL_BYTES = 6000
# What a broker in operation advises, and what to do here.
_ADVICE = {
    "choose another log.dirs": "specify another directory with data=",
    "choose another directory for log.dirs": "specify another directory with data=",
    "use --processes ": "use brokers=",
}


class BrokerProcess:
    """One broker, with its files in `directory`: `data`, `ready`, `control` and `broker.log`.

    The broker stops when the process `stop_with` has ended, and then removes the directory if `remove` is set.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        stop_with: int,
        *,
        remove: bool,
        module: str = BROKER,
        arguments: Sequence[str] = (),
        log_path: Path | None = None,
    ) -> None:
        """`module`: the main program, with `arguments` beside the usual ones. `log_path`: of a log that several processes share.

        `control_url` is empty until clients are served.
        """
        self.directory = directory
        self.log_path = log_path or directory / "broker.log"
        self.addresses: list[str] = []
        self.control_url = ""
        self._module = module
        self._arguments = arguments
        self._settings = settings
        self._stop_with = stop_with
        self._remove = remove
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None  # while it is paused

    @property
    def address(self) -> str:
        """That of the first listener, once it has started."""
        return self.addresses[0]

    @property
    def pid(self) -> int:
        """The process id; KitError if the process has not been started."""
        if self._process is None:
            raise KitError("the broker has not been started: use it in a with statement, or call start()")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether it runs, and `pause` has stopped it."""
        return self._guard is not None and self.running

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until it serves clients; KitError with the reason if it does not."""
        self._end_guard()  # the process before this one may have ended by itself
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        self.control_url = ""  # that of the process before this one
        start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            # Ctrl-C on the terminal is for the tests, which still need the broker while they end.
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=_environment(),
                start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + timeout_s
        try:
            while not ready.exists():
                if not self.running:
                    raise KitError(f"the broker did not start: {self._reason(start)}")
                if time.monotonic() > deadline_s:
                    raise KitError(f"the broker was not ready after {timeout_s:g} s; its log ends with:\n{self.log_tail()}")
                time.sleep(LOOK_S)
        except BaseException:
            self.kill()
            raise
        self.addresses = ready.read_text(encoding="utf-8").split()
        self.control_url = (self.directory / "control").read_text(encoding="utf-8")

    def stop(self) -> None:
        """Stop it cleanly; without effect if it does not run."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            self.resume()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._end_guard()

    def pause(self) -> None:
        """SIGSTOP; returns when the process has stopped. It goes on, and stops cleanly, if `stop_with` ends meanwhile."""
        if not hasattr(signal, "SIGSTOP"):
            raise KitError("this system cannot pause a process: use refuse(), or a rule with hold() or blackhole()")
        if self._guard is None:
            command = [sys.executable, "-I", "-S", str(GUARD), str(self._stop_with), str(self.pid)]
            null = subprocess.DEVNULL
            self._guard = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on if it is paused; it handles no other signal meanwhile."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
        self._end_guard()

    def kill(self) -> None:
        """SIGKILL, as kill -9 or a crash; what was acknowledged remains in the log directory."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()
        self._end_guard()

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            self._guard = None

    def detach(self) -> None:
        """Leave the process to the one that it stops with: this one may end before."""
        assert self._process is not None
        self._process.returncode = 0  # subprocess then neither waits for it nor warns of it

    def log_tail(self, start: int = 0) -> str:
        """The end of the log, of what was written after byte `start`."""
        return log_text(self.log_path, start)[-_TAIL_BYTES:]

    def _command(self) -> list[str]:
        command = [sys.executable, "-P", "-m", self._module, *self._arguments]
        command += ["--control", "--directory", str(self.directory), "--stop-with", str(self._stop_with)]
        if self._remove:
            command.append("--remove")
        for key, value in self._settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def _reason(self, start: int) -> str:
        """Why the process has ended, in one line if it has said so."""
        refusals = [line.removeprefix(_REFUSAL) for line in self.log_tail(start).splitlines() if line.startswith(_REFUSAL)]
        if not refusals:
            return f"its process has ended; its log ends with:\n{self.log_tail(start)}"
        reason = "; ".join(dict.fromkeys(refusals))
        for advice, of_kit in _ADVICE.items():
            reason = reason.replace(advice, of_kit)
        return reason


def log_text(path: Path, start: int = 0) -> str:
    """The log from byte `start` on."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")
    return ""


def _environment() -> dict[str, str]:
    """The environment in which a process imports this package. It may write compiled modules: without them a start takes twice as long."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")}
    path = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path}
