"""Waiting for several Deferreds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

T = TypeVar("T")


def together(deferreds: Iterable[Deferred[T]]) -> Deferred[list[T]]:
    """All results in the order of the Deferreds, or the first failure."""
    return gatherResults(deferreds, consumeErrors=True).addErrback(_unwrap)


def _unwrap(failure: Failure) -> Failure:
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure
