"""Polls the sockets of all connections with its own epoll, and calls the connections directly.

A reactor calls each descriptor through its logging context, which costs as much as reading a small request.

With Twisted's epoll reactor the poller waits in the reactor's place: it polls its sockets and the reactor's epoll, as one descriptor, and
lets the reactor serve its own descriptors when that one is ready. So a request costs one system call for waiting. With any other reactor
the poller is one of its descriptors, and polls again as long as sockets are ready.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

log = logging.getLogger("txbroker.transport")

# Polls before the reactor serves timers, workers and the rest.
ROUNDS_MAX = 4
EVENTS_MAX = 256

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Member(Protocol):
    """A connection. It returns the reason if it is to be closed."""

    def fileno(self) -> int: ...

    def doRead(self) -> Exception | None: ...

    def doWrite(self) -> Exception | None: ...

    def connectionLost(self, reason: Failure) -> None: ...


class Poller:
    """Serves its members from `start` to `stop`, while `reactor` runs."""

    def __init__(self, reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """`begin_turn` and `end_turn` are called around each turn, which serves the sockets that one poll has returned."""
        self._reactor = reactor
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._epoll = select.epoll()
        self._members: dict[int, Member] = {}
        self._wanted: dict[int, int] = {}
        self._reactor_fd = -1  # the reactor's epoll, if the poller waits in the reactor's place
        self._reactor_ready = False

    def start(self) -> None:
        """Take the reactor's place in waiting, or let the reactor call `doRead` when a socket is ready."""
        reactor = self._reactor
        if isinstance(reactor, EPollReactor) and "doIteration" not in vars(reactor):  # else another poller has its place
            self._reactor_fd = reactor._poller.fileno()
            self._epoll.register(self._reactor_fd, _READ)
            reactor.doIteration = self._iterate  # type: ignore[method-assign]
        else:
            reactor.addReader(self)

    def stop(self) -> None:
        """After the last member has left. Does nothing the second time."""
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

    def _serve_turn(self, events: Sequence[tuple[int, int]]) -> None:
        members = self._members
        self._begin_turn()
        for fd, event in events:
            member = members.get(fd)
            if member is None:
                if fd == self._reactor_fd:
                    self._reactor_ready = True
                continue  # or it was closed while another one was served
            try:
                why = member.doRead() if event == _READ else self._serve(member, event)
            except Exception as error:
                log.exception("internal error: closing a connection")
                why = error
            if why is not None:
                self._close(member, why)
        self._end_turn()

    def _serve(self, member: Member, event: int) -> Exception | None:
        """Serve a socket that is not only readable."""
        if event & _READ:
            why = member.doRead()
            return member.doWrite() if event & _WRITE and why is None and member.fileno() in self._members else why
        if event & _GONE:
            return CONNECTION_DONE if self._wanted.get(member.fileno(), 0) & _READ else CONNECTION_LOST
        return member.doWrite()

    def _close(self, member: Member, why: Exception) -> None:
        try:
            self.forget(member)
            member.connectionLost(Failure(why))
        except Exception:
            # The reactor would remove the poller itself, and with it all connections.
            log.exception("internal error while a connection was closed")

    # For members

    def set_interest(self, member: Member, *, read: bool | None = None, write: bool | None = None) -> None:
        """Call the member, or call it no more, when its socket can be read or written; None: unchanged."""
        fd = member.fileno()
        if fd < 0:
            return
        before = self._wanted.get(fd, 0)
        wanted = before
        if read is not None:
            wanted = wanted | _READ if read else wanted & ~_READ
        if write is not None:
            wanted = wanted | _WRITE if write else wanted & ~_WRITE
        if wanted == before:
            return
        if not wanted:
            self.forget(member)
            return
        self._wanted[fd] = wanted
        if before:
            self._epoll.modify(fd, wanted)
        else:
            self._members[fd] = member
            self._epoll.register(fd, wanted)

    def read_again(self, member: Member) -> None:
        """Call `doRead` soon, as if the socket could be read, if the member then still wants to read: received bytes are kept where the
        system does not see them."""
        self._reactor.callLater(0, self._read_kept, member, member.fileno())

    def _read_kept(self, member: Member, fd: int) -> None:
        if self._members.get(fd) is member and self._wanted[fd] & _READ:
            self._serve_turn([(fd, _READ)])

    def forget(self, member: Member) -> None:
        """Do not call the member any more."""
        fd = member.fileno()
        if self._wanted.pop(fd, 0):
            del self._members[fd]
            self._epoll.unregister(fd)
