"""All ACLs of a cluster as one immutable object, and the decisions that follow from them (Kafka's AclAuthorizer).

The entries that count are those of all patterns that apply to the resource, for the principal or `User:*`, the host or `*`, and the
operation or ALL. One that denies decides, then one that allows; without either the operation is denied. An operation is also allowed by
some others (`IMPLIED_BY`), but denying these does not deny it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from txbroker.security.acl_model import (
    ANY_HOST,
    ANY_NAME,
    ANY_USER,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

IMPLIED_BY = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
_DENYING = {operation: {operation, AclOperation.ALL} for operation in AclOperation}
_ALLOWING = {operation: entries | IMPLIED_BY.get(operation, set()) for operation, entries in _DENYING.items()}


class Decision(NamedTuple):
    """Whether an operation is allowed. `by`: the binding that decides; None: none does. `has_acls`: whether any pattern applies."""

    allowed: bool
    by: AclBinding | None
    has_acls: bool


class Rule(NamedTuple):
    """What decides: `by` is SUPER_USER, ACL, NO_ACL or EVERYONE; `acl`: the binding, if one decides."""

    by: str
    acl: AclBinding | None = None


SUPER_USER, ACL, NO_ACL, EVERYONE = "super.users", "ACL", "no ACL", "allow.everyone.if.no.acl.found"


class AclIndex:
    """The entries of each pattern; an empty set of entries counts as no pattern."""

    __slots__ = ("_by_principal", "_lengths", "entries")

    def __init__(self, entries: Mapping[ResourcePattern, frozenset[AclEntry]]) -> None:
        self.entries: Mapping[ResourcePattern, frozenset[AclEntry]] = {pattern: found for pattern, found in entries.items() if found}
        self._by_principal = {pattern: _by_principal(found) for pattern, found in self.entries.items()}
        self._lengths = _prefix_lengths(self.entries)

    def replaced(self, changes: Mapping[ResourcePattern, frozenset[AclEntry]]) -> AclIndex:
        """Another index, with other entries of these patterns."""
        made = AclIndex.__new__(AclIndex)
        entries, by_principal = dict(self.entries), dict(self._by_principal)
        for pattern, found in changes.items():
            if found:
                entries[pattern], by_principal[pattern] = found, _by_principal(found)
            else:
                entries.pop(pattern, None)
                by_principal.pop(pattern, None)
        made.entries, made._by_principal = entries, by_principal
        made._lengths = _prefix_lengths(entries)
        return made

    def bindings(self) -> Iterator[AclBinding]:
        """Every binding, in order."""
        for pattern in sorted(self.entries):
            for entry in sorted(self.entries[pattern]):
                yield AclBinding(pattern, entry)

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """Whether a principal at a host may do this. `host`: an address as Java prints it."""
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        allowed: AclBinding | None = None
        has_acls = False
        for pattern in self._applying(resource, name):
            entries = self._by_principal.get(pattern)
            if entries is None:
                continue
            has_acls = True
            for entry in _of(entries, principal, host):
                if entry.permission is AclPermission.DENY:
                    if entry.operation in denying:
                        return Decision(False, AclBinding(pattern, entry), True)
                elif allowed is None and entry.operation in allowing:
                    allowed = AclBinding(pattern, entry)
        return Decision(allowed is not None, allowed, has_acls)

    def decide_any(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, *, allow_everyone: bool = False
    ) -> bool:
        """Whether there can be a resource of the type with which the principal may do this (AclAuthorizer.authorizeByResourceType).

        `allow_everyone`: of resources without ACLs; they exist unless all are denied.
        """
        found: dict[tuple[AclPermission, PatternType], set[str]] = {(a, p): set() for a in AclPermission for p in PatternType}
        for pattern, entries in self._by_principal.items():
            if pattern.type is not resource:
                continue
            for entry in _of(entries, principal, host):
                wanted = _DENYING if entry.permission is AclPermission.DENY else _ALLOWING
                if entry.operation in wanted[operation]:
                    found[entry.permission, pattern.pattern].add(pattern.name)
        denied = found[AclPermission.DENY, PatternType.LITERAL]
        if ANY_NAME in denied:
            return False
        allowed = found[AclPermission.ALLOW, PatternType.LITERAL]
        if allow_everyone or ANY_NAME in allowed:
            return True
        denied_prefixes = tuple(found[AclPermission.DENY, PatternType.PREFIXED])
        candidates = (allowed - denied) | found[AclPermission.ALLOW, PatternType.PREFIXED]
        return any(not name.startswith(denied_prefixes) for name in candidates)

    def _applying(self, resource: AclResource, name: str) -> Iterator[ResourcePattern]:
        """The patterns that can apply to a resource."""
        yield ResourcePattern(resource, PatternType.LITERAL, name)
        if name != ANY_NAME:
            yield ResourcePattern(resource, PatternType.LITERAL, ANY_NAME)
        for length in self._lengths.get(resource, ()):
            if length > len(name):
                break
            yield ResourcePattern(resource, PatternType.PREFIXED, name[:length])


_Entries = Mapping[str, Sequence[AclEntry]]


def _by_principal(entries: Iterable[AclEntry]) -> _Entries:
    """Sorted, so that the binding that decides is always the same."""
    found: dict[str, list[AclEntry]] = {}
    for entry in sorted(entries):
        found.setdefault(entry.principal, []).append(entry)
    return found


def _of(entries: _Entries, principal: str, host: str) -> Iterator[AclEntry]:
    """The entries for a principal at a host."""
    for key in (principal,) if principal == ANY_USER else (principal, ANY_USER):
        for entry in entries.get(key, ()):
            if entry.host in (ANY_HOST, host):
                yield entry


def _prefix_lengths(patterns: Iterable[ResourcePattern]) -> dict[AclResource, tuple[int, ...]]:
    lengths: dict[AclResource, set[int]] = {}
    for pattern in patterns:
        if pattern.pattern is PatternType.PREFIXED:
            lengths.setdefault(pattern.type, set()).add(len(pattern.name))
    return {resource: tuple(sorted(found)) for resource, found in lengths.items()}
