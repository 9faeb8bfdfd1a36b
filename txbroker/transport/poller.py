"""Watches the sockets of all connections with an epoll of its own, which the reactor watches as one descriptor.

A reactor calls each descriptor through its logging context, which costs as much as reading a small request; and between two looks at
the sockets it looks at everything else. Here a connection is called straight away, and sockets are looked at again while they
have something.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

log = logging.getLogger("txbroker.transport")

# Looks at the sockets before timers, workers and the rest of the reactor have their turn.
ROUNDS_MAX = 4
EVENTS_MAX = 256

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Member(Protocol):
    """A connection. What it returns, if anything, is why it ends."""

    def fileno(self) -> int: ...

    def doRead(self) -> Exception | None: ...

    def doWrite(self) -> Exception | None: ...

    def connectionLost(self, reason: Failure) -> None: ...


class Poller:
    """A reader of `reactor` from `start` to `stop`."""

    def __init__(self, reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """`begin_turn` and `end_turn` are called around each turn: a look at the sockets, in which those that have something are served."""
        self._reactor = reactor
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._epoll = select.epoll()
        self._members: dict[int, Member] = {}
        self._wanted: dict[int, int] = {}

    def start(self) -> None:
        """Let the reactor look here."""
        self._reactor.addReader(self)

    def stop(self) -> None:
        """No member is left, and none will come. Nothing the second time."""
        if self._epoll.closed:
            return
        self._reactor.removeReader(self)
        self._epoll.close()

    # What a reactor asks of its readers

    def fileno(self) -> int:
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        return "connections"

    def connectionLost(self, reason: Failure) -> None:
        """The reactor is at its end."""

    def doRead(self) -> None:
        """Serve the sockets that have something, some times over."""
        members = self._members
        for _ in range(ROUNDS_MAX):
            # The last member's end may have stopped all.
            events = () if self._epoll.closed else self._epoll.poll(0, EVENTS_MAX)
            if not events:
                return
            self._begin_turn()
            for fd, event in events:
                member = members.get(fd)
                if member is not None:  # else another one's turn has ended it
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
            log.exception("closing a connection: a bug")
            why = error
        if why is not None:
            try:
                self.forget(member)
                member.connectionLost(Failure(why))
            except Exception:
                # The reactor would take the poller itself for broken, and look at no connection any more.
                log.exception("a connection did not end cleanly: a bug")

    # What members ask

    def want(self, member: Member, *, read: bool | None = None, write: bool | None = None) -> None:
        """Call the member when there is something to read, or room to write, or not any longer; None leaves it as it is."""
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
        """Call the member no more."""
        fd = member.fileno()
        if self._wanted.pop(fd, 0):
            del self._members[fd]
            self._epoll.unregister(fd)
