"""Polls the sockets of all connections with its own epoll.

A reactor calls each descriptor through its logging context, which costs as much as reading a small request.

With Twisted's epoll reactor the poller waits in the reactor's place: it polls its sockets and the reactor's epoll, as one descriptor, and
lets the reactor serve its own descriptors when that one is ready. So a request costs one system call for waiting. With any other reactor
the poller is one of its descriptors, and polls again as long as sockets are ready.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.python.failure import Failure

from txbroker.transport.events import READ
from txbroker.transport.poller import Poller

# Polls before the reactor serves timers, workers and the rest.
ROUNDS_MAX = 4
EVENTS_MAX = 256


class EpollPoller(Poller):
    """See the module."""

    def __init__(self, reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """See `Poller`."""
        self._epoll = select.epoll()
        super().__init__(reactor, self._epoll, begin_turn, end_turn)

    def start(self) -> None:
        """Take the reactor's place in waiting, or let the reactor call `doRead` when a socket is ready."""
        reactor = self._reactor
        if isinstance(reactor, EPollReactor) and "doIteration" not in vars(reactor):  # else another poller has its place
            self._reactor_fd = reactor._poller.fileno()
            self._epoll.register(self._reactor_fd, READ)
            reactor.doIteration = self._iterate  # type: ignore[method-assign]
        else:
            reactor.addReader(self)

    def stop(self) -> None:
        """See `Poller`."""
        if self._epoll.closed:
            return
        if self._reactor_fd < 0:
            self._reactor.removeReader(self)
        else:
            del self._reactor.doIteration
        self._epoll.close()

    def _iterate(self, timeout_s: float | None) -> None:
        """Wait for sockets and for the reactor's own descriptors, and serve them (EPollReactor.doIteration)."""
        served = self._turn(-1 if timeout_s is None else timeout_s)
        for _ in range(ROUNDS_MAX - 1):
            if served < 2 or self._reactor_ready or self._epoll.closed:
                break
            served = self._turn(0)
        if self._reactor_ready:
            self._reactor_ready = False
            self._reactor.doPoll(0)

    # IReadDescriptor

    def fileno(self) -> int:
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        return "connections"

    def connectionLost(self, reason: Failure) -> None:
        """The reactor is stopping."""

    def doRead(self) -> None:
        """Serve the sockets that are ready, in at most ROUNDS_MAX turns."""
        for _ in range(ROUNDS_MAX):
            # The end of the last member may have stopped the poller.
            if self._epoll.closed or not self._turn(0):
                return

    def _turn(self, timeout_s: float) -> int:
        """Wait until sockets are ready, and serve them; returns how many there were."""
        events = self._epoll.poll(timeout_s, EVENTS_MAX)
        if not events:
            return 0
        self._serve_turn(events)
        return len(events)
