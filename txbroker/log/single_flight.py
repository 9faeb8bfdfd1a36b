"""Background work of which one run serves all requests that came before it began."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.log_results import Later


class SingleFlight:
    """A job that runs in a worker, one run at a time. Requests during a run cause one more run.

    `prepare` is called in the thread of the requests, and returns the work, or None when there is nothing to do.
    """

    def __init__(self, later: Later, prepare: Callable[[], Callable[[], None] | None]) -> None:
        self._later = later
        self._prepare = prepare
        self._busy = False
        self._again = False

    def request(self) -> None:
        """Request a run with the current state."""
        if self._busy:
            self._again = True
            return
        work = self._prepare()
        if work is not None:
            self._busy = True
            self._later(0, work, self._finished)

    def _finished(self) -> None:
        self._busy = False
        if self._again:
            self._again = False
            self.request()
