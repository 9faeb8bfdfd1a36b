"""Connections whose clients have not logged in: how many an address may have, how long they last, and how many bytes they may send.

A login is a TLS handshake, a login by SASL, or both one after the other, with one deadline from the connection on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from txbroker.clock import Clock
from txbroker.transport.limits import Limits

# All bytes of a login by SASL, in parts of the largest one.
PARTS_MAX = 2

Refused = Callable[[str, str], None]


def _nothing() -> None:
    pass


class LoginRefused(ConnectionError):
    """A connection that has to end; it is counted and logged."""


class Login:
    """Of one connection. `received`: bytes. `expired` is called at the deadline; it closes the connection."""

    __slots__ = ("_bytes_max", "_call", "_logins", "expired", "host", "received", "refused")

    def __init__(self, logins: Logins, host: str, expired: Callable[[], None]) -> None:
        self.host = host
        self.received = 0
        self.expired = expired
        self.refused: Refused | None = None
        self._bytes_max = 0
        self._logins = logins
        self._call = logins.clock.callLater(logins.limits.login_ms_max / 1000, lambda: self.expired())

    def limit(self, bytes_max: int, refused: Refused) -> None:
        """What `read` may receive from now on. `refused` is called with the reason and a text if it is more."""
        self._bytes_max = self.received + bytes_max
        self.refused = refused

    def read(self, read_into: Callable[[memoryview], int], buffer: memoryview) -> int:
        """Receive, in place of `read_into` of the stream; LoginRefused."""
        count = read_into(buffer)
        self.received += count
        if self.received > self._bytes_max:
            if self.refused is not None:
                self.refused("login_too_large", f"its login is longer than {self._bytes_max} bytes (sasl.server.max.receive.size)")
            raise LoginRefused
        return count

    def end(self) -> None:
        """The client has logged in, or its connection is closed."""
        if self._call.active():
            self._call.cancel()
        self._logins.ended(self)
        self.expired, self.refused = _nothing, None  # they refer to the connection


class Logins:
    """Those of one reactor."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self.clock = clock
        self.limits = limits
        self._by_host: Counter[str] = Counter()
        self._open: set[Login] = set()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, host: str, expired: Callable[[], None]) -> Login:
        """A connection from this address has been accepted on a listener with TLS or SASL."""
        login = Login(self, host, expired)
        self._open.add(login)
        self._by_host[host] += 1
        return login

    def too_many(self, host: str) -> str | None:
        """Why the last connection of this address is one too many; None if it is not."""
        limit = self.limits.logins_per_ip_max
        if self._by_host[host] <= limit:
            return None
        return f"{limit} connections from its address have not logged in (txbroker.login.connections.per.ip)"

    def ended(self, login: Login) -> None:
        """See `Login.end`."""
        if login in self._open:
            self._open.remove(login)
            self._by_host[login.host] -= 1
            if not self._by_host[login.host]:
                del self._by_host[login.host]
