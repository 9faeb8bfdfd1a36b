"""The broker's lifecycle phase, for health and readiness checks."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """The phases; numbers as in Kafka's BrokerState."""

    STARTING = 1
    LOADING = 2
    RUNNING = 3
    STOPPING = 6


_WHY_NOT_READY = {Phase.STARTING: "starting", Phase.LOADING: "loading logs", Phase.STOPPING: "stopping"}


class Status:
    """The `phase`, changed only by `service.py`, and why the broker is not ready."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.loading: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Number of loaded logs, and of all logs."""
        self.offline: Callable[[], str | None] = lambda: None
        """Why no partition can be served, if so."""
        self.outside: Callable[[], str | None] = lambda: None
        """Why this broker has no part in its cluster, if so."""
        self.problems: Callable[[], list[str]] = list
        """Why a part of the data cannot be served or written, a sentence each."""

    def why_not_ready(self) -> str | None:
        """Why clients are not served now; None if they are."""
        if self.phase is Phase.RUNNING:
            return self.why_not_healthy() or self.outside() or "; ".join(self.problems()) or None
        done, total = self.loading() if self.phase is Phase.LOADING else (0, 0)
        return f"loading logs {done} of {total}" if total else _WHY_NOT_READY[self.phase]

    def why_not_healthy(self) -> str | None:
        """Why waiting will not help; None if the broker is healthy."""
        return self.offline()
