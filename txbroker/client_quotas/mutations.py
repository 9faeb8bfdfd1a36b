"""The quota of changes of topics (KIP-599, Kafka's ControllerMutationQuotaManager): a token bucket for each entity with a limit.

A partition that is created, added or deleted costs a token. The limit refills the bucket, up to its size, the burst. Whether there are
tokens is checked before a change, not whether there are enough: one change may leave less than none, and the next one has to wait.
"""

from __future__ import annotations

from collections.abc import Callable

from txbroker.clock import Clock
from txbroker.errors import BrokerError, ErrorCode

PAUSE_MAX_MS = 2**31 - 1  # what a response can carry


class TokenBucket:
    """Full at first."""

    __slots__ = ("_refilled_s", "tokens")

    def __init__(self) -> None:
        self.tokens = float("inf")
        self._refilled_s = 0.0

    def refill(self, rate: float, burst: float, now_s: float) -> None:
        """Add what the rate, in tokens a second, has brought since the last time."""
        self.tokens = min(burst, self.tokens + rate * (now_s - self._refilled_s))
        self._refilled_s = now_s


class Mutations:
    """The changes of one request. `exceeded` is called for each one above the limit."""

    def __init__(
        self, bucket: TokenBucket, rate: float, burst: float, clock: Clock, exceeded: Callable[[], object], *, strict: bool
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._exceeded = exceeded
        self._strict = strict
        self._pause_ms = 0
        self._paused_s = 0.0

    def spend(self, count: int) -> None:
        """A change of this many partitions is about to be made. THROTTLING_QUOTA_EXCEEDED if it must not, and nothing was spent."""
        bucket, now_s = self._bucket, self._clock.seconds()
        bucket.refill(self._rate, self._burst, now_s)
        if not (self._strict and bucket.tokens < 0):
            bucket.tokens -= count
            if self._strict or bucket.tokens >= 0:
                return
        self._exceeded()
        self._pause_ms = min(round(-bucket.tokens / self._rate * 1000), PAUSE_MAX_MS)
        self._paused_s = now_s
        if self._strict:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self) -> int:
        """How long the client must pause from now on."""
        if not self._pause_ms:
            return 0
        return max(self._pause_ms - round((self._clock.seconds() - self._paused_s) * 1000), 0)


class _Unlimited(Mutations):
    """Of a client without a limit."""

    def __init__(self) -> None:
        pass

    def spend(self, count: int) -> None:
        pass

    def throttle_ms(self) -> int:
        return 0


UNLIMITED: Mutations = _Unlimited()
