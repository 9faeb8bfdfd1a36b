"""The nodes in which ACLs are kept, as Kafka's AclAuthorizer has them: paths, JSON, and the nodes that report changes.

The names of resources are part of the paths as they are. A node that another program damaged must not allow anything: what cannot be read
of it denies (`decode_acl`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from txbroker.cluster.node_data import MalformedNode, to_json
from txbroker.cluster.node_paths import ACL_ROOTS
from txbroker.security.acl_model import (
    ANY_HOST,
    ANY_USER,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

ROOTS = dict(zip((PatternType.LITERAL, PatternType.PREFIXED), ACL_ROOTS, strict=True))
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_NAME = "acl_changes_"

# The nodes that a broker with an authorizer creates at its start; parents before children.
ACL_STRUCTURE = (
    "/kafka-acl",
    *(f"/kafka-acl/{resource.title}" for resource in AclResource),
    "/kafka-acl-extended",
    "/kafka-acl-extended/prefixed",
    *(f"/kafka-acl-extended/prefixed/{resource.title}" for resource in AclResource),
    *CHANGES.values(),
)

_OPERATIONS = {operation.title.lower(): operation for operation in AclOperation}
_PERMISSIONS = {permission.title.lower(): permission for permission in AclPermission}
_RESOURCES = {resource.title.lower(): resource for resource in AclResource}


class AclNode(NamedTuple):
    """What a node says. `problem`: why a part of it cannot be read, for which `entries` has entries that deny; "" if it is valid."""

    entries: frozenset[AclEntry]
    problem: str = ""


NO_ACLS = AclNode(frozenset())


def unreadable(problem: str) -> AclNode:
    """A node of which nothing can be read: it denies everything."""
    return AclNode(frozenset({AclEntry(ANY_USER, ANY_HOST, AclOperation.ALL, AclPermission.DENY)}), problem)


def acl_path(resource: ResourcePattern) -> str:
    """The node with the entries of a pattern."""
    return f"{ROOTS[resource.pattern]}/{resource.type.title}/{resource.name}"


def encode_acl(entries: Iterable[AclEntry]) -> bytes:
    """`/kafka-acl/TYPE/NAME`."""
    acls = [
        {"principal": e.principal, "permissionType": e.permission.title, "host": e.host, "operation": e.operation.title}
        for e in sorted(entries)
    ]
    return to_json({"acls": acls, "version": 1})


def decode_acl(data: bytes | None) -> AclNode:
    """`/kafka-acl/TYPE/NAME`. An entry that cannot be read denies what it may concern: at most everything."""
    if not data:
        return NO_ACLS
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("acls"), list):
            raise ValueError("not a list of ACLs of version 1")
    except (ValueError, RecursionError) as error:
        return unreadable(f"it is not valid: {error}")
    found = [_entry(item) for item in value["acls"]]
    problems = [problem for _, problem in found if problem]
    return AclNode(frozenset(entry for entry, _ in found), problems[0] if problems else "")


def _entry(item: Any) -> tuple[AclEntry, str]:
    """An entry, or one that denies, and what cannot be read."""
    fields = item if isinstance(item, dict) else {}
    principal, host = str(fields.get("principal")), fields.get("host")
    operation = _OPERATIONS.get(str(fields.get("operation")).lower())
    permission = _PERMISSIONS.get(str(fields.get("permissionType")).lower())
    is_principal = ":" in principal and isinstance(fields["principal"], str)
    if is_principal and isinstance(host, str) and operation is not None and permission is not None:
        return AclEntry(principal, host, operation, permission), ""
    denying = AclEntry(
        principal if is_principal else ANY_USER,
        host if isinstance(host, str) else ANY_HOST,
        operation or AclOperation.ALL,
        AclPermission.DENY,
    )
    return denying, f"an entry is not valid: {str(item)[:200]}"


def encode_acl_change(resource: ResourcePattern) -> bytes:
    """`/kafka-acl-changes/acl_changes_N`, which is plain text, or `/kafka-acl-extended-changes/acl_changes_N`."""
    if resource.pattern is PatternType.LITERAL:
        return f"{resource.type.name}:{resource.name}".encode()
    return to_json({"version": 1, "resourceType": resource.type.name, "name": resource.name, "patternType": resource.pattern.name})


def decode_acl_change(data: bytes | None, pattern: PatternType) -> ResourcePattern:
    """The pattern whose node has changed; MalformedNode. `pattern`: of the parent node of the change."""
    try:
        text = (data or b"").decode()
        if pattern is PatternType.LITERAL:
            kind, _, name = text.partition(":")
        else:
            value = json.loads(text)
            kind, name = value["resourceType"], value["name"]
            if value["patternType"] != pattern.name or not isinstance(name, str):
                raise ValueError("not a prefix")
        if not name:
            raise ValueError("no name")
        return ResourcePattern(_RESOURCES[kind.replace("_", "").lower()], pattern, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedNode(f"{data[:200] if data else data!r} is not a valid change of ACLs: {type(error).__name__} {error}") from error
