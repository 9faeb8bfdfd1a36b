"""Errors of Deferreds that no code has handled: Twisted logs them when the Deferred is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher


@contextmanager
def no_unhandled_errors() -> Iterator[None]:
    """Fail if the block leaves an error behind."""
    logged: list[str] = []

    def note(event: LogEvent) -> None:
        if event.get("log_level") is LogLevel.critical:
            logged.append(f"{formatEvent(event)} {event.get('log_failure')}")

    observer: Any = note  # an ILogObserver by what it does
    gc.collect()
    globalLogPublisher.addObserver(observer)
    try:
        yield
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(observer)
    assert not logged, logged
