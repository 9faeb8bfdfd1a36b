"""Waiting for several operations on the tree that are under way at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from txbroker.cluster.tree import NoNode

T = TypeVar("T")


def together(deferreds: Iterable[Deferred[T]]) -> Deferred[list[T]]:
    """All results in the order of the Deferreds, or the first failure."""
    return gatherResults(deferreds, consumeErrors=True).addErrback(_unwrap)


def found(reads: Iterable[Deferred[T]]) -> Deferred[list[T | None]]:
    """As `together`, with None for nodes that do not exist."""
    return together([read.addErrback(_missing) for read in reads])


def _missing(failure: Failure) -> None:
    failure.trap(NoNode)


def _unwrap(failure: Failure) -> Failure:
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure
