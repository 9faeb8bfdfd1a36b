"""Helpers that wait for operations on the tree: several at once, and on behalf of admin requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from txbroker.cluster.tree.interface import ConnectionLost, NoNode, NoSpaceInStore, SessionExpired, Tree
from txbroker.errors import BrokerError, ErrorCode

T = TypeVar("T")

ATTEMPTS_MAX = 10


def together(deferreds: Iterable[Deferred[T]]) -> Deferred[list[T]]:
    """All results in the order of the Deferreds, or the first failure."""
    return gatherResults(deferreds, consumeErrors=True).addErrback(_unwrap)


def found(reads: Iterable[Deferred[T]]) -> Deferred[list[T | None]]:
    """As `together`, with None for nodes that do not exist."""
    return together([read.addErrback(_missing) for read in reads])


async def repeated(work: Callable[[], Awaitable[T]]) -> T:
    """The result of work that may be done twice: it is repeated when the connection was lost, and it is unknown what took effect."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await work()
        except NoSpaceInStore:
            raise
        except ConnectionLost:
            continue
    return await work()


async def written(write: Awaitable[object], tree: Tree, took_effect: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a write that may not be done twice. If the connection was lost, read whether it took effect, and fail only if not.

    The session's next operation follows on the write, which cannot take effect later. SessionExpired leaves it unknown.
    """
    try:
        await write
    except NoSpaceInStore:
        raise
    except ConnectionLost:
        await tree.sync()
        if not await took_effect():
            raise


def for_admin(work: Awaitable[T]) -> Deferred[T]:
    """Work of an admin request on the tree.

    KAFKA_STORAGE_ERROR when its disk is full; NOT_CONTROLLER, which clients retry, when it is unavailable for another reason.
    """

    async def run() -> T:
        try:
            return await work
        except NoSpaceInStore as error:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except (ConnectionLost, SessionExpired) as error:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "The metadata cannot be read or written now; try again.") from error

    return Deferred.fromCoroutine(run())


def _missing(failure: Failure) -> None:
    failure.trap(NoNode)


def _unwrap(failure: Failure) -> Failure:
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure
