"""Parked operations: requests that wait until something moves, or until their time is over.

What Kafka calls a DelayedOperationPurgatory, for one thread. A parked operation is watched under some keys; whoever moves what a
key stands for calls `check(key)`, and each operation under it is tried again, the longest parked first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime


class Operation(Protocol):
    """Something that waits. It ends exactly once: by `try_complete` answering True, by `on_expired`, or by being cancelled."""

    def try_complete(self) -> bool:
        """Complete (answer, and return True) if it is time; else change nothing and return False."""

    def on_expired(self) -> None:
        """The time is over: answer with what there is."""


class Parked:
    """The place of one parked operation, for `Purgatory.cancel`."""


class Purgatory:
    """Operations of one kind that wait."""

    def __init__(self, clock: IReactorTime, name: str, *, parked_max: int = 100_000) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        """How many operations are parked."""
        raise NotImplementedError

    def park(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> Parked | None:
        """Try the operation, and park it if it cannot complete yet; None when it is complete already.

        When `parked_max` operations wait, or the timeout is not positive, it expires at once instead.
        """
        raise NotImplementedError

    def check(self, key: Hashable) -> int:
        """Try every operation that is watched under `key`; the number that completed."""
        raise NotImplementedError

    def cancel(self, parked: Parked) -> bool:
        """Forget an operation without telling it (its client is gone); False when it had ended before."""
        raise NotImplementedError

    def close(self) -> None:
        """Expire everything that still waits, and stop the timer."""
        raise NotImplementedError
