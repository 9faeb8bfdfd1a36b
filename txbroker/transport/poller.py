"""Polls the sockets of all connections with its own epoll, which is one descriptor for the reactor.

A reactor calls each descriptor through its logging context, which costs as much as reading a small request, and it checks timers and other
sources after each poll. The poller calls connections directly, and polls again as long as sockets are ready.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from typing import Any, Protocol

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
    """A reader of `reactor` from `start` to `stop`."""

    def __init__(self, reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """`begin_turn` and `end_turn` are called around each turn, in which the sockets that one poll has returned are served."""
        self._reactor = reactor
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._epoll = select.epoll()
        self._members: dict[int, Member] = {}
        self._wanted: dict[int, int] = {}

    def start(self) -> None:
        """Let the reactor call `doRead` when a socket is ready."""
        self._reactor.addReader(self)

    def stop(self) -> None:
        """After the last member has left. Does nothing the second time."""
        if self._epoll.closed:
            return
        self._reactor.removeReader(self)
        self._epoll.close()

    # IReadDescriptor

    def fileno(self) -> int:
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        return "connections"

    def connectionLost(self, reason: Failure) -> None:
        """The reactor is stopping."""

    def doRead(self) -> None:
        """Serve the sockets that are ready, in at most ROUNDS_MAX turns."""
        members = self._members
        for _ in range(ROUNDS_MAX):
            # The end of the last member may have stopped the poller.
            events = () if self._epoll.closed else self._epoll.poll(0, EVENTS_MAX)
            if not events:
                return
            self._begin_turn()
            for fd, event in events:
                member = members.get(fd)
                if member is not None:  # else it was closed while another one was served
                    self._serve(member, event)
            self._end_turn()

    def _serve(self, member: Member, event: int) -> None:
        why: Exception | None = None
        try:
            if event & _READ:
                why = member.doRead()
            elif event & _GONE:
                why = CONNECTION_DONE if self._wanted.get(member.fileno(), 0) & _READ else CONNECTION_LOST
            if event & _WRITE and why is None and member.fileno() in self._members:
                why = member.doWrite()
        except Exception as error:
            log.exception("internal error: closing a connection")
            why = error
        if why is not None:
            try:
                self.forget(member)
                member.connectionLost(Failure(why))
            except Exception:
                # The reactor would remove the poller itself, and with it all connections.
                log.exception("internal error while a connection was closed")

    # For members

    def want(self, member: Member, *, read: bool | None = None, write: bool | None = None) -> None:
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

    def forget(self, member: Member) -> None:
        """Do not call the member any more."""
        fd = member.fileno()
        if self._wanted.pop(fd, 0):
            del self._members[fd]
            self._epoll.unregister(fd)
