"""Failed logins: counted, and logged once a minute for each address, as most clients repeat them for ever."""

from __future__ import annotations

import logging
from collections import Counter

from txbroker.clock import Clock
from txbroker.repeated_lines import RepeatedLines
from txbroker.security.sasl_exchange import Cause, LoginFailed

log = logging.getLogger("txbroker.security")


class FailedLogins:
    """Of all listeners. `counts`: by listener, mechanism and cause; the mechanism is empty before a client has named an enabled one."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[tuple[str, str, Cause]] = Counter()
        self._lines = RepeatedLines(clock.seconds)

    def failed(self, peer_host: str, listener: str, mechanism: str, who: str, failure: LoginFailed) -> None:
        """A client could not log in. `who`: the client, for the log."""
        self.counts[listener, mechanism, failure.cause] += 1
        left_out = self._lines.left_out(peer_host)
        if left_out is None:
            log.debug("failed authentication of %s on listener %s: %s", who, listener, failure.reason)
            return
        before = f"; {left_out} more from this address since the last line about it" if left_out else ""
        log.warning("failed authentication of %s on listener %s: %s%s", who, listener, failure.reason, before)
