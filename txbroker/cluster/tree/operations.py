"""Helpers that wait for operations on the tree: several at once, and on behalf of admin requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.interface import (
    MULTI_OPS_MAX,
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

A = TypeVar("A")
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


async def in_parts(items: Iterable[A], work: Callable[[A], Coroutine[Any, Any, T]]) -> list[T]:
    """The results for all items, or the first failure. MULTI_OPS_MAX are worked on at a time: there may be very many users, or topics."""
    left, results = list(items), list[T]()
    for start in range(0, len(left), MULTI_OPS_MAX):
        results += await together([Deferred.fromCoroutine(work(item)) for item in left[start : start + MULTI_OPS_MAX]])
    return results


async def children_of(tree: Tree, paths: Iterable[str]) -> list[list[str] | None]:
    """The names of the children of each node; None of one that does not exist."""

    async def children(path: str) -> list[str] | None:
        try:
            return await tree.children(path)
        except NoNode:
            return None

    return await in_parts(paths, children)


async def read_each(tree: Tree, paths: Iterable[str], watch: Watcher | None = None) -> list[Read | Refused | None]:
    """Data and stat of each node; None of one that does not exist, and the error of one that the store does not let this broker read."""

    async def read(path: str) -> Read | Refused | None:
        try:
            return await tree.get(path, watch=watch)
        except NoNode:
            return None
        except Refused as error:
            return error

    return await in_parts(paths, read)


async def read_all(tree: Tree, paths: Sequence[str]) -> list[Read | Refused | None]:
    """As `read_each`, of any number of nodes, MULTI_OPS_MAX of them at a time."""
    read: list[Read | Refused | None] = []
    for start in range(0, len(paths), MULTI_OPS_MAX):
        part = paths[start : start + MULTI_OPS_MAX]
        try:
            read += await tree.get_all(part)
        except Refused:
            read += await read_each(tree, part)
    return read


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
