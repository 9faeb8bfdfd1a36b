"""The one-shot watches of one session, and the calls of watchers and of callbacks at its end: an error of one does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum

from txbroker.cluster.tree.interface import EventType, Watcher, WatchEvent
from txbroker.retrying import call_each

log = logging.getLogger("txbroker.cluster")


class WatchKind(Enum):
    """The target of a watch: the node itself (`get`, `exists`) or the list of its children."""

    NODE = "node"
    CHILDREN = "children"


_KINDS = {
    EventType.CREATED: (WatchKind.NODE,),
    EventType.DATA_CHANGED: (WatchKind.NODE,),
    EventType.DELETED: (WatchKind.NODE, WatchKind.CHILDREN),
    EventType.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class Watches:
    """The watches that are set; each is removed when it is triggered."""

    def __init__(self) -> None:
        self._set: dict[tuple[WatchKind, str], dict[Watcher, None]] = {}  # an ordered set

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        """Set a watch; the same one twice counts once."""
        self._set.setdefault((kind, path), {})[watcher] = None

    def trigger(self, event: WatchEvent) -> list[Watcher]:
        """Remove and return the watchers of this event, in the order in which they were set."""
        triggered: dict[Watcher, None] = {}
        for kind in _KINDS[event.type]:
            triggered.update(self._set.pop((kind, event.path), {}))
        return list(triggered)

    def watched(self) -> list[tuple[WatchKind, str]]:
        """The kinds and paths of the watches that are set."""
        return list(self._set)

    def clear(self) -> None:
        """Remove all watches."""
        self._set.clear()


def call_watcher(watcher: Watcher, event: WatchEvent) -> None:
    """Pass the event to a watcher."""
    call_each(log, f"the watcher of {event.path} for event {event.type.name}", lambda: watcher(event))


def report_expiry(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call all callbacks of `Tree.on_expired`."""
    call_each(log, "a callback at the end of a session", *callbacks)
