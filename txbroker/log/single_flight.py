"""Work in the background of which one run serves all who asked for it meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.log_results import Later


class SingleFlight:
    """A job that runs in a worker, once at a time. Requests that come while it runs become one more run.

    `prepare` is called where requests come from, and returns the work, or None when there is nothing to do.
    """

    def __init__(self, later: Later, prepare: Callable[[], Callable[[], None] | None]) -> None:
        self._later = later
        self._prepare = prepare
        self._busy = False
        self._again = False

    def request(self) -> None:
        """Have it run, with all that is so at this moment."""
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
