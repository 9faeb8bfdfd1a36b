"""A queue of calls in place of a reactor: calls and jobs wait until the test runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class Turns:
    """`call_soon` and `worker` for trees; `run` empties the queue."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], object]] = deque()

    def call_soon(self, call: Callable[[], object]) -> None:
        self._queue.append(call)

    def worker(self, job: Callable[[], T]) -> Deferred[T]:
        result: Deferred[T] = Deferred()

        def perform() -> None:
            try:
                value = job()
            except Exception as error:
                result.errback(error)
            else:
                result.callback(value)

        self._queue.append(perform)
        return result

    def run(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def step(self) -> bool:
        if self._queue:
            self._queue.popleft()()
        return bool(self._queue)

    def result(self, deferred: Deferred[T]) -> T:
        """The result of the Deferred after all queued calls ran."""
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        self.run()
        assert outcomes, "it did not fire"
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        value: T = outcomes[0]
        return value
