"""Waiting for what another process will do: a condition is checked until it holds, and no test sleeps for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# How long a test waits for anything. It only says when a test has failed, and is far above what a loaded machine needs.
PATIENCE_S = 120.0


def until(condition: Callable[[], T], what: str, *, timeout_s: float = PATIENCE_S, every_s: float = 0.02) -> T:
    """The first true value of `condition`; AssertionError that names `what` when it does not come in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s:.0f} s still not: {what} (last value: {value!r})")
        time.sleep(every_s)
