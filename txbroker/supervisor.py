"""Notifies systemd of the process's state (sd_notify), for units with Type=notify.

Nothing is sent without NOTIFY_SOCKET in the environment. Messages are datagrams, of which the supervisor's socket holds a few
(net.unix.max_dgram_qlen). While it is full, READY and STOPPING are repeated, and other messages are dropped: these come again, or are not
needed. A message that cannot be sent for another reason is dropped: the broker does not depend on its supervisor.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("txbroker")

# A start or stop may take longer than the unit's timeout: each message extends it by this time.
EXTENSION_S = 60
EXTEND_EVERY_S = 15

REPEAT_S = 0.1  # while the supervisor's socket is full


class Supervisor:
    """The connection to systemd, if any. `status` may be called in any thread, the other methods in the reactor's.

    `watchdog_s`: half of the watchdog timeout; None if no watchdog messages are expected from this process.
    """

    def __init__(self, reactor: Any, environment: Mapping[str, str], pid: int) -> None:
        self._reactor = reactor
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog_s(environment, pid)
        self._socket: socket.socket | None = None
        self._timer: Any = None
        self._is_ready = False
        self._unsent = ""  # READY or STOPPING, for which the supervisor's socket was full
        self._repeat: Any = None

    def starting(self) -> None:
        """The process has started; from now on the start timeout is extended."""
        if self._address is None:
            return
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        except OSError as error:
            log.warning("sd_notify is not available: %s", error)
            return
        self._tick()

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={' '.join(text.split())}")

    def ready(self, text: str) -> None:
        """Clients are served."""
        self._is_ready = True
        self._change(f"READY=1\nSTATUS={text}")
        self._again()

    def stopping(self) -> None:
        """The process is stopping; the stop timeout is extended."""
        self._is_ready = False
        self._change("STOPPING=1\nSTATUS=stopping")
        self._again()

    def stopped(self) -> None:
        """Send nothing more."""
        for timer in (self._timer, self._repeat):
            if timer is not None:
                timer.cancel()
        self._timer = self._repeat = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _change(self, message: str) -> None:
        """Send this message as soon as the socket takes it; it replaces an earlier one that was not sent."""
        self._unsent = message
        if self._repeat is None:
            self._send_change()

    def _send_change(self) -> None:
        self._repeat = None if self._send(self._unsent) else self._reactor.callLater(REPEAT_S, self._send_change)

    def _again(self) -> None:
        """Restart the periodic messages, as their content has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._tick()

    def _tick(self) -> None:
        self._timer = None
        if not self._is_ready:
            self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}")
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")
        elif self._is_ready:
            return
        self._timer = self._reactor.callLater(min(EXTEND_EVERY_S, self.watchdog_s or EXTEND_EVERY_S), self._tick)

    def _send(self, message: str) -> bool:
        """False if the supervisor's socket is full."""
        if self._socket is None or self._address is None:
            return True
        try:
            self._socket.sendto(message.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            log.debug("cannot send %r to the supervisor: %s", message, error)
        return True


def _address(text: str) -> str | None:
    """A path, or `@` and a name in the abstract namespace; None for anything else, and on Windows."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _watchdog_s(environment: Mapping[str, str], pid: int) -> float | None:
    """Half of the watchdog timeout; None if systemd expects no watchdog messages from this process."""
    text = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid) or not text.isdecimal() or int(text) == 0:
        return None
    return int(text) / 2_000_000


def supervisor(reactor: Any) -> Supervisor:
    """The supervisor of this process."""
    return Supervisor(reactor, os.environ, os.getpid())
