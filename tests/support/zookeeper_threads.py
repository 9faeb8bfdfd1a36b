"""The reactor's part for a tree on ZooKeeper, in tests: calls from other threads wait in a queue until the test's thread runs them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.support.waiting import PATIENCE_S

T = TypeVar("T")


class QueuedThreads:
    """Implements `Threads` of `txbroker/cluster/tree/zookeeper.py`."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], object]] = queue.Queue()

    def call_from_thread(self, call: Callable[..., object], *arguments: object) -> None:
        self._calls.put(lambda: call(*arguments))

    def worker(self, job: Callable[[], T]) -> Deferred[T]:
        result: Deferred[T] = Deferred()

        def perform() -> None:
            try:
                value = job()
            except Exception as error:
                self._calls.put(lambda error=error: result.errback(error))  # type: ignore[misc]
            else:
                self._calls.put(lambda: result.callback(value))

        threading.Thread(target=perform, daemon=True).start()
        return result

    def seconds(self) -> float:
        return time.monotonic()

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Callable[[], object]:
        cancelled: list[bool] = []
        timer = threading.Timer(delay_s, lambda: self._calls.put(lambda: cancelled or call()))
        timer.daemon = True
        timer.start()

        def cancel() -> None:
            cancelled.append(True)
            timer.cancel()

        return cancel

    def result(self, deferred: Deferred[T]) -> T:
        """The result of the Deferred; calls run until it fires."""
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        self.run_until(lambda: bool(outcomes))
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        value: T = outcomes[0]
        return value

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run calls until the condition holds; queue.Empty when nothing comes for a long time."""
        while not condition():
            self._calls.get(timeout=PATIENCE_S)()
