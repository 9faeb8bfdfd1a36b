"""What the flags of `txbroker acls` name: resources, and the entries for them, by the rules of Kafka's AclCommand."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from txbroker.console.failures import BadUsage
from txbroker.security.acl_model import (
    ANY,
    ANY_HOST,
    CLUSTER_NAME,
    MATCH,
    SUPPORTED_OPERATIONS,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from txbroker.security.principals import check_principal

PATTERNS = {"any": ANY, "match": MATCH, "literal": int(PatternType.LITERAL), "prefixed": int(PatternType.PREFIXED)}
_FLAGS = {
    "topic": (AclResource.TOPIC, "a topic; * for all of them"),
    "group": (AclResource.GROUP, "a consumer group"),
    "transactional-id": (AclResource.TRANSACTIONAL_ID, "a transactional id"),
    "delegation-token": (AclResource.DELEGATION_TOKEN, "the id of a delegation token"),
    "user-principal": (AclResource.USER, "a principal whose delegation tokens others may create or describe"),
}
PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
TRANSACTIONS = (AclOperation.WRITE, AclOperation.DESCRIBE)
CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)


class Named(NamedTuple):
    """Resources as flags name them. `pattern`: a PatternType, or ANY or MATCH, which only filters can have."""

    type: AclResource
    pattern: int
    name: str

    def __str__(self) -> str:
        pattern = {number: word.upper() for word, number in PATTERNS.items()}[self.pattern]
        return f"ResourcePattern(resourceType={self.type.name}, name={self.name}, patternType={pattern})"

    @property
    def flag(self) -> str:
        """The flag that names one."""
        return next((f"--{flag}" for flag, (kind, _) in _FLAGS.items() if kind is self.type), "--cluster")

    @property
    def flags(self) -> str:
        """The flag and its value, for a shell; the pattern is not in it."""
        return self.flag if self.type is AclResource.CLUSTER else with_value(self.flag, self.name)


def with_value(flag: str, value: str) -> str:
    """A flag and its value, for a shell."""
    return f"{flag}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"


def operation(text: str) -> AclOperation:
    """The type of --operation."""
    plain = text.replace("_", "").replace("-", "").lower()
    for each in AclOperation:
        if each.title.lower() == plain:
            return each
    raise argparse.ArgumentTypeError(f"must be one of {', '.join(each.title for each in AclOperation)}, not {text!r}")


def principal(text: str) -> str:
    """The type of the flags for principals."""
    try:
        check_principal(text.strip())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text.strip()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags for resources and entries."""
    for flag, (_, what) in _FLAGS.items():
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="NAME", help=f"{what}; can be specified several times")
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    pattern_help = "literal (the default), prefixed; or match or any, with --list and --remove"
    parser.add_argument("--resource-pattern-type", type=str.lower, choices=PATTERNS, default="literal", help=pattern_help)
    several = "can be specified several times"
    operation_help = f"an operation, such as Read, Write or All (the default); {several}"
    parser.add_argument("--operation", action="append", type=operation, default=[], metavar="NAME", help=operation_help)
    for permission in ("allow", "deny"):
        who_help = f"a principal to {permission}, as User:alice; {several}"
        parser.add_argument(f"--{permission}-principal", action="append", type=principal, default=[], metavar="TYPE:NAME", help=who_help)
        host_help = f"the address of the principals of --{permission}-principal; {several}; all by default"
        parser.add_argument(f"--{permission}-host", action="append", default=[], metavar="ADDRESS", help=host_help)
    listed = f"with --list and suggest: only those of this principal; {several}. With explain: the principal"
    parser.add_argument("--principal", action="append", type=principal, default=[], metavar="TYPE:NAME", help=listed)
    parser.add_argument("--producer", action="store_true", help="with --topic: what a producer needs; with --transactional-id, too")
    parser.add_argument("--consumer", action="store_true", help="with --topic and --group: what a consumer needs")
    parser.add_argument("--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster, for old brokers")
    parser.add_argument("--force", action="store_true", help="with --remove: do not ask")


def named(arguments: argparse.Namespace) -> list[Named]:
    """The resources, each once; BadUsage for an empty name, which no resource has."""
    pattern = PATTERNS[arguments.resource_pattern_type]
    found = [
        Named(kind, pattern, name.strip())
        for flag, (kind, _) in _FLAGS.items()
        for name in getattr(arguments, flag.replace("-", "_"))
    ]
    for resource in found:
        if not resource.name:
            raise BadUsage(f"{resource.flag} must not be empty")
    if arguments.cluster:
        found.append(_cluster())
    return list(dict.fromkeys(found))


def wanted(arguments: argparse.Namespace) -> dict[Named, list[AclEntry]]:
    """The entries of each resource; none if no principal is named (to remove all entries). BadUsage."""
    resources = named(arguments)
    if not resources:
        raise BadUsage("name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or --user-principal")
    if not arguments.producer and not arguments.consumer:
        for resource in resources:
            _check_operations(resource, arguments.operation)
        return {resource: entries(arguments, arguments.operation or [AclOperation.ALL]) for resource in resources}
    if arguments.operation:
        raise BadUsage("--operation cannot be combined with --producer and --consumer, which choose the operations")
    kinds = {resource.type for resource in resources}
    if AclResource.TOPIC not in kinds or (arguments.consumer and AclResource.GROUP not in kinds):
        raise BadUsage("--producer needs --topic, and --consumer needs --topic and --group")
    found: dict[Named, list[AclEntry]] = {}
    for resource in resources:
        operations: list[AclOperation] = []
        if resource.type is AclResource.TOPIC:
            operations += [*(PRODUCER if arguments.producer else ()), *(CONSUMER if arguments.consumer else ())]
        elif resource.type is AclResource.GROUP and arguments.consumer:
            operations.append(AclOperation.READ)
        elif resource.type is AclResource.TRANSACTIONAL_ID and arguments.producer:
            operations += TRANSACTIONS
        else:
            raise BadUsage(f"{resource.flag} cannot be combined with --producer and --consumer")
        found[resource] = entries(arguments, list(dict.fromkeys(operations)))
    if arguments.idempotent:
        found[_cluster()] = entries(arguments, [AclOperation.IDEMPOTENT_WRITE])
    return found


def entries(arguments: argparse.Namespace, operations: Sequence[AclOperation]) -> list[AclEntry]:
    """The entries for the principals of the flags; BadUsage for addresses without a principal."""
    found = []
    for permission in AclPermission:
        word = permission.title.lower()
        principals: list[str] = getattr(arguments, f"{word}_principal")
        hosts: list[str] = getattr(arguments, f"{word}_host")
        if hosts and not principals:
            raise BadUsage(f"--{word}-host needs --{word}-principal")
        found += [
            AclEntry(who, host.strip(), each, permission) for who, host, each in product(principals, hosts or [ANY_HOST], operations)
        ]
    return found


def _cluster() -> Named:
    return Named(AclResource.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)


def _check_operations(resource: Named, operations: Iterable[AclOperation]) -> None:
    supported = [AclOperation.ALL, *SUPPORTED_OPERATIONS[resource.type]]
    for each in operations:
        if each not in supported:
            names = ", ".join(one.title for one in supported)
            raise BadUsage(f"{resource.flag} has no operation {each.title}; it has {names}")


def only(values: Sequence[Any], flag: str) -> Any:
    """The value of a flag that must be specified once; BadUsage."""
    if len(values) != 1:
        raise BadUsage(f"specify {flag} once")
    return values[0]
