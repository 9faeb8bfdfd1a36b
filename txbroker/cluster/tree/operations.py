"""Helpers that wait for operations on the tree: several at once, and on behalf of admin requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.interface import (
    ConnectionLost,
    NoNode,
    NoSpaceInStore,
    Refused,
    SessionExpired,
    Stat,
    TooLarge,
    Tree,
    Watcher,
)
from txbroker.errors import BrokerError, ErrorCode

T = TypeVar("T")
Read = tuple[bytes | None, Stat]
log = logging.getLogger("txbroker.cluster")

ATTEMPTS_MAX = 10


def together(deferreds: Iterable[Deferred[T]]) -> Deferred[list[T]]:
    """All results in the order of the Deferreds, or the first failure."""
    return gatherResults(deferreds, consumeErrors=True).addErrback(_unwrap)


def found(reads: Iterable[Deferred[T]]) -> Deferred[list[T | None]]:
    """As `together`, with None for nodes that do not exist."""
    return together([read.addErrback(_missing) for read in reads])


async def read_each(tree: Tree, paths: Iterable[str], watch: Watcher | None = None) -> list[Read | Refused | None]:
    """Data and stat of each node; None of one that does not exist, and the error of one that the store does not let this broker read."""

    async def read(path: str) -> Read | Refused | None:
        try:
            return await tree.get(path, watch=watch)
        except NoNode:
            return None
        except Refused as error:
            return error

    return await together([Deferred.fromCoroutine(read(path)) for path in paths])


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

    KAFKA_STORAGE_ERROR when its disk is full; NOT_CONTROLLER, which clients retry, when it is unavailable for another reason;
    POLICY_VIOLATION when the data would be too large for a node; UNKNOWN_SERVER_ERROR, as Kafka, with the node and what to do, when the
    store refuses the operation, or the node has no valid data.
    """

    async def run() -> T:
        try:
            return await work
        except (NoSpaceInStore, Refused, MalformedNode) as error:
            raise for_client(error) from error
        except (ConnectionLost, SessionExpired) as error:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "The metadata cannot be read or written now; try again.") from error

    return Deferred.fromCoroutine(run())


def for_client(error: NoSpaceInStore | Refused | MalformedNode) -> BrokerError:
    """The error of a request which the store cannot carry out, now or later, because of its node."""
    if isinstance(error, NoSpaceInStore):
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if isinstance(error, TooLarge):
        return BrokerError(ErrorCode.POLICY_VIOLATION, str(error))
    if isinstance(error, Refused):
        log.warning("a request failed: %s", error)
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    log.warning("a request failed, repair or restore the node: %s", error)
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The metadata is damaged; repair or restore it: {error}")


def _missing(failure: Failure) -> None:
    failure.trap(NoNode)


def _unwrap(failure: Failure) -> Failure:
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure
