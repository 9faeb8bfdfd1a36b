"""Waiting for what another process will do: a condition that is asked again and again, never a bare sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, *, timeout_s: float = 30.0, every_s: float = 0.02) -> T:
    """The first true value of `condition`; AssertionError that names `what` when it does not come in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s:.0f} s still not: {what} (last seen: {value!r})")
        time.sleep(every_s)
