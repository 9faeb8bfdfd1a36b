"""The limits of connections: in total, per address, and by file descriptors, some of which are reserved for logs, without which the broker
cannot serve any client."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable

from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.names import amount
from txbroker.platform import system
from txbroker.transport.limits import Limits

# Reserved for segments and indexes: this part of all descriptors of the process (RLIMIT_NOFILE), but at least RESERVED_MIN, or half of
# them if there are fewer than twice as many.
RESERVED_PART = 4
RESERVED_MIN = 256


class Descriptors:
    """Computes how many descriptors are left for connections."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: of all descriptors of the process; None for that of the system (RLIMIT_NOFILE)."""
        if limit is None:
            limit = system.file_limit()
        reserved = max(limit // RESERVED_PART, min(RESERVED_MIN, limit // 2))
        self._end = limit if limit == sys.maxsize else limit - reserved

    def room(self) -> int:
        """How many more may be opened now: those above the lowest free descriptor count as free."""
        try:
            lowest_free = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            return 0
        os.close(lowest_free)
        return max(self._end - lowest_free, 0)


class ConnectionQuotas:
    """Counts connections for max.connections, max.connections.per.ip and max.connections.per.ip.overrides.

    As in Kafka, no more connections are accepted at the total limit, and a connection above the limit of its address is closed at once.
    `accepted` and `refused` count connections since the start; `waits_for_connections` and `waits_for_descriptors` count how often
    accepting had to wait.
    """

    def __init__(self, limits: Limits, descriptors: Callable[[], int] = lambda: sys.maxsize) -> None:
        """`descriptors` returns how many file descriptors connections may still use."""
        self._limits = limits
        self.rates: ConnectionRates | None = None
        """How fast connections may be made; None: as fast as they come."""
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

    def change(self, limits: Limits) -> None:
        """Change the limits. Existing connections above a limit stay."""
        self._limits = limits
        self.check_room()

    @property
    def room(self) -> int:
        """How many more connections may be accepted now."""
        return min(max(self._limits.connections_max - self.count, 0), self._descriptors())

    def when_room(self, call: Callable[[], None]) -> None:
        """Call it once, as soon as a connection can be accepted again."""
        if self.count >= self._limits.connections_max:
            self.waits_for_connections += 1
        else:
            self.waits_for_descriptors += 1
        self._waiting.append(call)
        self._waited = True

    def allows(self, ip: str) -> bool:
        """Whether one more connection from this address is allowed; counts the refused ones."""
        if self._by_ip[ip] < self._limits.connections_per_ip_overrides.get(ip, self._limits.connections_per_ip_max):
            return True
        self._refused[ip] += 1
        self.refused += 1
        return False

    def add(self, ip: str) -> None:
        """A connection from this address was accepted."""
        self.count += 1
        self.accepted += 1
        self._by_ip[ip] += 1

    def replaced(self, ip: str) -> None:
        """A connection from this address was counted twice, as its TLS handshake and then as itself."""
        self.count -= 1
        self.accepted -= 1
        self._by_ip[ip] -= 1

    def remove(self, ip: str) -> None:
        """A connection from this address was closed."""
        self.count -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        self.check_room()

    def check_room(self) -> None:
        """Let waiting listeners accept if there is room: not only closed connections make room."""
        if self._waiting and self.room:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def report(self, log: logging.Logger) -> None:
        """Log the refused connections since the last report, one line per address, and whether accepting had to wait."""
        for ip, count in self._refused.items():
            log.warning("refused %s from %s: the limit is max.connections.per.ip", amount(count, "connection"), ip)
        self._refused.clear()
        if self._waited:
            self._waited = bool(self._waiting)
            log.warning("no more connections are accepted: %d are open; raise max.connections or the limit of open files", self.count)
