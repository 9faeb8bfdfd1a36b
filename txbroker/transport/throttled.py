"""Connections of addresses that connect too fast (`client_quotas/connection_rates.py`): accepted, silent, and closed after a delay."""

from __future__ import annotations

import socket

from txbroker.clock import Clock, DelayedCall

# At the same time; more are closed at once. They use descriptors that others need.
THROTTLED_MAX = 1000


class ThrottledConnections:
    """Those of one reactor. They are not read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[socket.socket, DelayedCall] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, sock: socket.socket, delay_s: float) -> None:
        """Close it after the delay."""
        if len(self._open) < THROTTLED_MAX:
            self._open[sock] = self._clock.callLater(delay_s, self._close, sock)
        else:
            sock.close()

    def _close(self, sock: socket.socket) -> None:
        del self._open[sock]
        sock.close()

    def stop(self) -> None:
        """Close all of them."""
        while self._open:
            sock, call = self._open.popitem()
            call.cancel()
            sock.close()
