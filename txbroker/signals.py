"""Signals that end the process: the first one stops the service, a second Ctrl-C ends the process at once.

Twisted's own handlers stop the reactor again at each further signal, which logs an error when a supervisor repeats SIGTERM.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from txbroker.platform import system

log = logging.getLogger("txbroker")

INTERRUPTED = 130  # a shell's exit status for a command that was ended by Ctrl-C
LAST_LINE_S = 0.5


class StopSignals:
    """Calls `stop` in the reactor at the first signal that ends the process.

    `at_once`: what the log says about an end without `stop`. `reload`: called in the reactor at SIGHUP; False: SIGHUP ends the process.
    """

    def __init__(
        self,
        reactor: Any,
        stop: Callable[[], None],
        at_once: str = "logs will be recovered at the next start",
        reload: Callable[[], bool] = lambda: False,
    ) -> None:
        self._reactor = reactor
        self._stop = stop
        self._reload = reload
        self._at_once = at_once
        self._ending = False
        self._stopping = False

    def take(self) -> None:
        """Install the handler for each signal that is not ignored: nohup and shells ignore some of them."""
        for number in system.ending_signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        """Logs nothing: the thread may be writing a line to the same stream, which refuses a second writer."""
        if self._ending and number == signal.SIGINT:
            try:
                self._write_last_line()
            finally:
                os._exit(INTERRUPTED)
        self._ending = self._ending or number != system.reload_signal
        self._reactor.callFromThread(self._handle, number)

    def _write_last_line(self) -> None:
        """Another thread writes it, for a short time: the pipe of the log may be full, or its lock be held by a thread that waits for it.

        `threading.Thread.start` takes a lock that the interrupted thread may hold.
        """
        written: SimpleQueue[None] = SimpleQueue()

        def write() -> None:
            log.warning("SIGINT again: exiting at once; %s", self._at_once)
            written.put(None)

        _thread.start_new_thread(write, ())
        with contextlib.suppress(Empty):
            written.get(timeout=LAST_LINE_S)

    def _handle(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping:
            return
        if number == system.reload_signal and self._reload():
            log.info("%s: loading certificates again", name)
            return
        self._ending = self._stopping = True
        log.info("%s: stopping%s", name, " (Ctrl-C again ends the process at once)" if number == signal.SIGINT else "")
        self._stop()


class SignalledEvent:
    """An event that a signal handler may set, and one thread waits for.

    `threading.Event.set` takes a lock that the interrupted thread may hold, and would then wait for ever. `SimpleQueue.put` is reentrant.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._is_set = True
        self._queue.put(None)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Whether it is set, now or within this time."""
        if not self._is_set and timeout_s > 0:
            with contextlib.suppress(Empty):
                self._queue.get(timeout=timeout_s)
        return self._is_set
