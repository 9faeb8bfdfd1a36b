"""A tree whose sessions follow each other: when one expires, the next is opened, until the tree is closed.

Operations go to the session of the moment. Between two sessions they fail with SessionExpired, as they do after the end of a session. A
session's ephemeral nodes and watches are gone with it: `on_renewed` reports each new session, so that its owner restores them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from txbroker.clock import Clock
from txbroker.cluster.tree.interface import ANY_VERSION, Op, OpResult, SessionExpired, Stat, Tree, Watcher
from txbroker.errors import StartError

log = logging.getLogger("txbroker.zookeeper")

RETRY_S = 1.0  # after a session could not be opened

LATENCIES_KEPT = 1024

Renewed = Callable[[Tree], Awaitable[None]]


@dataclass(slots=True)
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
    ) -> None:
        """`session` is open. `open_next` opens another one; StartError if no server answers. `closed` is called after the last one.

        `counts`: of sessions with ZooKeeper.
        """
        self.session = session
        self.counts = counts
        self._notify_closed = closed
        self._open_next = open_next
        self._clock = clock
        self._renewed: Renewed = _nothing
        self._renewing: Deferred[None] = succeed(None)
        self._closed = False
        session.on_expired(self._session_expired)

    def on_renewed(self, renewed: Renewed) -> None:
        """Call with each new session, not with the first one. SessionExpired of it is ignored: the session after that is reported too."""
        self._renewed = renewed

    def _session_expired(self) -> None:
        if not self._closed:
            self._renewing = Deferred.fromCoroutine(self._renew()).addErrback(_ended)

    async def _renew(self) -> None:
        session = await self._next_session()
        self.session = session
        session.on_expired(self._session_expired)
        await self._renewed(session)

    async def _next_session(self) -> Tree:
        while True:
            try:
                return await self._open_next()
            except StartError as error:
                log.warning("No new session: %s Trying again.", error)
            await deferLater(self._clock, RETRY_S)  # type: ignore[arg-type]

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
        return self.session.close().addCallback(lambda _: self._notify_closed()).addErrback(_over)


async def _nothing(_: Tree) -> None:
    pass


def _ended(failure: Failure) -> None:
    if not failure.check(SessionExpired, CancelledError):
        log.error("internal error after the renewal of the session: %s", failure.getTraceback())


def _over(failure: Failure) -> None:
    failure.trap(SessionExpired)
