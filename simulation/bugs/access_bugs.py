"""Mistakes with ACLs: what brokers keep of them, and when they read them again."""

from __future__ import annotations

from collections.abc import Callable

from simulation.bugs.patching import Patch
from txbroker.api.fetch_item import FetchItem
from txbroker.api.fetch_reading import Fetch
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_store import AclStore


def decisions_outlive_a_change() -> list[Patch]:
    """Decisions are not dropped when the ACLs change."""

    def publish(self: AclAuthorizer, index: AclIndex) -> None:
        self.index = index

    return [Patch(AclAuthorizer, "publish", publish)]


def acls_not_watched_after_a_session() -> list[Patch]:
    """After a new session changes of ACLs are not watched any more."""
    return [Patch(AclStore, "renew", lambda self: None)]


def acls_not_read_after_a_session() -> list[Patch]:
    """After a new session only the changes are read that still have their nodes."""
    return [Patch(AclStore, "renew", lambda self: self._nodes._begin())]


def acls_not_published() -> list[Patch]:
    """A broker that changes ACLs leaves it to its watch to read them: it acknowledges what does not count yet."""

    async def change(self: AclStore, changes: object) -> object:
        replace, self._replace = self._replace, lambda read: None  # type: ignore[method-assign]
        try:
            return await change_together(self, changes)  # type: ignore[arg-type]
        finally:
            self._replace = replace  # type: ignore[method-assign]

    change_together = AclStore._change_together
    return [Patch(AclStore, "_change_together", change)]


def sessions_are_authorized_once() -> list[Patch]:
    """A partition of a fetch session is not authorized again when it is read again."""
    check = Fetch._authorize
    passed: set[FetchItem] = set()

    def authorize(self: Fetch, item: FetchItem) -> None:
        if item not in passed:
            check(self, item)
            passed.add(item)

    return [Patch(Fetch, "_authorize", authorize)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        decisions_outlive_a_change,
        acls_not_watched_after_a_session,
        acls_not_read_after_a_session,
        acls_not_published,
        sessions_are_authorized_once,
    )
}
