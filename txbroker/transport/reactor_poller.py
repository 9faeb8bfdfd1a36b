"""Lets the reactor wait for the sockets of all connections: for systems without epoll. Each event is a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReadDescriptor, IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from txbroker.transport.events import GONE, READ, WRITE
from txbroker.transport.poller import Poller


class ReactorPoller(Poller):
    """See the module."""

    def __init__(self, reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        """See `Poller`."""
        super().__init__(reactor, _Descriptors(reactor, self._happened), begin_turn, end_turn)

    def start(self) -> None:
        """See `Poller`: the reactor has the descriptors already."""

    def stop(self) -> None:
        """See `Poller`."""
        self._interest.close()

    def _happened(self, fd: int, event: int) -> None:
        if event == GONE or self._wanted.get(fd, 0) & event:  # else another event of the same moment has changed it
            self._serve_turn([(fd, event)])


class _Descriptors:
    """The descriptors that wait, as the reactor has them (`Interest`)."""

    def __init__(self, reactor: Any, happened: Callable[[int, int], None]) -> None:
        self.closed = False
        self._reactor = reactor
        self._happened = happened
        self._by_fd: dict[int, _Descriptor] = {}

    def register(self, fd: int, eventmask: int) -> None:
        self._by_fd[fd] = _Descriptor(fd, self._happened)
        self.modify(fd, eventmask)

    def modify(self, fd: int, eventmask: int) -> None:
        descriptor, reactor = self._by_fd[fd], self._reactor
        (reactor.addReader if eventmask & READ else reactor.removeReader)(descriptor)
        (reactor.addWriter if eventmask & WRITE else reactor.removeWriter)(descriptor)

    def unregister(self, fd: int) -> None:
        self.modify(fd, 0)
        del self._by_fd[fd]

    def close(self) -> None:
        self.closed = True


@implementer(IReadDescriptor, IWriteDescriptor)
class _Descriptor:
    def __init__(self, fd: int, happened: Callable[[int, int], None]) -> None:
        self._fd = fd
        self._happened = happened

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "connections"

    def doRead(self) -> None:
        self._happened(self._fd, READ)

    def doWrite(self) -> None:
        self._happened(self._fd, WRITE)

    def connectionLost(self, reason: Failure) -> None:
        """The peer is gone, or the reactor is stopping. The reactor has removed it."""
        self._happened(self._fd, GONE)
