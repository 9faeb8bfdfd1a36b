"""A broker as a process. txbroker and Apache Kafka have the same interface, so that every test can run against either."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import PATIENCE_S

HOST = "127.0.0.1"
# The configuration of both brokers: fast rebalances and frequent background work.
COMMON_OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "1000",
}


class ServerFailed(Exception):
    """The process did not start, or ended unexpectedly; the message has the end of its log."""


class Server(ABC):
    """One broker process with its own data directory.

    After `start` it listens on `address`, and keeps that port after restarts. `overrides` are keys of server.properties.
    """

    kind: str  # "txbroker", or the Apache Kafka release
    start_timeout_s = PATIENCE_S
    stopped_status = 0  # the exit status after SIGTERM

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log_path = directory / "broker.log"
        self.overrides = {**COMMON_OVERRIDES, **(overrides or {})}
        self.host = HOST
        self.within: tuple[str, ...] = ()  # the beginning of the command line that starts the process on another host, see network.py
        self.port = 0
        self.paused = False
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it serves clients; ServerFailed with the end of the log if it does not."""
        assert not self.running
        command = [*self.within, *self._command()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory, env=self._environment())
        atexit.register(self.kill)
        deadline = time.monotonic() + self.start_timeout_s
        while not self._is_ready():
            if not self.running:
                raise ServerFailed(f"{self.kind} ended with {self._process.returncode} instead of starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.kind} was not ready after {self.start_timeout_s:.0f} s:\n{self.log_tail()}")
            time.sleep(0.01)

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        """SIGTERM, and the exit status; ServerFailed if the process does not end."""
        status = self._end(signal.SIGTERM, timeout_s)
        if status is None:
            self.kill()
            raise ServerFailed(f"{self.kind} did not stop within {timeout_s:.0f} s of SIGTERM:\n{self.log_tail()}")
        return status

    def kill(self) -> None:
        """SIGKILL."""
        atexit.unregister(self.kill)
        if self.running:
            self._end(signal.SIGKILL, PATIENCE_S)

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and does nothing. Call `resume` or `kill` after that."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def close(self) -> None:
        """End the process, and other processes that it needs."""
        self.kill()

    def restart(self) -> None:
        """Stop cleanly, and start with the same data and port."""
        self.stop()
        self.start()

    def log(self, start: int = 0) -> str:
        """The output of the process, from byte `start`."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def log_size(self) -> int:
        """Bytes of output so far, for a later `log(start)`."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_tail(self) -> str:
        """The end of the log, for a message."""
        return self.log()[-6000:]

    def partition_directory(self, topic: str, partition: int = 0) -> Path:
        """The directory of a partition."""
        return self.data / f"{topic}-{partition}"

    def _end(self, sent: signal.Signals, timeout_s: float) -> int | None:
        assert self._process is not None
        atexit.unregister(self.kill)
        self._process.send_signal(sent)
        self.paused = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line; called at each start."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the process serves clients yet."""

    def _environment(self) -> dict[str, str] | None:
        return None


_steps = itertools.count(random.randrange(1500))


def free_port() -> int:
    """A port that no process listens on, below the range from which outgoing connections take theirs.

    Processes of pytest that run side by side (pytest-xdist) take theirs from different ranges. One process gets each port once in 1500
    calls: the server that it was returned for may not listen yet.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    for _ in range(200):
        port = 20_000 + 1500 * worker + next(_steps) * 37 % 1500  # steps, as `--processes` takes the ports that follow
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port between 20000 and 32000")
