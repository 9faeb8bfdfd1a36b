"""Which bindings a request may create or name, and what a request makes of the entries of each pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclResource,
    ResourcePattern,
)
from txbroker.security.principals import check_principal


def check_binding(binding: AclBinding) -> None:
    """INVALID_REQUEST for a binding that no node can have. Kafka stores all others, also those that never match."""
    resource, entry = binding
    name = resource.name
    problem = ""
    if resource.type is AclResource.CLUSTER and name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}."
    elif not name:
        problem = "The name of the resource is empty."
    elif "/" in name or "\0" in name or name in (".", ".."):
        problem = f"The name of a resource in an ACL must not contain / and must not be . or ..: {name!r}."
    try:
        check_principal(entry.principal)
    except ValueError as error:
        problem = problem or f"{error}."
    if problem:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)


class Addition:
    """Entries that are added to those of a pattern."""

    def __init__(self) -> None:
        self.entries: set[AclEntry] = set()

    def __call__(self, before: frozenset[AclEntry]) -> frozenset[AclEntry]:
        return before | self.entries


class Removal:
    """Entries that are removed from those of a pattern. `removed`: those that were there, by the position of the first filter for each."""

    def __init__(self, filters: Mapping[int, AclFilter]) -> None:
        self.filters = filters
        self.removed: dict[AclEntry, int] = {}

    def __call__(self, before: frozenset[AclEntry]) -> frozenset[AclEntry]:
        first = {entry: [n for n, each in self.filters.items() if each.matches_entry(entry)] for entry in before}
        self.removed = {entry: positions[0] for entry, positions in first.items() if positions}
        return before - self.removed.keys()


def additions(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, Addition]:
    """What creates these bindings."""
    found: dict[ResourcePattern, Addition] = {}
    for binding in bindings:
        found.setdefault(binding.resource, Addition()).entries.add(binding.entry)
    return found


def removals(index: AclIndex, filters: Mapping[int, AclFilter]) -> dict[ResourcePattern, Removal]:
    """What deletes the bindings that these filters name, by their positions in the request."""
    found: dict[ResourcePattern, Removal] = {}
    for pattern in sorted(index.entries):
        removal = Removal({n: each for n, each in filters.items() if each.matches_resource(pattern)})
        removal(index.entries[pattern])
        if removal.removed:
            found[pattern] = removal
    return found
