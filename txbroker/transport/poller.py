"""Serves the sockets of all connections, and calls the connections directly. How it waits for them is in the modules of its two kinds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

from txbroker.transport.events import GONE, READ, WRITE

log = logging.getLogger("txbroker.transport")


class Member(Protocol):
    """A connection. It returns the reason if it is to be closed."""

    def fileno(self) -> int: ...

    def doRead(self) -> Exception | None: ...

    def doWrite(self) -> Exception | None: ...

    def connectionLost(self, reason: Failure) -> None: ...


class Interest(Protocol):
    """Where descriptors are registered with the events that they wait for; the methods are those of `select.epoll`."""

    @property
    def closed(self) -> bool: ...

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def close(self) -> None: ...


class Poller(ABC):
    """Serves its members from `start` to `stop`, while `reactor` runs."""

    def __init__(self, reactor: Any, interest: Interest, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """`begin_turn` and `end_turn` are called around each turn, which serves the sockets that are ready at the same time."""
        self._reactor = reactor
        self._interest = interest
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._members: dict[int, Member] = {}
        self._wanted: dict[int, int] = {}
        self._reactor_fd = -1  # a descriptor of the reactor that is polled with the members'
        self._reactor_ready = False

    @abstractmethod
    def start(self) -> None:
        """Begin to serve members."""

    @abstractmethod
    def stop(self) -> None:
        """After the last member has left. Does nothing the second time."""

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
                why = member.doRead() if event == READ else self._serve(member, event)
            except Exception as error:
                log.exception("internal error: closing a connection")
                why = error
            if why is not None:
                self._close(member, why)
        self._end_turn()

    def _serve(self, member: Member, event: int) -> Exception | None:
        """Serve a socket that is not only readable."""
        if event & READ:
            why = member.doRead()
            return member.doWrite() if event & WRITE and why is None and member.fileno() in self._members else why
        if event & GONE:
            return CONNECTION_DONE if self._wanted.get(member.fileno(), 0) & READ else CONNECTION_LOST
        return member.doWrite()

    def _close(self, member: Member, why: Exception) -> None:
        try:
            self.forget(member)
            member.connectionLost(Failure(why))
        except Exception:
            # The reactor would remove the poller, and with it all connections.
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
            wanted = wanted | READ if read else wanted & ~READ
        if write is not None:
            wanted = wanted | WRITE if write else wanted & ~WRITE
        if wanted == before:
            return
        if not wanted:
            self.forget(member)
            return
        self._wanted[fd] = wanted
        if before:
            self._interest.modify(fd, wanted)
        else:
            self._members[fd] = member
            self._interest.register(fd, wanted)

    def read_again(self, member: Member) -> None:
        """Call `doRead` soon, as if the socket could be read, if the member then still wants to read: received bytes are kept where the
        system does not see them."""
        self._reactor.callLater(0, self._read_kept, member, member.fileno())

    def _read_kept(self, member: Member, fd: int) -> None:
        if self._members.get(fd) is member and self._wanted[fd] & READ:
            self._serve_turn([(fd, READ)])

    def forget(self, member: Member) -> None:
        """Do not call the member any more."""
        fd = member.fileno()
        if self._wanted.pop(fd, 0):
            del self._members[fd]
            self._interest.unregister(fd)
