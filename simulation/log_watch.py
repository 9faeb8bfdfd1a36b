"""Takes the log of all processes of a run, and Twisted's reports of unhandled errors, while it runs.

Twisted reports a failed Deferred when nothing refers to it any more. Most are in reference cycles, and are reported by `collect` only.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any

from twisted.logger import globalLogPublisher

from simulation.environment import Environment
from simulation.process import Killed


class LogWatch(logging.Handler):
    """A context manager. `log_line` is called with each line."""

    def __init__(self, environment: Environment, log_line: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._environment = environment
        self._log_line = log_line
        self._logger = logging.getLogger("txbroker")
        self._observer: Any = self._twisted
        self._ended = False
        self._before: tuple[int, bool, list[logging.Handler]] = (0, True, [])

    def __enter__(self) -> LogWatch:
        self._before = self._logger.level, self._logger.propagate, self._logger.handlers
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.handlers = [self]
        globalLogPublisher.addObserver(self._observer)
        gc.disable()  # what ended processes have left is not to be cleared away in the middle of a step
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        level, self._logger.propagate, self._logger.handlers = self._before
        self._logger.setLevel(level)
        globalLogPublisher.removeObserver(self._observer)
        gc.enable()

    def collect(self) -> None:
        """The run has ended: have Twisted report the failed Deferreds that are garbage."""
        self._ended = True
        if self._environment.violation is None:
            gc.collect()

    def emit(self, record: logging.LogRecord) -> None:
        if not self._ended:  # coroutines that are cleared away may log that they end
            self._log_line(record)

    def _twisted(self, event: dict[str, Any]) -> None:
        failure = event.get("log_failure")
        if failure is not None and not failure.check(Killed):
            self._environment.violate("I12", f"Twisted reports an unhandled error: {failure.getTraceback()}")
