"""Failed appends with acks=0: the end of the connection reports them to the client, and the log names the reason.

A client that appends to a full disk connects again at once. Therefore the failure of a log directory is logged once a minute, and not for
each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from txbroker.errors import BrokerError
from txbroker.repeated_lines import RepeatedLines

log = logging.getLogger("txbroker.api")


class Unanswered(BrokerError):
    """A request failed, and has no response that can carry the error. `is_logged`: the log has the reason already."""

    def __init__(self, error: BrokerError, *, is_logged: bool) -> None:
        super().__init__(error.code, error.message)
        self.is_logged = is_logged


class UnansweredAppends:
    """The failures of log directories. `monotonic_s`: the time."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._lines = RepeatedLines(monotonic_s)

    def failed(self, error: BrokerError, directory: str) -> Unanswered:
        """The error to raise. `directory`: the log directory that failed; "" for an error that is not one of storage."""
        if not directory:
            return Unanswered(error, is_logged=False)
        left_out = self._lines.left_out(directory)
        if left_out is not None:
            more = f" ({left_out} more since the last line)" if left_out else ""
            log.warning("appends with acks=0 to log directory %s fail, and their connections are closed: %s%s", directory, error, more)
        return Unanswered(error, is_logged=True)
