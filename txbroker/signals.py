"""Signals that end the process: the first one stops the service, a second Ctrl-C ends the process at once.

Twisted's own handlers stop the reactor once more at each further signal, which is an error of theirs; a supervisor that repeats SIGTERM is
no reason for one.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("txbroker")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130  # the shell's exit status of a command that Ctrl-C ended


class StopSignals:
    """Calls `stop`, which must be safe in a signal handler, at the first signal that ends the process."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._stopping = False

    def take(self) -> None:
        """Become the handler of all that are not ignored, as nohup and shells' background jobs have them."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._stopping:
            self._stopping = True
            log.info("%s: stopping%s", name, " (Ctrl-C again ends the process at once)" if number == signal.SIGINT else "")
            self._stop()
        elif number == signal.SIGINT:
            log.warning("SIGINT again: ending at once; logs are recovered at the next start")
            os._exit(INTERRUPTED)
