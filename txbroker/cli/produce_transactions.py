"""The transactions of `txbroker produce --transactional-id`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self


class NoTransactions:
    """Without --transactional-id."""

    is_due = False

    def next(self) -> None:
        """Nothing is to be committed."""


class Transactions:
    """A context in which a transaction is open; it is committed at the end, and aborted if an exception leaves the context.

    `duration_ms`: after how long a transaction `is_due`; None: it lasts until the end of the context.
    """

    def __init__(self, producer: Any, duration_ms: int | None, clock_s: Callable[[], float]) -> None:
        self._producer = producer
        self._duration_s = float("inf") if duration_ms is None else duration_ms / 1000
        self._clock_s = clock_s
        self._begun_s = 0.0

    def __enter__(self) -> Self:
        self._producer.init_transactions()
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._producer.commit_transaction()
            return
        with suppress(Exception):  # the failure that ended the context is the one to report; a fenced producer cannot abort
            self._producer.abort_transaction()

    @property
    def is_due(self) -> bool:
        """Whether the transaction has lasted long enough."""
        return self._clock_s() - self._begun_s >= self._duration_s

    def next(self) -> None:
        """Commit, and begin another transaction."""
        self._producer.commit_transaction()
        self._begin()

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._begun_s = self._clock_s()
