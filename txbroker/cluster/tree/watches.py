"""Which watchers wait for which changes: the one-shot watches of one session."""

from __future__ import annotations

from enum import Enum

from txbroker.cluster.tree.interface import EventType, Watcher, WatchEvent


class WatchKind(Enum):
    """What a watch is set on: the node itself (`get`, `exists`) or the list of its children."""

    NODE = "node"
    CHILDREN = "children"


_TOLD_OF = {
    EventType.CREATED: (WatchKind.NODE,),
    EventType.DATA_CHANGED: (WatchKind.NODE,),
    EventType.DELETED: (WatchKind.NODE, WatchKind.CHILDREN),
    EventType.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class Watches:
    """The watches that are set, each gone once it has been triggered."""

    def __init__(self) -> None:
        self._set: dict[tuple[WatchKind, str], dict[Watcher, None]] = {}  # an ordered set

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        """Set a watch; the same one twice counts once."""
        self._set.setdefault((kind, path), {})[watcher] = None

    def trigger(self, event: WatchEvent) -> list[Watcher]:
        """The watchers that are to be told of this event, in the order in which they were set; they are forgotten here."""
        told: dict[Watcher, None] = {}
        for kind in _TOLD_OF[event.type]:
            told.update(self._set.pop((kind, event.path), {}))
        return list(told)

    def clear(self) -> None:
        """Forget all."""
        self._set.clear()
