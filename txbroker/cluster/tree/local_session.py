"""A session with a tree stored by this process: implements `Tree` with operations on an `Overlay`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred, fail, succeed

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
from txbroker.cluster.tree.watches import Watches, WatchKind, call_watcher, report_expiry
from txbroker.cluster.tree.znodes import Overlay

T = TypeVar("T")
Operation = Callable[[Overlay], T]


class Watch(NamedTuple):
    """A watch that a successful read sets."""

    kind: WatchKind
    path: str
    watcher: Watcher


class Store(Protocol):
    """A store of nodes with its sessions."""

    def submit(self, session: Session, operation: Operation[T], watch: Watch | None = None) -> Deferred[T]:
        """Perform the operation and set the watch if it succeeds. Later, in this order: fire the Deferred, call watchers."""

    def end(self, session: Session) -> Deferred[None]:
        """Delete the session's ephemeral nodes."""


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
        return cast("Deferred[str]", self.one(Create(path, data, ephemeral, sequential)))

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """See `Tree`."""
        return self._submit(path, lambda nodes: nodes.data(path), WatchKind.NODE, watch)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
        """See `Tree`."""
        wanted = tuple(paths)
        return self._submit("/", lambda nodes: [None if nodes.stat(path) is None else nodes.data(path) for path in wanted])

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """See `Tree`."""
        return cast("Deferred[Stat]", self.one(Set(path, data, version)))

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """See `Tree`."""
        return cast("Deferred[None]", self.one(Delete(path, version)))

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

    def sync(self) -> Deferred[None]:
        """See `Tree`: all sessions read the same nodes."""
        return succeed(None)

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
        """End the session: operations fail and watchers are dropped."""
        self._over = True
        self._watches.clear()

    def expire(self) -> None:
        """Report that the store has expired the session."""
        self.forget()
        report_expiry(self._expired_callbacks)

    def add_watch(self, watch: Watch) -> None:
        """Set a watch, for the store."""
        if not self._over:
            self._watches.add(*watch)

    def triggered(self, event: WatchEvent) -> list[Callable[[], None]]:
        """The watcher calls for this event, which the store makes; removes their watches."""
        return [partial(self._notify, watcher, event) for watcher in self._watches.trigger(event)]

    def _notify(self, watcher: Watcher, event: WatchEvent) -> None:
        if not self._over:
            call_watcher(watcher, event)

    def one(self, op: Op) -> Deferred[OpResult]:
        """Perform one operation; its error has no `index`."""

        def perform(nodes: Overlay) -> OpResult:
            try:
                return nodes.perform((op,), self._session_id)[0]
            except TreeError as error:
                raise error.of_one_operation() from None

        return self._submit(op.path, perform)

    def _submit(
        self, path: str, operation: Operation[T], kind: WatchKind = WatchKind.NODE, watcher: Watcher | None = None
    ) -> Deferred[T]:
        if self._over:
            return fail(SessionExpired(path))
        return self._store.submit(self, operation, None if watcher is None else Watch(kind, path, watcher))
