"""ACLs of a broker over raw connections, and clients that differ by their addresses on the loopback network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from tests.api.requests import make
from tests.support.raw import RawConnection

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OPEN = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}  # until there are ACLs

ADMIN, OTHER = "127.0.0.1", "127.0.0.9"  # what the system chooses for a client and for brokers, and another
ANYONE = "User:ANONYMOUS"

ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(2, 13)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = range(2, 6)
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
_ANY = 1


class Acl(NamedTuple):
    """One ACL, in the order of the fields of CreateAcls."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def create_acls(address: str, acls: Iterable[Acl]) -> None:
    """Create them."""
    with RawConnection(address) as connection:
        answer = connection.call(make(CreateAclsRequest, {"creations": [acl._asdict() for acl in acls]}), 3)
    assert {result.error_code for result in answer.results} <= {0}, answer


def delete_acls(address: str, acls: Iterable[Acl]) -> None:
    """Delete them; each must exist."""
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", *Acl._fields[5:])
    with RawConnection(address) as connection:
        answer = connection.call(make(DeleteAclsRequest, {"filters": [dict(zip(names, acl, strict=True)) for acl in acls]}), 3)
    assert {(result.error_code, len(result.matching_acls)) for result in answer.filter_results} <= {(0, 1)}, answer


def listed_acls(address: str) -> set[Acl]:
    """All ACLs."""
    everything = {"resource_type_filter": _ANY, "resource_name_filter": None, "pattern_type_filter": _ANY, "principal_filter": None,
                  "host_filter": None, "operation": _ANY, "permission_type": _ANY}  # fmt: skip
    with RawConnection(address) as connection:
        answer = connection.call(make(DescribeAclsRequest, everything), 3)
    assert answer.error_code == 0, answer
    return {Acl(r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
            for r in answer.resources for a in r.acls}  # fmt: skip
