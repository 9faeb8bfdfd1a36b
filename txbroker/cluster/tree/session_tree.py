"""A tree whose sessions follow each other: when one expires, the next is opened, until the tree is closed.

Operations go to the session of the moment. Between two sessions they fail with SessionExpired, as they do after the end of a session. A
session's ephemeral nodes and watches are gone with it: `on_renewed` reports each new session, so that its owner restores them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.clock import Clock
from txbroker.cluster.tree.interface import ANY_VERSION, Op, OpResult, SessionExpired, Stat, Tree, TreeError, Watcher
from txbroker.errors import StartError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.retrying import retrying, warning

log = logging.getLogger("txbroker.zookeeper")

RETRY_S, RETRY_S_MAX = 1.0, 10.0  # after a session could not be opened, or not be taken into use

LATENCIES_KEPT = 1024

T = TypeVar("T")

Renewed = Callable[[Tree], Awaitable[None]]


@lazy_dataclass(slots=True)
class SessionCounts:
    """What happened to the sessions of one broker, and how long the last requests took, in seconds."""

    connected: bool = False
    connects: int = 0
    disconnects: int = 0
    expirations: int = 0
    requests: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT))


class SessionTree:
    """See `Tree`."""

    def __init__(
        self,
        session: Tree,
        open_next: Callable[[], Awaitable[Tree]],
        closed: Callable[[], None],
        clock: Clock,
        counts: SessionCounts | None,
        chance: Callable[[], float],
    ) -> None:
        """`session` is open. `open_next` opens another one, and is called again when it fails. `closed` is called after the last one.

        `counts`: of sessions with ZooKeeper. `chance` returns numbers from 0 to 1.
        """
        self.session = session
        self.counts = counts
        self._notify_closed = closed
        self._open_next = open_next
        self._clock = clock
        self._chance = chance
        self._renewed: Renewed = _nothing
        self._renewing: Deferred[None] = succeed(None)
        self._closed = False
        session.on_expired(self._session_expired)

    def on_renewed(self, renewed: Renewed) -> None:
        """Call with each new session, not with the first one; again after an error of it, with a back-off, while the session lasts."""
        self._renewed = renewed

    def _session_expired(self) -> None:
        if not self._closed:
            self._renewing.cancel()  # it may wait to use the session that has ended
            self._renewing = Deferred.fromCoroutine(self._renew()).addErrback(_cancelled)

    async def _renew(self) -> None:
        session = await self._repeated(self._open_next, "cannot open a session with the metadata, retrying: %s")
        self.session = session
        session.on_expired(self._session_expired)
        await self._repeated(lambda: self._renewed(session), "this broker cannot use its new session with the metadata yet, retrying: %s")

    async def _repeated(self, work: Callable[[], Awaitable[T]], line: str) -> T:
        say = warning(log, line, StartError, TreeError)

        def say_unless_expired(error: Exception) -> None:
            if not isinstance(error, SessionExpired):  # the next session follows
                say(error)

        return await retrying(work, self._clock, Backoff(self._chance, RETRY_S, RETRY_S_MAX), say_unless_expired)

    # Operations

    @property
    def session_id(self) -> int:
        """See `Tree`."""
        return self.session.session_id

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """See `Tree`."""
        return self.session.create(path, data, ephemeral=ephemeral, sequential=sequential)

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """See `Tree`."""
        return self.session.get(path, watch=watch)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
        """See `Tree`."""
        return self.session.get_all(paths)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """See `Tree`."""
        return self.session.set(path, data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """See `Tree`."""
        return self.session.delete(path, version)

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """See `Tree`."""
        return self.session.children(path, watch=watch)

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """See `Tree`."""
        return self.session.exists(path, watch=watch)

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """See `Tree`."""
        return self.session.multi(ops)

    def sync(self) -> Deferred[None]:
        """See `Tree`."""
        return self.session.sync()

    def on_expired(self, callback: Callable[[], None]) -> None:
        """See `Tree`: of the session of the moment."""
        self.session.on_expired(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`. No further session is opened."""
        self._closed = True
        self._renewing.cancel()
        return self.session.close().addErrback(_over).addCallback(lambda _: self._notify_closed())


async def _nothing(_: Tree) -> None:
    pass


def _over(failure: Failure) -> None:
    failure.trap(SessionExpired)


def _cancelled(failure: Failure) -> None:
    failure.trap(CancelledError)
