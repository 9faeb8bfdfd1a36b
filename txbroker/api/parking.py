"""Parking a request: the Deferred that a handler returns, tied to an operation in a purgatory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred

from txbroker.purgatory import Operation, Parked, Purgatory

T = TypeVar("T")


def park(
    purgatory: Purgatory, keys: Iterable[Hashable], timeout_ms: int, build: Callable[[Deferred[T]], Operation], *, tried: bool = False
) -> Deferred[T]:
    """Park what `build` makes of the answer's Deferred. The connection cancels that Deferred when the client is gone.

    `tried`: the caller has just seen that it cannot complete yet.
    """
    place: list[Parked] = []

    def cancel(_: Deferred[T]) -> None:
        if place:
            purgatory.cancel(place[0])

    done: Deferred[T] = Deferred(cancel)
    parked = purgatory.park(build(done), keys, timeout_ms, tried=tried)
    if parked is not None:
        place.append(parked)
    return done
