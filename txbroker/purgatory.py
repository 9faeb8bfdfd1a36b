"""Requests that wait for an event or a timeout: Kafka's DelayedOperationPurgatory, for one thread.

A parked operation is watched under some keys, e.g. partitions. When the state behind a key changes, `check(key)` tries every
operation under that key again, the longest parked first.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from txbroker.clock import Clock, DelayedCall

logger = logging.getLogger("txbroker.purgatory")


class Operation(Protocol):
    """An operation that waits. It ends exactly once: `try_complete` returns True, or `on_expired` is called, or it is cancelled."""

    def try_complete(self) -> bool:
        """Complete and return True if the condition holds; otherwise change nothing and return False."""

    def on_expired(self) -> None:
        """The timeout has passed: answer with what is available."""


class Parked:
    """A handle for `Purgatory.cancel`."""

    __slots__ = ("keys", "operation")

    def __init__(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        self.operation: Operation | None = operation  # None once it has ended
        self.keys = keys


# A timer may fire slightly early because floating-point seconds are rounded. Kafka's tick is 1 ms.
_TICK_S = 0.0005
# Ended operations stay in the heap of deadlines until there are more of them than of the others, plus this many.
_ENDED_SLACK = 64


class Purgatory:
    """Waiting operations of one kind. `checked` is the key under which an operation is being tried; it need not check its other keys.

    Few operations expire, so ending one must be cheap: it leaves the watch lists at once (dictionaries, which keep the order) and the
    heap of deadlines lazily. One timer runs, for the earliest deadline.
    """

    def __init__(self, clock: Clock, name: str, *, parked_max: int = 100_000, watches_max: int = 1_000_000) -> None:
        """`parked_max` operations of clients with `watches_max` keys in total limit the memory. Kafka serves one request per connection at
        a time and has no such limit. The operations of the broker itself, which clients wait for one by one, are not limited."""
        self._clock = clock
        self._name = name
        self._parked_max = parked_max
        self._watches_max = watches_max
        self._parked = 0
        self._watches = 0
        self._is_closed = False
        self.watched: dict[Hashable, dict[Parked, None]] = {}
        """The operations under each key. To look whether there are any: `key in purgatory.watched`."""
        self._deadlines: list[tuple[float, int, Parked]] = []
        self._sequence = 0
        self._timer: DelayedCall | None = None
        self._timer_at = 0.0
        self._to_check: dict[Hashable, None] = {}
        self._checking = False
        self.checked: Hashable = None
        self.checks = 0
        """How often `check` was called; it stays the same while the operations under its keys are tried."""
        self.refused = 0
        """Number of operations that expired at once because a limit was reached."""

    def __len__(self) -> int:
        """The number of parked operations."""
        return self._parked

    def park(
        self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int, *, tried: bool = False, internal: bool = False
    ) -> Parked | None:
        """Try the operation, unless the caller has just `tried` it, and park it if it cannot complete yet; None if it has ended.

        If a limit is reached, or the timeout is not positive, it expires at once. The limits do not hold for an `internal` operation,
        which is one of a coordinator, of markers, or of a follower; they count it.
        """
        if not tried:
            try:
                if operation.try_complete():
                    return None
            except Exception:
                self._failed(operation)
                return None
        parked = Parked(operation, tuple(dict.fromkeys(keys)))
        full = not internal and (self._parked >= self._parked_max or self._watches + len(parked.keys) > self._watches_max)
        if timeout_ms <= 0 or full or self._is_closed:
            self.refused += full and timeout_ms > 0
            self._expire(operation)
            return None
        self._parked += 1
        self._watches += len(parked.keys)
        for key in parked.keys:
            watchers = self.watched.get(key)
            if watchers is None:
                watchers = self.watched[key] = {}
            watchers[parked] = None
        deadline = self._clock.seconds() + timeout_ms / 1000
        self._sequence += 1
        heappush(self._deadlines, (deadline, self._sequence, parked))
        if self._timer is None or deadline < self._timer_at:
            self._start_timer(deadline)
        return parked

    def check(self, *keys: Hashable) -> int:
        """Try every operation under each of `keys`; returns the number that completed.

        A completed operation may call `check` for other keys. Such a call returns 0, and its keys are checked after the current ones, so
        that calls do not nest.
        """
        watched, to_check = self.watched, self._to_check
        for key in keys:
            if key in watched:
                to_check[key] = None
        if self._checking or not to_check:
            return 0
        self._checking = True
        self.checks += 1
        completed = 0
        try:
            while to_check:
                completed += self._check_one(next(iter(to_check)))
        finally:
            self._checking = False
        return completed

    def expire(self, key: Hashable) -> None:
        """The operations under `key` wait no longer."""
        for parked in list(self.watched.get(key, ())):
            operation = parked.operation
            if operation is not None:
                self._end(parked)
                self._expire(operation)

    def cancel(self, parked: Parked) -> bool:
        """Remove an operation without calling it, as its client is gone; False if it has ended already."""
        if parked.operation is None:
            return False
        self._end(parked)
        return True

    def close(self) -> None:
        """Expire all operations, the longest parked first; later ones expire at once."""
        self._is_closed = True
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
        for parked in list(self.watched.get(key, ())):
            operation = parked.operation
            if operation is None:
                continue
            try:
                if not operation.try_complete():
                    continue
            except Exception:
                self._failed(operation)
            completed += 1
            if parked.operation is not None:
                self._end(parked)
        return completed

    def _failed(self, operation: Operation) -> None:
        """`try_complete` has raised an exception. It is logged and expires the operation: it must not reach the caller of `check`."""
        logger.exception("%s: internal error in %r; it expires now", self._name, operation)
        self._expire(operation)

    def _expire(self, operation: Operation) -> None:
        try:
            operation.on_expired()
        except Exception:
            logger.exception("%s: internal error while %r expired", self._name, operation)

    def _end(self, parked: Parked) -> None:
        """Remove an operation from the watch lists."""
        parked.operation = None
        self._parked -= 1
        self._watches -= len(parked.keys)
        watched = self.watched
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
        # An expired operation may have parked another one, which has started the timer.
        if self._deadlines and (self._timer is None or self._deadlines[0][0] < self._timer_at):
            self._start_timer(self._deadlines[0][0])
