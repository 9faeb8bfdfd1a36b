"""Expiry of idempotent producers in all logs, in slices: a broker may know hundreds of thousands."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from txbroker.log.log import Log
from txbroker.log.log_results import Later
from txbroker.names import amount

logger = logging.getLogger("txbroker.log")

PRODUCERS_PER_TURN = 5_000  # half a millisecond
_COST_OF_LOG = 10  # in producers


class ProducerExpiry:
    """One pass at a time, in the thread of the logs."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._pass: Iterator[int] | None = None

    def begin(self, logs: Iterable[Log], now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that have been silent for `expiration_ms`; nothing while a pass is running."""
        if self._pass is None:
            self._pass = _expire(list(logs), now_ms, expiration_ms)
            self._turn()

    def stop(self) -> None:
        """End the pass."""
        self._pass = None

    def _turn(self) -> None:
        left = PRODUCERS_PER_TURN
        for seen in self._pass or ():
            left -= seen + _COST_OF_LOG
            if left <= 0:
                self._later(0, _nothing, self._turn)
                return
        self._pass = None


def _expire(logs: list[Log], now_ms: int, expiration_ms: int) -> Iterator[int]:
    """Producers seen, slice by slice."""
    total = 0
    for log in logs:
        log.producers.expiration_ms = expiration_ms
        for seen, expired in log.producers.expire_in_slices(now_ms, PRODUCERS_PER_TURN):
            total += expired
            yield seen
        yield 0
    if total:
        logger.debug("expired %s", amount(total, "producer"))


def _nothing() -> None:
    """No work: the next slice follows in another turn of the reactor."""
