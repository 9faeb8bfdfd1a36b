"""The ACLs in the metadata tree: read, watched, and changed as Kafka's AclAuthorizer does it.

A change writes the node of a pattern if it still has the version that was read, and in the same transaction a node that reports it, so
that no broker can miss a change whose writer ends in between. What was read replaces what was known at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.interface import BadVersion, Create, Delete, NodeExists, NoNode, Op, Refused, Set, Stat, Tree
from txbroker.cluster.tree.operations import children_of, for_admin, for_client, read_all, repeated, together, written
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import AclEntry, AclResource, PatternType, ResourcePattern
from txbroker.security.acl_nodes import (
    ACL_STRUCTURE,
    CHANGE_NAME,
    CHANGES,
    NO_ACLS,
    ROOTS,
    AclNode,
    acl_path,
    decode_acl,
    decode_acl_change,
    encode_acl,
    encode_acl_change,
    unreadable,
)
from txbroker.security.reported_nodes import NodeProblems, ReportedNodes

log = logging.getLogger("txbroker.security")

ATTEMPTS_MAX = 100  # of a change; each that fails means that another broker's has succeeded
PATTERNS_MAX = 100  # that are changed together

Entries = frozenset[AclEntry]
Compute = Callable[[Entries], Entries]
_Read = Mapping[ResourcePattern, tuple[AclNode, int | None]]  # the version of the node; None if it does not exist


class AclStore:
    """The ACLs of a cluster. `index`: those of the moment."""

    def __init__(
        self, tree: Tree, publish: Callable[[AclIndex], None], clock: Clock, chance: Callable[[], float], *, is_shared: bool
    ) -> None:
        """`publish` is called with all ACLs whenever they have changed. `is_shared`: other brokers write to the tree, too.

        `chance` returns numbers from 0 to 1.
        """
        self.index = AclIndex({})
        self._tree = tree
        self._publish = publish
        self._problems = NodeProblems(_log_problem)
        changes = {parent: partial(decode_acl_change, pattern=kind) for kind, parent in CHANGES.items()}
        self._nodes = ReportedNodes("ACLs", tree, clock, chance, changes, self._load, self._read_changed, is_shared=is_shared)

    def start(self) -> Deferred[None]:
        """Begin to watch. The ACLs are published when the Deferred fires."""
        return Deferred.fromCoroutine(self._start())

    def renew(self) -> None:
        """Watch in the next session of the tree, and read everything again: changes may have been missed."""
        self._nodes.renew()

    def stop(self) -> None:
        """Read no more."""
        self._nodes.stop()

    def change(self, changes: Mapping[ResourcePattern, Compute]) -> Deferred[dict[ResourcePattern, BrokerError | None]]:
        """Replace the entries of each pattern by what its function makes of them; it is called again after a concurrent change.

        Fires when they count on this broker, with the error of each pattern. A request's changes take effect together, as far as
        PATTERNS_MAX patterns. BrokerError if the tree cannot be used now.
        """
        return for_admin(self._nodes.locked(lambda: self._change(changes)))

    async def _start(self) -> None:
        await repeated(self._create_structure)
        await self._nodes.start()

    async def _create_structure(self) -> None:
        stats = await together([self._tree.exists(path) for path in ACL_STRUCTURE])
        for path in [path for path, stat in zip(ACL_STRUCTURE, stats, strict=True) if stat is None]:
            try:
                await self._tree.create(path)
            except NodeExists:
                continue  # another broker has created it in the meantime

    # Reading

    async def _load(self) -> None:
        """Read and publish all ACLs."""
        kinds = [(resource, pattern) for pattern in PatternType for resource in AclResource]
        names = await children_of(self._tree, [f"{ROOTS[pattern]}/{resource.title}" for resource, pattern in kinds])
        patterns = [ResourcePattern(*kind, name) for kind, listed in zip(kinds, names, strict=True) for name in listed or ()]
        read = await self._read(patterns)
        gone = {pattern: (NO_ACLS, None) for pattern in self.index.entries if pattern not in read}
        self._replace({**read, **gone})
        self._problems.keep(read)

    async def _read_changed(self, patterns: Collection[ResourcePattern]) -> None:
        self._replace(await self._read(patterns))

    async def _read(self, patterns: Iterable[ResourcePattern]) -> _Read:
        wanted = list(patterns)
        nodes = await read_all(self._tree, [acl_path(pattern) for pattern in wanted])
        return {pattern: _decoded(node) for pattern, node in zip(wanted, nodes, strict=True)}

    def _replace(self, read: _Read) -> None:
        changes = {}
        for pattern, (node, _) in read.items():
            self._problems.report(pattern, node.problem)
            if node.entries != self.index.entries.get(pattern, NO_ACLS.entries):
                changes[pattern] = node.entries
        if changes:
            self.index = self.index.replaced(changes)
            self._publish(self.index)

    # Changing

    async def _change(self, changes: Mapping[ResourcePattern, Compute]) -> dict[ResourcePattern, BrokerError | None]:
        results: dict[ResourcePattern, BrokerError | None] = {}
        patterns = list(changes)
        for start in range(0, len(patterns), PATTERNS_MAX):
            part = {pattern: changes[pattern] for pattern in patterns[start : start + PATTERNS_MAX]}
            results |= await self._change_together(part)
        return results

    async def _change_together(self, changes: Mapping[ResourcePattern, Compute]) -> dict[ResourcePattern, BrokerError | None]:
        errors: dict[ResourcePattern, BrokerError | None] = dict.fromkeys(changes)
        for _ in range(ATTEMPTS_MAX):
            before = await self._read(pattern for pattern, error in errors.items() if error is None)
            errors |= {pattern: _damaged(pattern, node) for pattern, (node, _) in before.items() if node.problem}
            after = {p: changes[p](node.entries) for p, (node, _) in before.items() if not node.problem}
            ops, owners = _operations(before, after)
            try:
                if ops:
                    await written(self._tree.multi(ops), self._tree, partial(self._has, after))
            except (BadVersion, NodeExists, NoNode) as error:
                if isinstance(error, NoNode):
                    await self._create_structure()
                continue
            except Refused as error:
                if error.index is not None or len(after) == 1:
                    errors[owners[error.index or 0]] = for_client(error)
                    continue
                for pattern in after:  # the whole is too large
                    errors |= await self._change_together({pattern: changes[pattern]})
                return errors
            self._replace(await self._read(before))
            return errors
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "The ACLs are changed by other requests all the time; try again.")

    async def _has(self, after: Mapping[ResourcePattern, Entries]) -> bool:
        read = await self._read(after)
        return all(read[pattern][0].entries == entries for pattern, entries in after.items())


def _log_problem(pattern: ResourcePattern, problem: str) -> None:
    log.error("what cannot be read of the ACLs at %s denies access until it is repaired or deleted: %s", acl_path(pattern), problem)


def _decoded(node: tuple[bytes | None, Stat] | Refused | None) -> tuple[AclNode, int | None]:
    if node is None:
        return NO_ACLS, None
    if isinstance(node, Refused):
        return unreadable(str(node)), None
    return decode_acl(node[0]), node[1].version


def _damaged(pattern: ResourcePattern, node: AclNode) -> BrokerError:
    return for_client(MalformedNode(f"{acl_path(pattern)}: {node.problem}"))


def _operations(before: _Read, after: Mapping[ResourcePattern, Entries]) -> tuple[Sequence[Op], Sequence[ResourcePattern]]:
    """What changes the nodes, and the pattern of each operation."""
    ops: list[Op] = []
    owners: list[ResourcePattern] = []
    for pattern, entries in after.items():
        node, version = before[pattern]
        if entries == node.entries:
            continue
        path = acl_path(pattern)
        if version is None:
            ops.append(Create(path, encode_acl(entries)))
        elif entries:
            ops.append(Set(path, encode_acl(entries), version))
        else:
            ops.append(Delete(path, version))
        ops.append(Create(f"{CHANGES[pattern.pattern]}/{CHANGE_NAME}", encode_acl_change(pattern), sequential=True))
        owners += [pattern, pattern]
    return ops, owners
