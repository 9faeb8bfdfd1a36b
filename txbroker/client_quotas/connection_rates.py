"""How fast connections may be made (KIP-612, Kafka's ConnectionQuotas): from one address, at one listener, and at the broker.

A rate is averaged over `quota.window.num` samples of `quota.window.size.seconds`, and a delay lasts one sample at most. A connection of an
address that is too fast is accepted, gets no answer, and is closed after the delay; it counts for no rate. At a listener, or a broker,
whose rate is exceeded, the next connection is accepted after the delay. The listener between brokers is exempt from the limit of the
broker if there are others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address

from txbroker.client_quotas.entities import decoded
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.sampled_sum import SampledSum
from txbroker.config.keys import INT_MAX

log = logging.getLogger("txbroker.clients")

IP_RATE = "connection_creation_rate"  # connections a second
NO_LIMIT = INT_MAX

# Rates of addresses that are kept: those that connected last.
RATES_MAX = 5000


class ConnectionRates:
    """`throttled`: the connections of addresses that were too fast. `delayed`: how often accepting had to wait."""

    def __init__(self, monotonic_s: Callable[[], float], *, sample_count: int = 11, sample_s: float = 1.0) -> None:
        self._monotonic_s = monotonic_s
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._by_ip: dict[str, int] = {}
        self._default: int | None = None
        self._broker_limit = NO_LIMIT
        self._listener_limits: Mapping[str, int] = {}
        self._protected: str | None = None
        self._ips: dict[str, SampledSum] = {}  # the least recently used first
        self._broker = self._new_rate()
        self._listeners: dict[str, SampledSum] = {}
        self.throttled = 0
        self.delayed = 0

    def configure(self, node: Entity, properties: Mapping[str, str]) -> None:
        """The configuration of an address, or of the default of all, has changed. A malformed limit is logged and counts as missing."""
        limit = _parsed(node, properties.get(IP_RATE))
        name = decoded(node.name)
        if name is None:
            self._default = limit
        elif (ip := address(name)) is None:
            log.error("ignoring the quotas of %s: it is not an address, and names of hosts are not resolved", node.entity_path)
        elif limit is None:
            self._by_ip.pop(ip, None)
        else:
            self._by_ip[ip] = limit
        if not self._by_ip and self._default is None:
            self._ips.clear()

    def limit(self, broker: int, listeners: Mapping[str, int], protected: str | None) -> None:
        """Set the limits of the broker and of listeners, by name; NO_LIMIT for none. `protected` is exempt from that of the broker."""
        self._broker_limit, self._listener_limits, self._protected = broker, listeners, protected

    def accepting(self, listener: str) -> float:
        """A connection is about to be accepted: the seconds that it must wait."""
        now_s = self._monotonic_s()
        delay_s = 0.0
        if listener != self._protected and self._broker_limit != NO_LIMIT:
            delay_s = self._record(self._broker, self._broker_limit, now_s)
        limit = self._listener_limits.get(listener, NO_LIMIT)
        if limit != NO_LIMIT:
            rate = self._listeners.get(listener) or self._listeners.setdefault(listener, self._new_rate())
            delay_s = max(delay_s, self._record(rate, limit, now_s))
        if delay_s:
            self.delayed += 1
        return delay_s

    def not_accepted(self, listener: str) -> None:
        """The connection for which `accepting` was called does not count."""
        now_s = self._monotonic_s()
        if listener != self._protected and self._broker_limit != NO_LIMIT:
            self._broker.record(-1, now_s)
        if listener in self._listeners and self._listener_limits.get(listener, NO_LIMIT) != NO_LIMIT:
            self._listeners[listener].record(-1, now_s)

    def accepted(self, ip: str) -> float:
        """A connection from this address was accepted. Not 0: the seconds after which it must be closed; it does not count."""
        limit = self._by_ip.get(ip, self._default)
        if limit is None or limit == NO_LIMIT:
            return 0.0
        now_s = self._monotonic_s()
        rate = self._ips.pop(ip, None) or self._new_rate()
        if len(self._ips) >= RATES_MAX:
            del self._ips[next(iter(self._ips))]
        self._ips[ip] = rate
        delay_s = self._record(rate, limit, now_s)
        if delay_s:
            rate.record(-1, now_s)
            self.throttled += 1
        return delay_s

    def is_limited(self, listener: str) -> bool:
        """Whether the broker or this listener has a limit."""
        return self._broker_limit != NO_LIMIT or self._listener_limits.get(listener, NO_LIMIT) != NO_LIMIT

    def _new_rate(self) -> SampledSum:
        return SampledSum(self._sample_count, self._sample_s)

    def _record(self, rate: SampledSum, limit: int, now_s: float) -> float:
        rate.record(1, now_s)
        total, window_s = rate.measure_window(now_s)
        excess = total - limit * window_s
        return min(excess / limit if limit else self._sample_s, self._sample_s) if excess > 0 else 0.0


def address(text: str) -> str | None:
    """An address as connections have it; None if the text is not one."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def _parsed(node: Entity, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        limit = int(text)
        if not 0 <= limit <= INT_MAX:
            raise ValueError
    except ValueError:
        log.error("ignoring %s of %s: %r is not a whole number from 0 to %d; set it again", IP_RATE, node.entity_path, text, INT_MAX)
        return None
    return limit
