"""Starts the process that ends this broker's ZooKeeper session when the broker is killed (`cluster/tree/session_guard.py`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from txbroker.child_processes import child_environment, module_command
from txbroker.cluster.tree.zookeeper_tls import TlsSettings

RESTART_S = 1.0
# The guard reads its input, and writes where the broker writes.
_DESCRIPTORS = {0: "w", 1: 1, 2: 2}

log = logging.getLogger("txbroker.zookeeper")


def guard_command() -> list[str]:
    """The command that starts the process."""
    return module_command("txbroker.cluster.tree.session_guard")


class SessionGuard:
    """One broker's. The process starts with the first session, and starts again if it ends before the broker does."""

    def __init__(self, reactor: Any, command: Sequence[str] | None = None) -> None:
        self._reactor = reactor
        self._command = list(command or guard_command())
        self._line = b""
        self._process: _Process | None = None
        self._timer: Any = None

    def guard(self, servers: str, timeout_ms: int, session: int, password: bytes, tls: TlsSettings | None) -> None:
        """End this session, and no earlier one, when this process ends. `servers` have no chroot."""
        fields = {"servers": servers, "timeout_ms": timeout_ms, "session": session, "password": password.hex(), "tls": tls}
        self._line = json.dumps(fields).encode() + b"\n"
        if self._process is None:
            self._start()
        else:
            self._process.send(self._line)

    def release(self) -> None:
        """The session is closed: end the process."""
        self._line = b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._process is not None:
            self._process.release()

    def _start(self) -> None:
        self._timer = None
        process = _Process(self._ended)
        try:
            self._reactor.spawnProcess(
                process, self._command[0], self._command, env=child_environment(), path=None, childFDs=_DESCRIPTORS
            )
        except OSError as error:
            log.warning("the process that ends the ZooKeeper session of a killed broker cannot start: %s", error.strerror or error)
            self._again()
            return
        self._process = process  # connected: Twisted starts processes at once
        process.send(self._line)

    def _ended(self, why: str) -> None:
        self._process = None
        if self._line:
            log.warning("the process that ends the ZooKeeper session of a killed broker has ended (%s); restarting it", why)
            self._again()

    def _again(self) -> None:
        self._timer = self._reactor.callLater(RESTART_S, self._start)


class _Process(ProcessProtocol):
    """Twisted calls it in the reactor's thread."""

    transport: Any = None

    def __init__(self, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end

    def send(self, line: bytes) -> None:
        self.transport.write(line)

    def release(self) -> None:
        self.send(b"null\n")
        self.transport.closeStdin()

    def processEnded(self, reason: Failure) -> None:
        self._on_end(str(reason.value).rstrip("."))
