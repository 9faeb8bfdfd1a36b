"""Parking a request: a handler returns a Deferred, which an operation in a purgatory fires later."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred

from txbroker.purgatory import Operation, Parked, Purgatory

T = TypeVar("T")


def park(
    purgatory: Purgatory, keys: Iterable[Hashable], timeout_ms: int, build: Callable[[Deferred[T]], Operation], *, tried: bool = False
) -> Deferred[T]:
    """Park the operation that `build` makes for the Deferred of the response. The connection cancels the Deferred when it is lost.

    `tried`: the caller knows that the operation cannot complete yet.
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
