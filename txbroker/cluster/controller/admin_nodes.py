"""Requests to the controller that are nodes in the tree: those of old tools, and ISR changes of old brokers.

    /admin/reassign_partitions           reassignments (tools before Kafka 2.4); entries are removed when they are complete or replaced
    /admin/preferred_replica_election    preferred elections (tools before 2.4); deleted when they are done
    /isr_change_notification/isr_change_N    partitions whose leader has written a new ISR into the tree (brokers before 2.7)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from txbroker.cluster import node_paths
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.elect_leaders import ElectionType, elect_leaders
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.controller.reassignment import Reassignments
from txbroker.cluster.node_data import MalformedNode, decode_partitions, decode_reassignments, encode_reassignments
from txbroker.cluster.tree.interface import Delete, NoNode, Refused, Set, Tree, Watcher
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.controller")


class AdminNodes:
    """Reads these nodes, does what they request, and removes them."""

    def __init__(
        self,
        tree: Tree,
        context: ControllerContext,
        leadership: Leadership,
        nodes: StateNodes,
        outbox: OutgoingRequests,
        reassignments: Reassignments,
        watcher: Callable[[Callable[[], Awaitable[None]]], Watcher],
    ) -> None:
        """`watcher` makes a watcher that calls a handler as a step of the controller."""
        self._tree = tree
        self._context = context
        self._leadership = leadership
        self._nodes = nodes
        self._outbox = outbox
        self._reassignments = reassignments
        self._reassigning: dict[TopicPartition, tuple[int, ...]] = {}  # the entries of /admin/reassign_partitions
        self._reassign_watch = watcher(self.reassign)
        self._elect_watch = watcher(self.elect)
        self._isr_watch = watcher(self.isr_changed)

    async def reassign(self) -> None:
        """Begin the reassignments of `/admin/reassign_partitions`, if it exists."""
        path = node_paths.REASSIGN_PARTITIONS
        if await self._tree.exists(path, watch=self._reassign_watch) is None:
            self._reassigning = {}
            return
        try:
            wanted = decode_reassignments((await self._tree.get(path))[0])
        except NoNode:
            return
        except MalformedNode as error:
            log.error("deleting %s: %s", path, error)
            wanted = {}
        new = {tp: target for tp, target in wanted.items() if self._reassigning.get(tp) != target}
        for topic_partition, refused in (await self._reassignments.alter(new)).items():
            if refused is not None:
                log.warning("%s: the reassignment of %s is refused: %s", path, topic_partition, refused)
        self._reassigning = wanted
        await self._write_reassigning(force=True)

    async def reassignments_changed(self) -> None:
        """Remove the reassignments that are complete, or have been replaced, from `/admin/reassign_partitions`."""
        await self._write_reassigning(force=False)

    async def _write_reassigning(self, *, force: bool) -> None:
        if not (self._reassigning or force):
            return
        in_progress = self._reassignments.in_progress()
        left = {tp: target for tp, target in self._reassigning.items() if tp in in_progress and in_progress[tp].target == target}
        if left == self._reassigning and (left or not force):
            return
        self._reassigning = left
        path = node_paths.REASSIGN_PARTITIONS
        try:
            await self._nodes.write([Set(path, encode_reassignments(left)) if left else Delete(path)])
        except NoNode:
            return
        except Refused as error:
            log.error("completed reassignments stay in %s: %s", path, error)

    async def elect(self) -> None:
        """Do the elections of `/admin/preferred_replica_election`, if it exists, and delete it."""
        path = node_paths.PREFERRED_ELECTION
        if await self._tree.exists(path, watch=self._elect_watch) is None:
            return
        try:
            partitions = decode_partitions((await self._tree.get(path))[0])
        except NoNode:
            return
        except MalformedNode as error:
            log.error("deleting %s: %s", path, error)
            partitions = []
        await elect_leaders(ElectionType.PREFERRED, partitions, self._context, self._leadership, self._outbox)
        await self._delete(path)

    async def isr_changed(self) -> None:
        """Read the states of the partitions in `/isr_change_notification` again, and send them to all brokers."""
        names = await self._tree.children(node_paths.ISR_CHANGES, watch=self._isr_watch)
        paths = [f"{node_paths.ISR_CHANGES}/{name}" for name in names]
        changed = [tp for tp in dict.fromkeys(await self._changes(paths)) if tp in self._context.states]
        await self._leadership.refresh(changed)
        batch = self._outbox.batch()
        batch.metadata(self._context.brokers, changed)
        if changed:
            self._outbox.send(batch)
        for path in paths:
            await self._delete(path)
        await self._reassignments.complete()
        await self.reassignments_changed()

    async def _changes(self, paths: Iterable[str]) -> list[TopicPartition]:
        changed: list[TopicPartition] = []
        for path in paths:
            try:
                changed += decode_partitions((await self._tree.get(path))[0])
            except NoNode:
                continue
            except Refused as error:
                log.error("skipping %s: %s", path, error)
            except MalformedNode as error:
                log.error("deleting %s: %s", path, error)
        return changed

    async def _delete(self, path: str) -> None:
        try:
            await self._nodes.write([Delete(path)])
        except NoNode:
            return
        except Refused as error:
            log.error("%s stays: %s", path, error)
