"""How many connections there may be, in all and from one address."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping


class ConnectionQuotas:
    """Counts connections against max.connections, and max.connections.per.ip with its overrides by address.

    As in Kafka, accepting waits while there are too many in all, and what is too many from one address is closed at once.
    `accepted` and `refused` count connections since the start; `waits_for_...` how often accepting had to wait, and for what.
    """

    def __init__(
        self,
        connections_max: int,
        per_ip_max: int,
        overrides: Mapping[str, int],
        descriptors: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        """`descriptors` tells how many file descriptors connections may still take."""
        self._connections_max = connections_max
        self._per_ip_max = per_ip_max
        self._overrides = overrides
        self._by_ip: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._descriptors = descriptors
        self._waiting: list[Callable[[], None]] = []
        self._waited = False  # since the last report
        self.count = 0
        self.accepted = 0
        self.refused = 0
        self.waits_for_connections = 0
        self.waits_for_descriptors = 0

    def change(self, connections_max: int, per_ip_max: int, overrides: Mapping[str, int]) -> None:
        """Other limits from now on. Connections that are too many now stay."""
        self._connections_max = connections_max
        self._per_ip_max = per_ip_max
        self._overrides = overrides
        self.look_again()

    @property
    def room(self) -> int:
        """How many connections more may be accepted now."""
        return min(max(self._connections_max - self.count, 0), self._descriptors())

    def when_room(self, call: Callable[[], None]) -> None:
        """Call it once, as soon as there is room again."""
        if self.count >= self._connections_max:
            self.waits_for_connections += 1
        else:
            self.waits_for_descriptors += 1
        self._waiting.append(call)
        self._waited = True

    def allows(self, ip: str) -> bool:
        """Whether one more connection from this address may stay; counts those that may not."""
        if self._by_ip[ip] < self._overrides.get(ip, self._per_ip_max):
            return True
        self._refused[ip] += 1
        self.refused += 1
        return False

    def add(self, ip: str) -> None:
        """A connection from this address was made."""
        self.count += 1
        self.accepted += 1
        self._by_ip[ip] += 1

    def remove(self, ip: str) -> None:
        """A connection from this address is gone."""
        self.count -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        self.look_again()

    def look_again(self) -> None:
        """Connections are not all that may have made room."""
        if self._waiting and self.room:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def report(self, log: logging.Logger) -> None:
        """Log what was refused since the last report, one line an address, and whether connections had to wait."""
        for ip, count in self._refused.items():
            log.warning("refused %d connections from %s: it has max.connections.per.ip of them already", count, ip)
        self._refused.clear()
        if self._waited:
            self._waited = bool(self._waiting)
            log.warning("accepting waits: %d connections are what max.connections, or the limit of open files, has room for", self.count)
