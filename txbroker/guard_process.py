"""Starts the process that ends this broker's ZooKeeper session when the broker is killed (`cluster/tree/session_guard.py`)."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.child_processes import child_environment, module_command
from txbroker.retrying import retrying, warning

if TYPE_CHECKING:
    from txbroker.cluster.tree.zookeeper_security import ZooKeeperSecurity

RESTART_S, RESTART_S_MAX = 1.0, 10.0
# The guard reads its input, and writes where the broker writes.
_DESCRIPTORS = {0: "w", 1: 1, 2: 2}

log = logging.getLogger("txbroker.zookeeper")


def guard_command() -> list[str]:
    """The command that starts the process."""
    return module_command("txbroker.cluster.tree.session_guard")


class SessionGuard:
    """One broker's. The process starts with the first session, and starts again if it ends before the broker does."""

    def __init__(self, reactor: Any, command: Sequence[str] | None = None, chance: Callable[[], float] = random.random) -> None:
        """`chance` returns numbers from 0 to 1."""
        self._reactor = reactor
        self._command = list(command or guard_command())
        self._backoff = Backoff(chance, RESTART_S, RESTART_S_MAX)
        self._begun_s = 0.0  # when the process was started
        self._line = b""
        self._process: _Process | None = None
        self._starting: Deferred[None] | None = None

    def guard(self, servers: str, timeout_ms: int, session: int, password: bytes, security: ZooKeeperSecurity) -> None:
        """End this session, and no earlier one, when this process ends. `servers` have no chroot."""
        fields = {"servers": servers, "timeout_ms": timeout_ms, "session": session, "password": password.hex(), "security": security}
        self._line = json.dumps(fields).encode() + b"\n"
        if self._process is not None:
            self._process.send(self._line)
        elif self._starting is None:
            self._start()

    def release(self) -> None:
        """The session is closed: end the process."""
        self._line = b""
        if self._starting is not None:
            self._starting.cancel()
        if self._process is not None:
            self._process.release()

    def _start(self) -> None:
        say = warning(log, "the process that ends the ZooKeeper session of a killed broker cannot start, retrying: %s", OSError)
        starting = self._starting = Deferred.fromCoroutine(retrying(self._spawn, self._reactor, self._backoff, say))
        starting.addErrback(lambda failure: failure.trap(CancelledError)).addBoth(self._started)

    async def _spawn(self) -> None:
        process = _Process(self._ended)
        command = self._command
        self._reactor.spawnProcess(process, command[0], command, env=child_environment(), path=None, childFDs=_DESCRIPTORS)
        self._process = process  # connected: Twisted starts processes at once
        self._begun_s = self._reactor.seconds()
        process.send(self._line)

    def _started(self, _: object) -> None:
        self._starting = None

    def _ended(self, why: str) -> None:
        self._process = None
        now_s = self._reactor.seconds()
        if now_s - self._begun_s > RESTART_S_MAX:
            self._backoff.succeeded()
        self._backoff.failed(now_s)
        if self._line:
            log.warning("the process that ends the ZooKeeper session of a killed broker has ended (%s); restarting it", why)
            self._start()


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
