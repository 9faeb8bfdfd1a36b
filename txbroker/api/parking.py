"""Parking a request: a handler returns what an operation in a purgatory answers later.

`ParkedRequest` is for requests of which thousands may wait at the same time, such as fetches: the operation is what the handler returns.
`park` is for the others. It makes a Deferred, which is several objects more and takes longer to fire (bench/LIMITS.md).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Self, TypeVar

from twisted.internet.defer import Deferred

from txbroker.purgatory import Operation, Parked, Purgatory

T = TypeVar("T")


def park(
    purgatory: Purgatory,
    keys: Iterable[Hashable],
    timeout_ms: int,
    build: Callable[[Deferred[T]], Operation],
    *,
    tried: bool = False,
    internal: bool = False,
) -> Deferred[T]:
    """Park the operation that `build` makes for the Deferred of the response. The connection cancels the Deferred when it is lost.

    `tried`: the caller knows that the operation cannot complete yet. `internal`: see `Purgatory.park`.
    """
    place: list[Parked] = []

    def cancel(_: Deferred[T]) -> None:
        if place:
            purgatory.cancel(place[0])

    done: Deferred[T] = Deferred(cancel)
    parked = purgatory.park(build(done), keys, timeout_ms, tried=tried, internal=internal)
    if parked is not None:
        place.append(parked)
    return done


class ParkedRequest(Generic[T]):
    """An operation in a purgatory, and the answer that its connection waits for.

    A subclass has `try_complete` and `on_expired` (purgatory.Operation), which call `respond` once. Nothing is set before `park`, so that
    a request that does not wait costs nothing.
    """

    __slots__ = ("_arguments", "_call", "_parked", "_purgatory", "_response")

    _response: T

    def try_complete(self) -> bool:
        """See purgatory.Operation."""
        raise NotImplementedError

    def on_expired(self) -> None:
        """See purgatory.Operation."""
        raise NotImplementedError

    def park(self, purgatory: Purgatory, keys: Iterable[Hashable], timeout_ms: int, *, internal: bool = False) -> Self:
        """Wait until one of `keys` is checked and the request can complete, or for the timeout. It cannot complete now.

        `internal`: see `Purgatory.park`.
        """
        self._purgatory = purgatory
        self._call: Callable[..., None] | None = None
        self._arguments: tuple[Any, ...] = ()
        self._parked: Parked | None = None
        self._parked = purgatory.park(self, keys, timeout_ms, tried=True, internal=internal)
        return self

    def respond(self, response: T) -> None:
        """The request has ended."""
        call, self._call = self._call, None
        if call is None:
            self._response = response
        else:
            call(response, *self._arguments)

    def when_answered(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call `call(response, *arguments)`, at once if the request has ended already. There is one such call."""
        if hasattr(self, "_response"):
            call(self._response, *arguments)
        else:
            self._call, self._arguments = call, arguments

    def deferred(self) -> Deferred[T]:
        """The answer for those who need a Deferred, instead of `when_answered` and `cancel`."""
        done: Deferred[T] = Deferred(lambda _: self.cancel())
        self.when_answered(done.callback)
        return done

    def cancel(self) -> None:
        """The client is gone: there is no answer."""
        self._call, self._arguments = None, ()  # they refer to the connection, which refers to this request
        if self._parked is not None:
            self._purgatory.cancel(self._parked)
