"""`txbroker run --processes` as a process, with its children."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from tests.support.broker import BrokerProcess
from tests.support.server import HOST

PROCESSES = 2


class Processes(BrokerProcess):
    """Brokers of one machine. `address` is that of the first one."""

    count = PROCESSES

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None, *, watchdog_s: int | None = None) -> None:
        """`watchdog_s`: systemd's WatchdogSec, whose messages are not received."""
        super().__init__(directory, overrides)
        self._watchdog_s = watchdog_s

    def _environment(self) -> dict[str, str]:
        watched = {} if self._watchdog_s is None else {"WATCHDOG_USEC": str(self._watchdog_s * 1_000_000)}
        return {**super()._environment(), **watched}

    def _command(self) -> list[str]:
        return [*super()._command(), "--processes", str(self.count)]

    def addresses(self) -> str:
        """The addresses of all brokers, comma-separated."""
        return ",".join(f"{HOST}:{self.port + number}" for number in range(self.count))

    def second(self) -> str:
        """The address of the second broker."""
        return f"{HOST}:{self.port + 1}"

    def child(self, what: str) -> int:
        """The process id of the child with this text in its command; 0 if there is none."""
        for pid in self.children():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if what in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    return pid
        return 0

    def children(self) -> list[int]:
        """The process ids of all children."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
