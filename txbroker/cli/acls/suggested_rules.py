"""The smallest set of rules that allows what principals did, from what the audit log has of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from txbroker.security.acl_index import IMPLIED_BY
from txbroker.security.acl_model import ANY_HOST, CLUSTER_NAME, AclOperation, AclResource, PatternType

_SEPARATOR = re.compile(r"[._-]")


class Use(NamedTuple):
    """An operation that a principal did, or tried to do. `host`: as Java prints it."""

    principal: str
    host: str
    operation: AclOperation
    resource: AclResource
    name: str

    def __str__(self) -> str:
        return f"{self.operation.title} on {self.resource.title} {self.name} from {self.host}"


class SuggestedRule(NamedTuple):
    """An ACL for each operation and name. `host`: one address, or `*`."""

    principal: str
    host: str
    resource: AclResource
    pattern: PatternType
    names: tuple[str, ...]
    operations: tuple[AclOperation, ...]


class Suggestion(NamedTuple):
    """`rules`: to be added. `covered`: what is allowed already, and by what."""

    rules: list[SuggestedRule]
    covered: dict[Use, str]


def suggested(uses: Iterable[Use], covered_by: Callable[[Use], str | None], *, prefixed: bool, by_host: bool) -> Suggestion:
    """`covered_by`: what allows a use already; None: nothing does. `prefixed`: names that share a prefix get one rule for it, which allows
    other names, too. `by_host`: rules for the addresses that were used, not for all.
    """
    found = sorted(set(uses))
    covered = {use: by for use in found if (by := covered_by(use)) is not None}
    needed: dict[tuple[str, str, AclResource, str], set[AclOperation]] = {}
    for use in found:
        if use not in covered:
            key = use.principal, use.host if by_host else ANY_HOST, use.resource, use.name
            needed.setdefault(key, set()).add(use.operation)
    writers = {(use.principal, use.host if by_host else ANY_HOST) for use in found if _writes_topic(use)}
    alike: dict[tuple[str, str, AclResource, tuple[AclOperation, ...]], list[str]] = {}
    for (principal, host, resource, name), operations in needed.items():
        kept = {each for each in operations if not IMPLIED_BY.get(each, set()) & operations}
        if resource is AclResource.CLUSTER and (principal, host) in writers:
            kept.discard(AclOperation.IDEMPOTENT_WRITE)  # KIP-679
        if kept:
            alike.setdefault((principal, host, resource, tuple(sorted(kept))), []).append(name)
    rules = []
    for (principal, host, resource, kept_operations), names in sorted(alike.items()):
        for pattern, group in _patterns(names if prefixed and names != [CLUSTER_NAME] else [], names).items():
            if group:
                rules.append(SuggestedRule(principal, host, resource, pattern, group, kept_operations))
    return Suggestion(rules, covered)


def _writes_topic(use: Use) -> bool:
    return use.resource is AclResource.TOPIC and use.operation is AclOperation.WRITE


def _patterns(may_share: Iterable[str], names: Iterable[str]) -> Mapping[PatternType, tuple[str, ...]]:
    prefixes = common_prefixes(may_share)
    literal = tuple(name for name in sorted(names) if not name.startswith(prefixes))
    return {PatternType.LITERAL: literal, PatternType.PREFIXED: prefixes}


def common_prefixes(names: Iterable[str]) -> tuple[str, ...]:
    """The longest prefixes that two names or more share and that end with `.`, `_` or `-`, for each beginning up to the first of these."""
    beginnings: dict[str, list[str]] = {}
    for name in set(names):
        separator = _SEPARATOR.search(name)
        if separator is not None:
            beginnings.setdefault(name[: separator.end()], []).append(name)
    found = []
    for shared in beginnings.values():
        if len(shared) > 1:
            first, last = min(shared), max(shared)
            length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
            found.append(first[: max(match.end() for match in _SEPARATOR.finditer(first[:length]))])
    return tuple(sorted(found))
