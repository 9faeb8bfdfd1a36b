"""One session with a tree whose nodes this process keeps: `Tree` in terms of operations on an `Overlay`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred, fail

from txbroker.cluster.tree.interface import (
    ANY_VERSION,
    Create,
    Delete,
    Op,
    OpResult,
    SessionExpired,
    Set,
    Stat,
    TreeError,
    Watcher,
    WatchEvent,
)
from txbroker.cluster.tree.watches import Watches, WatchKind
from txbroker.cluster.tree.znodes import Overlay

T = TypeVar("T")
Operation = Callable[[Overlay], T]
log = logging.getLogger("txbroker.cluster")


class Watch(NamedTuple):
    """A watch that a read sets when it succeeds."""

    kind: WatchKind
    path: str
    watcher: Watcher


class Store(Protocol):
    """What keeps the nodes for its sessions."""

    def submit(self, session: Session, operation: Operation[T], watch: Watch | None = None) -> Deferred[T]:
        """Perform the operation; set the watch if it succeeds. Later, in this order: fire the Deferred, tell watchers."""

    def end(self, session: Session) -> Deferred[None]:
        """Remove what the session owns."""


class Session:
    """Implements `Tree` for every store in this process."""

    def __init__(self, session_id: int, store: Store) -> None:
        self._session_id = session_id
        self._store = store
        self._over = False
        self._expired_callbacks: list[Callable[[], None]] = []
        self._watches = Watches()

    @property
    def session_id(self) -> int:
        """See `Tree`."""
        return self._session_id

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """See `Tree`."""
        return cast("Deferred[str]", self._one(Create(path, data, ephemeral, sequential)))

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """See `Tree`."""
        return self._submit(path, lambda nodes: nodes.data(path), WatchKind.NODE, watch)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """See `Tree`."""
        return cast("Deferred[Stat]", self._one(Set(path, data, version)))

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """See `Tree`."""
        return cast("Deferred[None]", self._one(Delete(path, version)))

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """See `Tree`."""
        return self._submit(path, lambda nodes: nodes.children(path), WatchKind.CHILDREN, watch)

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """See `Tree`."""
        return self._submit(path, lambda nodes: nodes.stat(path), WatchKind.NODE, watch)

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """See `Tree`."""
        performed = tuple(ops)
        return self._submit("/", lambda nodes: nodes.perform(performed, self._session_id))

    def on_expired(self, callback: Callable[[], None]) -> None:
        """See `Tree`."""
        self._expired_callbacks.append(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`."""
        if self._over:
            return fail(SessionExpired("/"))
        self.forget()
        return self._store.end(self)

    def forget(self) -> None:
        """The session is over: it serves nothing more and tells no watcher."""
        self._over = True
        self._watches.clear()

    def expire(self) -> None:
        """Tell that the session has expired (the store has ended it)."""
        self.forget()
        for callback in self._expired_callbacks:
            callback()

    def add_watch(self, watch: Watch) -> None:
        """Set a watch, for the store."""
        if not self._over:
            self._watches.add(*watch)

    def triggered(self, event: WatchEvent) -> list[Callable[[], None]]:
        """The calls, for the store to make, that tell watchers of this event; their watches are gone."""
        return [partial(self._tell, watcher, event) for watcher in self._watches.trigger(event)]

    def _tell(self, watcher: Watcher, event: WatchEvent) -> None:
        if self._over:
            return
        try:
            watcher(event)
        except Exception:
            log.exception("a watcher of %s failed on %s", event.path, event.type.name)

    def _one(self, op: Op) -> Deferred[OpResult]:
        def perform(nodes: Overlay) -> OpResult:
            try:
                return nodes.perform((op,), self._session_id)[0]
            except TreeError as error:
                raise type(error)(error.path) from None

        return self._submit(op.path, perform)

    def _submit(
        self, path: str, operation: Operation[T], kind: WatchKind = WatchKind.NODE, watcher: Watcher | None = None
    ) -> Deferred[T]:
        if self._over:
            return fail(SessionExpired(path))
        return self._store.submit(self, operation, None if watcher is None else Watch(kind, path, watcher))
