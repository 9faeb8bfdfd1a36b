"""Failed logins: counted, and logged once a minute for each address, as most clients repeat them for ever."""

from __future__ import annotations

import logging
from collections import Counter

from txbroker.clock import Clock

log = logging.getLogger("txbroker.security")

LOGGED_EVERY_S = 60.0
# Addresses that are remembered; beyond this many the oldest is forgotten, and logged again.
ADDRESSES_MAX = 1000


class FailedLogins:
    """Of all listeners. `counts`: by listener and mechanism; the mechanism is empty before a client has named an enabled one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logged: dict[str, list[float]] = {}  # by address: when it was logged last, and how often it failed since then

    def failed(self, peer_host: str, listener: str, mechanism: str, who: str, reason: str) -> None:
        """A client could not log in. `who`: the client, for the log."""
        self.counts[listener, mechanism] += 1
        now_s = self._clock.seconds()
        state = self._logged.get(peer_host)
        if state is not None and now_s < state[0] + LOGGED_EVERY_S:
            state[1] += 1
            log.debug("failed authentication of %s on listener %s: %s", who, listener, reason)
            return
        before = f"; {int(state[1])} more from this address since the last line about it" if state is not None and state[1] else ""
        log.warning("failed authentication of %s on listener %s: %s%s", who, listener, reason, before)
        self._logged.pop(peer_host, None)
        if len(self._logged) >= ADDRESSES_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[peer_host] = [now_s, 0]
