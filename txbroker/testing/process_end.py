"""Calls back when another process has ended, however it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

LOOK_S = 0.2


@implementer(IReadDescriptor)
class _Descriptor:
    """A descriptor of a process, which can be read when the process has ended (pidfd_open)."""

    def __init__(self, reactor: Any, descriptor: int, on_end: Callable[[], object]) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._on_end = on_end
        reactor.addReader(self)

    def fileno(self) -> int:
        """For the reactor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "process of the tests"

    def doRead(self) -> None:
        """The process has ended."""
        self._reactor.removeReader(self)
        self._on_end()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor has stopped."""


def watch_process(reactor: Any, pid: int, on_end: Callable[[], object]) -> None:
    """Call `on_end` once, when the process `pid` has ended; at once if there is none."""
    try:
        _Descriptor(reactor, os.pidfd_open(pid), on_end)
    except ProcessLookupError:
        on_end()
    except (AttributeError, OSError):  # a kernel before 5.3, or a sandbox that refuses the call
        _look(reactor, pid, on_end)


def _look(reactor: Any, pid: int, on_end: Callable[[], object]) -> None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        on_end()
        return
    except PermissionError:
        pass  # it runs as another user
    reactor.callLater(LOOK_S, _look, reactor, pid, on_end)
