"""What the processes have in common that a broker, or `txbroker run --processes`, starts with this Python."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

INPUT = 0


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-P", "-m", module, *arguments]  # -P: import nothing from the working directory


def child_environment(**more: str) -> dict[str, str]:
    """The environment in which a process imports the package that this process has imported."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **more}


def remove_temporary(directory: str) -> None:
    """Remove the sockets and ready files of the processes of `--processes`, and their directory, as far as they are still there."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(("metadata", "notify.", "ready.")):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


@implementer(IReadDescriptor)
class InputEnd:
    """Calls back when the standard input ends: a pipe, whose other end the process has that has started this one."""

    def __init__(self, reactor: Any, on_end: Callable[[], object]) -> None:
        self._reactor = reactor
        self._on_end = on_end
        self._has_ended = False
        reactor.addReader(self)

    def fileno(self) -> int:
        """The standard input."""
        return INPUT

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "standard input"

    def doRead(self) -> None:
        """Ignore what arrives."""
        if not os.read(INPUT, 1024):
            self._reactor.removeReader(self)
            self._end()

    def connectionLost(self, reason: Failure) -> None:
        """The other end is closed, or the reactor has stopped."""
        self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._on_end()
