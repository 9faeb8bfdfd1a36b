"""Work whose caller may go away."""

from __future__ import annotations

from typing import TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


def uncancelled(work: Deferred[T]) -> Deferred[T]:
    """The result of work that has begun and is completed even if the Deferred returned here is cancelled.

    A connection cancels the requests without a response when it ends.
    """
    result: Deferred[T] = Deferred()
    work.addBoth(result.callback)
    return result
