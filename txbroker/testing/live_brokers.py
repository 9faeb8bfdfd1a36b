"""The brokers that this process has started and not ended yet, for the report of a failing test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

started: list[Any] = []  # of the class `Kafka`
before_failed_end: list[Callable[[Any], object]] = []  # called with a broker that is about to end because of an exception


def ends(kafka: Any) -> None:
    """A broker is about to end."""
    if kafka in started:
        started.remove(kafka)
        if sys.exc_info()[0] is not None:
            for call in before_failed_end:
                call(kafka)
