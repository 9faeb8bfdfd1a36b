"""Authorized operations as bit fields (KIP-430). Without an authorizer every client is allowed every operation of a resource."""

from __future__ import annotations

from enum import IntEnum

NOT_REQUESTED = -(2**31)  # the field's value when the client did not request it


class Operation(IntEnum):
    """Kafka's AclOperation codes: each is the number of its bit."""

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


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_O = Operation
TOPIC_OPERATIONS = _bits(
    _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
)
GROUP_OPERATIONS = _bits(_O.READ, _O.DELETE, _O.DESCRIBE)
CLUSTER_OPERATIONS = _bits(
    _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE
)


def authorized_operations(requested: bool, operations: int) -> int:
    """The field's value."""
    return operations if requested else NOT_REQUESTED
