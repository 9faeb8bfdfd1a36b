"""Failed appends with acks=0: the end of the connection reports them to the client, and the log names the reason.

A client that appends to a full disk connects again at once. Therefore the failure of a log directory is logged once a minute, and not for
each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from txbroker.errors import BrokerError

log = logging.getLogger("txbroker.api")

LOGGED_EVERY_S = 60.0


class Unanswered(BrokerError):
    """A request failed, and has no response that can carry the error. `is_logged`: the log has the reason already."""

    def __init__(self, error: BrokerError, *, is_logged: bool) -> None:
        super().__init__(error.code, error.message)
        self.is_logged = is_logged


class UnansweredAppends:
    """When the failure of each log directory was last logged (`monotonic_s`), and how many there were since."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._logged: dict[str, tuple[float, int]] = {}

    def failed(self, error: BrokerError, directory: str) -> Unanswered:
        """The error to raise. `directory`: the log directory that failed; "" for an error that is not one of storage."""
        if not directory:
            return Unanswered(error, is_logged=False)
        now_s = self._monotonic_s()
        last_s, since = self._logged.get(directory, (now_s - LOGGED_EVERY_S, 0))
        if now_s - last_s < LOGGED_EVERY_S:
            self._logged[directory] = last_s, since + 1
        else:
            more = f" ({since} more since the last line)" if since else ""
            log.warning("appends with acks=0 to log directory %s fail, and their connections are closed: %s%s", directory, error, more)
            self._logged[directory] = now_s, 0
        return Unanswered(error, is_logged=True)
