"""Kafka's model of access control lists (org.apache.kafka.common.acl, KIP-11, KIP-290): codes, bindings, and filters of bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """Kafka's AclOperation codes: each is the number of its bit in authorized operations (KIP-430)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14

    @property
    def title(self) -> str:
        """Its name in JSON and in log lines, as `DescribeConfigs`."""
        return _title(self)


class AclResource(IntEnum):
    """Kafka's ResourceType codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def title(self) -> str:
        """Its name in paths and in log lines, as `TransactionalId`."""
        return _title(self)


# The operations that ACLs of a type of resources can have, besides ALL (Kafka's AclEntry.supportedOperations).
SUPPORTED_OPERATIONS: Mapping[AclResource, Sequence[AclOperation]] = {
    AclResource.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}  # fmt: skip


class PatternType(IntEnum):
    """Kafka's PatternType codes of patterns that are stored."""

    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Kafka's AclPermissionType codes."""

    DENY = 2
    ALLOW = 3

    @property
    def title(self) -> str:
        """Its name in JSON."""
        return _title(self)


def _title(code: IntEnum) -> str:
    return code.name.title().replace("_", "")


ANY = 1  # in a filter: of each of the four
MATCH = 2  # a pattern type in a filter: all patterns that apply to the name
CLUSTER_NAME = "kafka-cluster"  # the only resource of the type CLUSTER
ANY_NAME = "*"  # as the name of a literal pattern: every resource of the type
ANY_USER = "User:*"
ANY_HOST = "*"


class ResourcePattern(NamedTuple):
    """The resources that a list of entries applies to."""

    type: AclResource
    pattern: PatternType
    name: str

    def __str__(self) -> str:
        return f"{self.type.title}:{self.pattern.name}:{self.name}"

    def applies_to(self, name: str) -> bool:
        """Whether a resource of the type with this name is one of them."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class AclEntry(NamedTuple):
    """One entry of a list (AccessControlEntry). `principal`: "Type:name"; `host`: an address as Java prints it, or `*`."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        return f"{self.principal} has {self.permission.name} permission for operations: {self.operation.name} from hosts: {self.host}"


class AclBinding(NamedTuple):
    """An entry and the resources that it applies to."""

    resource: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.resource}"


class AclFilter(NamedTuple):
    """Which bindings a request names (AclBindingFilter). None or ANY: every value; `pattern` may also be MATCH."""

    type: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches_resource(self, resource: ResourcePattern) -> bool:
        """Whether bindings of these resources are named."""
        if self.type not in (ANY, resource.type) or self.pattern not in (ANY, MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        return resource.applies_to(self.name) if self.pattern == MATCH else resource.name == self.name

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether an entry of such resources is named."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )
