"""`txbroker acls explain`: whether a client may do something, the ACL that decides, or the command that allows it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from txbroker.cli import clients
from txbroker.cli.acls import acl_requests
from txbroker.cli.acls.acl_flags import Named, named, only, with_value
from txbroker.cli.broker_settings import broker_ids, settings
from txbroker.cli.results import Results
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed
from txbroker.errors import ErrorCode
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import ANY_HOST, AclBinding, AclEntry, AclOperation, PatternType, ResourcePattern
from txbroker.security.principals import java_address, super_users

SUPER_USERS, EVERYONE = "super.users", "allow.everyone.if.no.acl.found"


class Question(NamedTuple):
    """Whether a principal may do an operation. `host`: as Java prints it; None: any."""

    principal: str
    operation: AclOperation
    resource: Named
    host: str | None

    def __str__(self) -> str:
        where = "" if self.host is None else f" from {self.host}"
        return f"{self.operation.title} on {self.resource.type.title} {self.resource.name}{where}"


class Explanation(NamedTuple):
    """`acl`: the binding that decides, if one does. `reason`: a sentence."""

    allowed: bool
    reason: str
    acl: AclBinding | None = None


def explain(arguments: argparse.Namespace, shown: Results) -> int:
    """Show the decision and its reason; FAILED if it is denied. BadUsage, CommandFailed."""
    if arguments.host == "":
        raise BadUsage("--host must not be empty; leave it out for any address")
    resource = only(named(arguments), "one resource, such as --topic NAME,")
    if resource.pattern != PatternType.LITERAL:
        raise BadUsage("explain needs the name of one resource, not a pattern: leave out --resource-pattern-type")
    operation = only(arguments.operation, "--operation")
    if operation is AclOperation.ALL:
        raise BadUsage("explain needs one operation, not All")
    host = None if arguments.host is None else java_address(arguments.host)
    question = Question(only(arguments.principal, "--principal"), operation, resource, host)
    with clients.administering(arguments) as admin:
        try:
            bindings = acl_requests.described(admin)
        except CommandFailed as failed:
            if failed.code != ErrorCode.SECURITY_DISABLED:
                raise
            found = Explanation(True, "the broker has no authorizer, so that every client may do everything")
        else:
            found = explained(question, bindings, settings(admin, broker_ids(admin)[0], (SUPER_USERS, EVERYONE)))
    command = None if found.allowed or found.acl is not None else _command(arguments, question)
    row = {"principal": question.principal, "operation": operation.name, "resource": resource.type.name, "name": resource.name,
           "host": host, "allowed": found.allowed, "reason": found.reason, "acl": None if found.acl is None else str(found.acl),
           "command": command}  # fmt: skip
    shown.either(row, lambda: _lines(question, found, command))
    return DONE if found.allowed else FAILED


def explained(question: Question, bindings: Iterable[AclBinding], settings: dict[str, str | None]) -> Explanation:
    """The decision. `settings`: of the broker, as far as they are known."""
    principal, operation, resource, host = question
    if principal in super_users(settings.get(SUPER_USERS)):
        return Explanation(True, f"{principal} is one of {SUPER_USERS}")
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in bindings:
        entries.setdefault(binding.resource, set()).add(binding.entry)
    index = AclIndex({pattern: frozenset(found) for pattern, found in entries.items()})
    decision = index.decide(principal, ANY_HOST if host is None else host, operation, resource.type, resource.name)
    if decision.by is not None:
        return Explanation(decision.allowed, f"an ACL {'allows' if decision.allowed else 'denies'} it: {decision.by}", decision.by)
    if not decision.has_acls and settings.get(EVERYONE) == "true":
        return Explanation(True, f"no ACL applies to the resource, and {EVERYONE} is true")
    reason = "no ACL applies to the resource" if not decision.has_acls else "no ACL allows it"
    if SUPER_USERS not in settings:
        reason += f"; the broker does not show its {SUPER_USERS}, of which the principal may be one"
    if host is None and any(entry.principal == principal and entry.host != ANY_HOST for found in entries.values() for entry in found):
        reason += "; some ACLs of the principal are for single addresses, specify --host to include them"
    return Explanation(False, reason)


def _lines(question: Question, found: Explanation, command: str | None) -> list[str]:
    verdict = "may" if found.allowed else "may not"
    lines = [f"{question.principal} {verdict} do {question}: {found.reason}"]
    return lines if command is None else [*lines, f"To allow it: {command}"]


def _command(arguments: argparse.Namespace, question: Question) -> str:
    host = "" if question.host is None else f" {with_value('--allow-host', question.host)}"
    config = "" if arguments.command_config is None else f" --command-config {shlex.quote(arguments.command_config)}"
    to = shlex.quote(arguments.bootstrap_server)
    return (
        f"txbroker acls --bootstrap-server {to}{config} --add --allow-principal {shlex.quote(question.principal)}"
        f"{host} --operation {question.operation.title} {question.resource.flags}"
    )
