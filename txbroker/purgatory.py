"""Parked operations: requests that wait until something moves, or until their time is over.

What Kafka calls a DelayedOperationPurgatory, for one thread. A parked operation is watched under some keys; whoever moves what a
key stands for calls `check(key)`, and each operation under it is tried again, the longest parked first.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from txbroker.clock import Clock, DelayedCall

logger = logging.getLogger("txbroker.purgatory")


class Operation(Protocol):
    """Something that waits. It ends exactly once: by `try_complete` answering True, by `on_expired`, or by being cancelled."""

    def try_complete(self) -> bool:
        """Complete (answer, and return True) if it is time; else change nothing and return False."""

    def on_expired(self) -> None:
        """The time is over: answer with what there is."""


class Parked:
    """The place of one parked operation, for `Purgatory.cancel`."""

    __slots__ = ("keys", "operation")

    def __init__(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        self.operation: Operation | None = operation  # None once it has ended
        self.keys = keys


# A timer may fire a hair early, by the rounding of floating-point seconds; Kafka's own tick is 1 ms.
_TICK_S = 0.0005
# Places of operations that ended stay in the heap of deadlines until they are as many as the others, and this many more.
_ENDED_SLACK = 64


class Purgatory:
    """Operations of one kind that wait. `checked` is the key under which one is being tried: it need not look at its others.

    Many operations come and go for each that really expires, so ending one must be cheap: it leaves the watch lists at once (they
    are dictionaries, which keep the order of parking) and its deadline lazily. One timer runs, for the earliest deadline.
    """

    def __init__(self, clock: Clock, name: str, *, parked_max: int = 100_000, watches_max: int = 1_000_000) -> None:
        """`parked_max` operations, with `watches_max` keys between them, bound the memory. Kafka needs no such bound, having one
        request in flight for each connection."""
        self._clock = clock
        self._name = name
        self._parked_max = parked_max
        self._watches_max = watches_max
        self._parked = 0
        self._watches = 0
        self._watched: dict[Hashable, dict[Parked, None]] = {}
        self._deadlines: list[tuple[float, int, Parked]] = []
        self._sequence = 0
        self._timer: DelayedCall | None = None
        self._timer_at = 0.0
        self._to_check: dict[Hashable, None] = {}
        self._checking = False
        self.checked: Hashable = None
        self.refused = 0
        """How many could not wait because as many waited as may."""

    def __len__(self) -> int:
        """How many operations are parked."""
        return self._parked

    def park(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int, *, tried: bool = False) -> Parked | None:
        """Try the operation, unless it was `tried` just now, and park it if it cannot complete yet; None when it has ended already.

        When as many wait as may, or the timeout is not positive, it expires at once instead.
        """
        if not tried and self._try(operation):
            return None
        parked = Parked(operation, tuple(dict.fromkeys(keys)))
        full = self._parked >= self._parked_max or self._watches + len(parked.keys) > self._watches_max
        if timeout_ms <= 0 or full:
            self.refused += full and timeout_ms > 0
            self._expire(operation)
            return None
        self._parked += 1
        self._watches += len(parked.keys)
        for key in parked.keys:
            watchers = self._watched.get(key)
            if watchers is None:
                watchers = self._watched[key] = {}
            watchers[parked] = None
        deadline = self._clock.seconds() + timeout_ms / 1000
        self._sequence += 1
        heappush(self._deadlines, (deadline, self._sequence, parked))
        if self._timer is None or deadline < self._timer_at:
            self._start_timer(deadline)
        return parked

    def check(self, key: Hashable) -> int:
        """Try every operation that is watched under `key`; the number that completed.

        An operation that completes may move keys itself. Such a check is put off until the operations of this one have been tried
        (it returns 0, and the outer check counts for it), so that a thousand of them do not nest a thousand deep.
        """
        if key not in self._watched:
            return 0
        self._to_check[key] = None
        if self._checking:
            return 0
        self._checking = True
        completed = 0
        try:
            while self._to_check:
                completed += self._check_one(next(iter(self._to_check)))
        finally:
            self._checking = False
        return completed

    def cancel(self, parked: Parked) -> bool:
        """Forget an operation without telling it (its client is gone); False when it had ended before."""
        if parked.operation is None:
            return False
        self._end(parked)
        return True

    def close(self) -> None:
        """Expire everything that still waits, the longest parked first, and park nothing any more."""
        self._parked_max = 0
        for _, _, parked in sorted(self._deadlines, key=lambda entry: entry[1]):
            operation = parked.operation
            if operation is not None:
                self._end(parked)
                self._expire(operation)
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_one(self, key: Hashable) -> int:
        del self._to_check[key]
        self.checked = key
        completed = 0
        for parked in list(self._watched.get(key, ())):
            operation = parked.operation
            if operation is not None and self._try(operation):
                completed += 1
                if parked.operation is not None:
                    self._end(parked)
        return completed

    def _try(self, operation: Operation) -> bool:
        """Whether the operation has completed. One that raises has a bug, which must not hurt whoever moved the key."""
        try:
            return operation.try_complete()
        except Exception:
            logger.exception("%s: %r failed; it is answered as if its time were over", self._name, operation)
            self._expire(operation)
            return True

    def _expire(self, operation: Operation) -> None:
        try:
            operation.on_expired()
        except Exception:
            logger.exception("%s: %r failed when its time was over", self._name, operation)

    def _end(self, parked: Parked) -> None:
        """Take an operation out of the watch lists."""
        parked.operation = None
        self._parked -= 1
        self._watches -= len(parked.keys)
        watched = self._watched
        for key in parked.keys:
            watchers = watched[key]
            del watchers[parked]
            if not watchers:
                del watched[key]
        if len(self._deadlines) > 2 * self._parked + _ENDED_SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].operation is not None]
            heapify(self._deadlines)

    def _start_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self._clock.seconds() + _TICK_S
        while self._deadlines and (self._deadlines[0][0] <= due or self._deadlines[0][2].operation is None):
            _, _, parked = heappop(self._deadlines)
            operation = parked.operation
            if operation is not None:
                self._end(parked)
                self._expire(operation)
        # An operation that expired may have parked another one, which started the timer anew.
        if self._deadlines and (self._timer is None or self._deadlines[0][0] < self._timer_at):
            self._start_timer(self._deadlines[0][0])
