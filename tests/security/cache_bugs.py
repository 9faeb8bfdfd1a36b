"""Deliberate bugs of everything that requests of several principals share: the property test must find each of them.

A bug is a list of patches of the broker's classes and modules, as in `simulation/bugs`; its docstring says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.api import authorization, metadata
from txbroker.api.authorization import CheckedContext
from txbroker.api.fetch_item import FetchClient, FetchItem
from txbroker.api.fetch_reading import Fetch
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.metadata import MetadataHandler
from txbroker.errors import BrokerError
from txbroker.security import acl_index
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import AclEntry, AclOperation, AclPermission, AclResource, PatternType
from txbroker.security.principals import java_address
from txbroker.security.sasl_login import SaslLogin


def _decisions_by(key: Callable[..., Any]) -> list[Patch]:
    """Decisions that are kept under this key, until the ACLs change."""

    def authorize(self: AclAuthorizer, client: Any, operation: AclOperation, resource: AclResource, name: str) -> bool:
        if client.principal in self._super_users:
            return True
        kept: Any = self._decisions.setdefault(("", ""), {})
        wanted = key(client, operation, resource, name)
        if wanted not in kept:
            kept[wanted] = self.decide(client.principal, java_address(client.peer_host), operation, resource, name).allowed
        return bool(kept[wanted])

    return [Patch(AclAuthorizer, "authorize", authorize)]


def decisions_without_the_principal() -> list[Patch]:
    """A decision is kept for all clients at the address of the first who asked."""
    return _decisions_by(lambda client, *what: (client.peer_host, *what))


def decisions_without_the_address() -> list[Patch]:
    """A decision is kept for all addresses of a principal."""
    return _decisions_by(lambda client, *what: (client.principal, *what))


def decisions_without_the_operation() -> list[Patch]:
    """A client that may do something with a resource may do everything with it."""
    return _decisions_by(lambda client, operation, resource, name: (client.principal, client.peer_host, resource, name))


def decisions_outlive_a_change() -> list[Patch]:
    """Decisions are not dropped when the ACLs change."""

    def publish(self: AclAuthorizer, index: AclIndex) -> None:
        self.index = index

    return [Patch(AclAuthorizer, "publish", publish)]


def metadata_without_the_principal() -> list[Patch]:
    """A response of Metadata is kept for all principals, until the cluster changes."""
    answered = MetadataHandler._now

    def now(self: MetadataHandler, request: Any, context: Any) -> Any:
        kept = vars(self).setdefault("_kept", {})
        names = None if request.topics is None else tuple(topic.name for topic in request.topics)
        key = names, context.api_version, request.include_topic_authorized_operations, self._image.version
        if key not in kept:
            kept[key] = answered(self, request, context)
        return kept[key]

    return [Patch(MetadataHandler, "_now", now)]


def operations_of_topics_without_the_principal() -> list[Patch]:
    """The authorized operations of a topic are those of the first who asked."""
    kept: dict[str, int] = {}

    def operations(requested: bool, context: Any, name: str) -> int:
        if not requested:
            return -(2**31)
        if name not in kept:
            kept[name] = asked(requested, context, name)
        return kept[name]

    asked = metadata._topic_operations
    return [Patch(metadata, "_topic_operations", operations)]


def readers_without_the_principal() -> list[Patch]:
    """Requests of the same kind of consumer share the description of the reader, also of different principals."""

    def is_of(self: FetchClient, request: Any, context: Any) -> bool:
        return bool(self.replica == request.replica_id and self.any_replica == (context.api_version >= 11))

    return [Patch(FetchClient, "is_of", is_of)]


def sessions_of_anybody() -> list[Patch]:
    """A fetch session is found by its id alone."""
    return [Patch(FetchSessions, "find", lambda self, session_id, client: self._sessions.get(session_id))]


def sessions_are_authorized_once() -> list[Patch]:
    """A partition of a session is not authorized again when it is read again."""
    check = Fetch._authorize
    passed: set[FetchItem] = set()

    def authorize(self: Fetch, item: FetchItem) -> None:
        if item not in passed:
            check(self, item)
            passed.add(item)

    return [Patch(Fetch, "_authorize", authorize)]


def waiting_fetches_are_authorized_once() -> list[Patch]:
    """What moves under a fetch that waits is read without asking the authorizer again."""
    reading: list[Fetch] = []
    check, read_moved = Fetch._authorize, Fetch.read_moved

    def moved(self: Fetch) -> bool:
        reading.append(self)
        try:
            return read_moved(self)
        finally:
            reading.pop()

    def authorize(self: Fetch, item: FetchItem) -> None:
        if self not in reading:
            check(self, item)

    return [Patch(Fetch, "read_moved", moved), Patch(Fetch, "_authorize", authorize)]


def errors_of_partitions_are_kept() -> list[Patch]:
    """A partition that was denied once stays denied in its session."""
    check = Fetch._authorize
    denied: dict[FetchItem, BrokerError] = {}

    def authorize(self: Fetch, item: FetchItem) -> None:
        if item in denied:
            raise denied[item]
        try:
            check(self, item)
        except BrokerError as error:
            denied[item] = error
            raise

    return [Patch(Fetch, "_authorize", authorize)]


def renewed_sessions_change_their_user() -> list[Patch]:
    """A client that logs in again may be another user."""
    return [Patch(SaslLogin, "_check_principal", lambda self, principal: None)]


def denied_items_are_handled() -> list[Patch]:
    """The handler receives the whole request, and its answers stay beside the denials."""
    return [Patch(authorization, "_with", lambda request, items, kept: request)]


def one_denial_is_enough() -> list[Patch]:
    """Only the first denied item of a request is refused."""
    satisfies = CheckedContext.satisfies

    def first(self: CheckedContext, need: Any, name: str, count: int) -> bool:
        if satisfies(self, need, name, count):
            return True
        key = id(self)
        seen, refused[0] = refused[0] == key, key
        return seen

    refused = [0]
    return [Patch(CheckedContext, "satisfies", first)]


def lists_are_not_filtered() -> list[Patch]:
    """What a client may not see is not left out of lists."""
    may = CheckedContext.may

    def allowed(self: CheckedContext, operation: Any, resource: Any, name: str = "kafka-cluster", *, logged: bool = True) -> bool:
        return (not logged and operation == AclOperation.DESCRIBE) or may(self, operation, resource, name, logged=logged)

    return [Patch(CheckedContext, "may", allowed)]


def _deciding(ignored: Callable[[AclEntry, PatternType], bool]) -> list[Patch]:
    """Entries that are ignored."""
    made = AclIndex.replaced

    def replaced(self: AclIndex, changes: Any) -> AclIndex:
        return made(self, {pattern: frozenset(entry for entry in found if not ignored(entry, pattern.pattern))
                           for pattern, found in changes.items()})  # fmt: skip

    return [Patch(AclIndex, "replaced", replaced)]


def denials_of_prefixes_are_ignored() -> list[Patch]:
    """An entry that denies is ignored if its pattern is a prefix."""
    return _deciding(lambda entry, pattern: entry.permission is AclPermission.DENY and pattern is PatternType.PREFIXED)


def removed_rules_stay() -> list[Patch]:
    """A pattern that loses its last entry keeps it (as CVE-2024-27309, the other way round)."""
    made = AclIndex.replaced

    def replaced(self: AclIndex, changes: Any) -> AclIndex:
        return made(self, {pattern: found for pattern, found in changes.items() if found})

    return [Patch(AclIndex, "replaced", replaced)]


def one_rule_of_a_resource_is_kept() -> list[Patch]:
    """After the removal of an entry only one of the rest is kept (CVE-2024-27309)."""
    made = AclIndex.replaced

    def replaced(self: AclIndex, changes: Any) -> AclIndex:
        index = made(self, changes)
        for pattern, found in changes.items():
            if 0 < len(found) < len(self.entries.get(pattern, ())):
                index._by_principal[pattern] = acl_index._by_principal(sorted(found)[:1])
        return index

    return [Patch(AclIndex, "replaced", replaced)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        decisions_without_the_principal, decisions_without_the_address, decisions_without_the_operation, decisions_outlive_a_change,
        metadata_without_the_principal, operations_of_topics_without_the_principal, readers_without_the_principal, sessions_of_anybody,
        sessions_are_authorized_once, waiting_fetches_are_authorized_once, errors_of_partitions_are_kept,
        renewed_sessions_change_their_user, denied_items_are_handled, one_denial_is_enough, lists_are_not_filtered,
        denials_of_prefixes_are_ignored, removed_rules_stay, one_rule_of_a_resource_is_kept,
    )
}  # fmt: skip
