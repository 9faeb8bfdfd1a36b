"""Failed logins: counted, answered late, and logged once a minute for each address, as most clients repeat them for ever."""

from __future__ import annotations

import logging
from collections import Counter

from txbroker.clock import Clock
from txbroker.repeated_lines import RepeatedLines
from txbroker.security.sasl_exchange import Cause, LoginFailed

log = logging.getLogger("txbroker.security")

# Answers to failed logins of all clients, as many clients with wrong passwords would use the CPU for their handshakes. Each of more clients
# waits longer, up to DELAY_S_MAX, which is less than their time-outs.
ANSWERS_PER_S = 100
BURST_S = 1.0  # so many at once are not delayed more than each alone
DELAY_S_MAX = 5.0


class FailedLogins:
    """Of all listeners. `counts`: by listener, mechanism and cause; the mechanism is empty before a client has named an enabled one."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[tuple[str, str, Cause]] = Counter()
        self._clock = clock
        self._paid_s = 0.0  # until when the failures so far use up the rate of answers
        self._lines = RepeatedLines(clock.seconds)

    def delay_s(self, least_s: float) -> float:
        """How long the answer to a client that has failed must wait: at least this long, longer if there are many."""
        now_s = self._clock.seconds()
        self._paid_s = min(max(self._paid_s, now_s) + 1 / ANSWERS_PER_S, now_s + BURST_S + DELAY_S_MAX)
        return max(least_s, self._paid_s - now_s - BURST_S)

    def failed(self, peer_host: str, listener: str, mechanism: str, who: str, failure: LoginFailed) -> None:
        """A client could not log in. `who`: the client, for the log."""
        self.counts[listener, mechanism, failure.cause] += 1
        left_out = self._lines.left_out(peer_host)
        if left_out is None:
            log.debug("failed authentication of %s on listener %s: %s", who, listener, failure.reason)
            return
        before = f"; {left_out} more from this address since the last line about it" if left_out else ""
        log.warning("failed authentication of %s on listener %s: %s%s", who, listener, failure.reason, before)
