"""The client quotas of this broker: limits, rates, and how long a client above its limit must pause (Kafka's ClientQuotaManager).

Each broker counts what it serves itself. A client's rate counts under the entity whose quota it has: all clients of a user with a quota
for the user share one rate; a quota for default client ids holds for each client id alone. A rate is averaged over `quota.window.num`
samples of `quota.window.size.seconds`. The pause is the time in which the limit allows what the window has above it.

Changes of topics are limited by token buckets instead (`client_quotas/mutations.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from txbroker.client_quotas.entities import QuotaEntity, candidates, encoded, entity_of
from txbroker.client_quotas.mutations import UNLIMITED, Mutations, TokenBucket
from txbroker.clock import Clock
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.sampled_sum import SampledSum

log = logging.getLogger("txbroker.clients")

PRODUCE_KEY = 0
PRODUCER_RATE = "producer_byte_rate"  # bytes a second of Produce requests
CONSUMER_RATE = "consumer_byte_rate"  # bytes a second of records in Fetch responses
REQUEST_PERCENTAGE = "request_percentage"  # of the time of the thread that serves all requests
MUTATION_RATE = "controller_mutation_rate"  # partitions a second that are created, added and deleted, at the controller (KIP-599)
KINDS = (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE, MUTATION_RATE)

# Rates of each kind that are kept: those of the clients that were served last.
RATES_MAX = 5000
PAUSE_MAX_MS = 2**31 - 1  # what a response can carry

T = TypeVar("T")


class ClientQuotas:
    """All quotas. `active`: whether there are any. `throttled`: how many requests were followed by a pause, by the kind of quota."""

    def __init__(self, clock: Clock, *, sample_count: int, sample_s: float, burst_s: float = 11.0) -> None:
        """`burst_s`: for how long an unused rate of changes may be saved up (controller.quota.window.num x .size.seconds)."""
        self.clock = clock
        self.active = False
        self.throttled: Counter[str] = Counter()
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._burst_s = burst_s
        self._limits: dict[str, dict[QuotaEntity, float]] = {kind: {} for kind in KINDS}
        self._rates: dict[str, dict[QuotaEntity, SampledSum]] = {kind: {} for kind in KINDS}  # the least recently used first
        self._buckets: dict[QuotaEntity, TokenBucket] = {}  # as the rates

    def configure(self, node: Entity, properties: Mapping[str, str]) -> None:
        """The configuration of a user, a client id or both has changed. Malformed limits are logged and count as missing."""
        entity = entity_of(node)
        if entity is None:
            return
        for kind, limits in self._limits.items():
            limit = _parsed(node, kind, properties.get(kind))
            if limit is None:
                limits.pop(entity, None)
            else:
                limits[entity] = limit
        self.active = any(self._limits.values())

    def served(self, principal: str, client_id: str | None, api_key: int, size: int, spent_s: float) -> int:
        """Record a request of `size` bytes that took `spent_s` of the thread. The pause in milliseconds, 0 within the limits."""
        found = self._rate(REQUEST_PERCENTAGE, principal, client_id)
        longest_ms = 0
        if found is not None:
            pause_ms = self._record(*found, spent_s * 100)
            longest_ms = self._counted(REQUEST_PERCENTAGE, min(pause_ms, round(self._sample_s * 1000)))
        found = self._rate(PRODUCER_RATE, principal, client_id) if api_key == PRODUCE_KEY else None
        if found is not None:
            longest_ms = max(longest_ms, self._counted(PRODUCER_RATE, self._record(*found, size)))
        return longest_ms

    def fetched(self, principal: str, client_id: str | None, size: int) -> int:
        """Record a response to a consumer with this many bytes of records. Not 0: a pause in milliseconds; the response must not be sent,
        but one without records."""
        found = self._rate(CONSUMER_RATE, principal, client_id)
        if found is None:
            return 0
        pause_ms = self._record(*found, size)
        if pause_ms:
            found[0].record(-size, self.clock.seconds())
        return self._counted(CONSUMER_RATE, pause_ms)

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        """How many bytes one Fetch may return at most, so that it does not exceed the limit of a whole window by itself."""
        found = self._rate(CONSUMER_RATE, principal, client_id)
        return None if found is None else max(int(found[1] * max(self._sample_count - 1, 1) * self._sample_s), 1)

    def mutations(self, principal: str, client_id: str | None, *, strict: bool) -> Mutations:
        """The changes of topics by one request. `strict`: they are refused above the limit, not only followed by a pause."""
        found = self._limit(MUTATION_RATE, principal, client_id)
        if found is None:
            return UNLIMITED
        counted, limit = found
        bucket = _kept(self._buckets, counted, TokenBucket)
        return Mutations(bucket, limit, limit * self._burst_s, self.clock, lambda: self._counted(MUTATION_RATE, 1), strict=strict)

    def _rate(self, kind: str, principal: str, client_id: str | None) -> tuple[SampledSum, float] | None:
        """The rate under which a client counts, and its limit; None without a limit."""
        found = self._limit(kind, principal, client_id)
        if found is None:
            return None
        return _kept(self._rates[kind], found[0], lambda: SampledSum(self._sample_count, self._sample_s)), found[1]

    def _limit(self, kind: str, principal: str, client_id: str | None) -> tuple[QuotaEntity, float] | None:
        """The entity under which a client counts, and its limit; None without a limit."""
        limits = self._limits[kind]
        if not limits:
            return None
        user, client = encoded(principal.partition(":")[2]), encoded(client_id or "")
        for candidate in candidates(user, client):
            limit = limits.get(candidate)
            if limit is not None:
                return QuotaEntity(None if candidate.user is None else user, None if candidate.client_id is None else client), limit
        return None

    def _record(self, rate: SampledSum, limit: float, amount: float) -> int:
        now_s = self.clock.seconds()
        rate.record(amount, now_s)
        total, window_s = rate.measure_window(now_s)
        return round(min(max((total - limit * window_s) / limit * 1000, 0.0), PAUSE_MAX_MS))

    def _counted(self, kind: str, pause_ms: int) -> int:
        if pause_ms:
            self.throttled[kind] += 1
        return pause_ms


def _kept(table: dict[QuotaEntity, T], key: QuotaEntity, make: Callable[[], T]) -> T:
    """What the table has, now as the most recently used; RATES_MAX are kept."""
    value = table.pop(key, None) or make()
    if len(table) >= RATES_MAX:
        del table[next(iter(table))]
    table[key] = value
    return value


def _parsed(node: Entity, kind: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        limit = float(text)
        if not 0 < limit < float("inf"):
            raise ValueError
    except ValueError:
        log.error("ignoring %s of %s: %r is not a number above 0; set it again", kind, node.entity_path, text)
        return None
    return limit
