"""Where a broker stands between its start and its end, for whoever asks whether clients are served."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """With the numbers of Kafka's BrokerState."""

    STARTING = 1
    LOADING = 2
    RUNNING = 3
    STOPPING = 6


_WHY_NOT_READY = {Phase.STARTING: "starting", Phase.LOADING: "loading logs", Phase.STOPPING: "stopping"}


class Status:
    """The `phase`, which only the broker's service changes."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.loading: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """How many logs are loaded, of how many."""
        self.offline: Callable[[], str | None] = lambda: None
        """Why no data can be served."""

    def why_not_ready(self) -> str | None:
        """Why clients are not served now."""
        if self.phase is Phase.RUNNING:
            return self.why_not_healthy()
        done, total = self.loading() if self.phase is Phase.LOADING else (0, 0)
        return f"loading logs {done} of {total}" if total else _WHY_NOT_READY[self.phase]

    def why_not_healthy(self) -> str | None:
        """Why it does not help to wait."""
        return self.offline()
