"""The nodes below one parent by which brokers report changes to each other (Kafka's ZkNodeChangeNotificationListener).

Any broker deletes those that are old: a broker without a session for longer than that has missed some, and must read everything again.
"""

from __future__ import annotations

import logging

from txbroker.clock import Clock
from txbroker.cluster.tree.interface import NoNode, Refused, Tree, Watcher

log = logging.getLogger("txbroker.cluster")

CHANGE_KEPT_S = 15 * 60.0


class ChangeNodes:
    """`unread`: the names of the nodes that were listed, in their order, which the owner removes."""

    def __init__(self, tree: Tree, parent: str, clock: Clock) -> None:
        self.unread: dict[str, None] = {}
        self._tree = tree
        self._parent = parent
        self._clock = clock
        self._seen_s: dict[str, float] = {}  # when this broker first saw each node: the age at which it deletes them

    async def list(self, watch: Watcher) -> None:
        """Note the new nodes in order; sets the watch again."""
        names = await self._tree.children(self._parent, watch=watch)
        self.unread.update(dict.fromkeys(name for name in names if name not in self._seen_s))
        now_s = self._clock.seconds()
        self._seen_s = {name: self._seen_s.get(name, now_s) for name in names}

    async def read(self, name: str) -> bytes | None:
        """The data of a node; NoNode if another broker has deleted it."""
        return (await self._tree.get(self.path(name)))[0]

    def path(self, name: str) -> str:
        """The path of a node."""
        return f"{self._parent}/{name}"

    async def purge(self) -> None:
        """Delete the nodes that are older than CHANGE_KEPT_S."""
        now_s = self._clock.seconds()
        for name in [name for name, seen_s in self._seen_s.items() if seen_s <= now_s - CHANGE_KEPT_S]:
            try:
                await self._tree.delete(self.path(name))
            except NoNode:
                continue  # deleted by another broker
            except Refused as error:
                log.warning("an old change node stays for another %.0f min: %s", CHANGE_KEPT_S / 60, error)
                self._seen_s[name] = now_s
