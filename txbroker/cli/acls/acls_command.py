"""`txbroker acls`: access control lists (Kafka's kafka-acls), why a client may or may not do something, and the rules that it needs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence, Set
from itertools import groupby
from typing import Any

from txbroker.cli import clients
from txbroker.cli.acls import acl_requests, suggestion
from txbroker.cli.acls.acl_flags import Named, add_flags, named, wanted
from txbroker.cli.acls.explanation import SUPER_USERS, explain
from txbroker.cli.arguments import add_client
from txbroker.cli.broker_settings import broker_ids, settings
from txbroker.cli.results import Column, Results, results
from txbroker.console.failures import DONE, USAGE, BadUsage, CommandFailed, warn
from txbroker.security.acl_effect import without_effect
from txbroker.security.acl_model import ANY, AclBinding, AclEntry, AclFilter, AclPermission, PatternType, ResourcePattern
from txbroker.security.principals import super_users

DESCRIPTION = """\
List, add and remove access control lists (ACLs), explain why a client may do something or not, or suggest rules.

  txbroker acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:alice --consumer --topic orders --group reports
  txbroker acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:bob --producer --topic log- --resource-pattern-type prefixed
  txbroker acls --bootstrap-server 127.0.0.1:9092 --list
  txbroker acls --bootstrap-server 127.0.0.1:9092 explain --principal User:alice --operation Read --topic orders
  txbroker acls suggest --audit /var/log/txbroker/audit.log --principal User:alice
  txbroker acls suggest --bootstrap-server 127.0.0.1:9092 --topic audit

`explain` ends with status 1 if the client may not, and shows the command that allows it; with status 2 if that could not be found out.
`suggest` prints the commands for the smallest set of rules that allows what principals did, by the events `use` of an audit log, in files
(--audit) or in its topic (--topic); with --bootstrap-server without what ACLs allow already.
"""
EXPLAIN, SUGGEST = "explain", "suggest"
COLUMNS = (Column("type", "RESOURCE"), Column("pattern", "PATTERN"), Column("name", "NAME"), Column("principal", "PRINCIPAL"),
           Column("host", "HOST"), Column("operation", "OPERATION"), Column("permission", "PERMISSION"))  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("acls", help="list, add, remove, explain and suggest access control lists", description=DESCRIPTION)
    add_client(parser, required=False)
    explain_help = "explain: say whether --principal may do --operation, and why; suggest: print the rules for what principals did"
    parser.add_argument("question", nargs="?", action=_Question, choices=(EXPLAIN, SUGGEST), metavar="explain|suggest", help=explain_help)
    actions = parser.add_mutually_exclusive_group()
    list_help = "list ACLs: those of the resources that are named, or all"
    actions.add_argument("--list", dest="action", action="store_const", const="list", help=list_help)
    actions.add_argument("--add", dest="action", action="store_const", const="add", help="add ACLs")
    remove_help = "remove ACLs; without principals all of a resource"
    actions.add_argument("--remove", dest="action", action="store_const", const="remove", help=remove_help)
    add_flags(parser)
    suggestion.add_flags(parser)
    parser.add_argument("--host", metavar="ADDRESS", help="with explain: the address of the client; without it, any")
    parser.set_defaults(command=run)


class _Question(argparse.Action):
    """The status of `explain` after a failure is not the one for "may not"."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        if values == EXPLAIN:
            namespace.failed_status = USAGE


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    shown = results(arguments)
    if (arguments.question is None) == (arguments.action is None):
        raise BadUsage("specify one of --list, --add, --remove, explain and suggest")
    if arguments.question == SUGGEST:
        return suggestion.suggest(arguments, shown)
    if arguments.bootstrap_server is None:
        raise BadUsage("--bootstrap-server is required; only suggest works without it")
    if arguments.question == EXPLAIN:
        return explain(arguments, shown)
    if arguments.action == "list":
        return _list(arguments, shown)
    if arguments.principal:
        raise BadUsage("--principal is for --list, explain and suggest: use --allow-principal or --deny-principal")
    changes = wanted(arguments)
    return _add(arguments, changes, shown) if arguments.action == "add" else _remove(arguments, changes, shown)


def _list(arguments: argparse.Namespace, shown: Results) -> int:
    resources: Sequence[Named | None] = named(arguments) or [None]
    with clients.administering(arguments) as admin:
        found = {
            principal: [binding for resource in resources for binding in acl_requests.described(admin, _filter(resource, principal))]
            for principal in arguments.principal or [None]
        }
    if shown.as_json or shown.width is not None:
        _show(shown, dict.fromkeys(binding for bindings in found.values() for binding in bindings))
        return DONE
    for principal, bindings in found.items():
        if principal is not None:
            shown.line(f"ACLs for principal `{principal}`")
        _show(shown, dict.fromkeys(bindings))
    return DONE


def _add(arguments: argparse.Namespace, changes: dict[Named, list[AclEntry]], shown: Results) -> int:
    if arguments.resource_pattern_type in ("any", "match"):
        raise BadUsage(f"--resource-pattern-type {arguments.resource_pattern_type} is for --list and --remove; use literal or prefixed")
    if not all(changes.values()):
        raise BadUsage("--add needs --allow-principal or --deny-principal")
    bindings = [
        AclBinding(ResourcePattern(resource.type, PatternType(resource.pattern), resource.name), entry)
        for resource, entries in changes.items()
        for entry in entries
    ]
    with clients.administering(arguments) as admin:
        acl_requests.create(admin, bindings)
        denied = {binding.entry.principal for binding in bindings if binding.entry.permission is AclPermission.DENY}
        supers = denied & _super_users(admin) if denied else set()
    _show(shown, sorted(bindings), "Adding ACLs for resource")
    for binding in sorted(bindings):
        wrong = without_effect(binding)
        if wrong is not None:
            warn(f"the ACL {binding} is stored, and {wrong}")
    for principal in sorted(supers):
        warn(f"the ACLs that deny are stored, and {principal} may still do everything: remove it from {SUPER_USERS} of the brokers")
    return DONE


def _super_users(admin: Any) -> Set[str]:
    """Those of one broker; none if it does not show them."""
    try:
        return super_users(settings(admin, broker_ids(admin)[0], (SUPER_USERS,)).get(SUPER_USERS))
    except CommandFailed:
        return frozenset()


def _remove(arguments: argparse.Namespace, changes: dict[Named, list[AclEntry]], shown: Results) -> int:
    filters = []
    for resource, entries in changes.items():
        if not arguments.force and not _confirmed(resource, entries):
            continue
        filters += [_filter(resource, *entry) for entry in entries] if entries else [_filter(resource)]
    if filters:
        with clients.administering(arguments) as admin:
            removed = acl_requests.delete(admin, filters)
        _show(shown, removed, "Removed ACLs for resource")
        if not removed:
            warn("no ACL was removed, as none has these values: see --list; without principals all of a resource are removed")
    return DONE


def _filter(
    resource: Named | None, principal: str | None = None, host: str | None = None, operation: int = ANY, permission: int = ANY
) -> AclFilter:
    kind, pattern, name = (ANY, ANY, None) if resource is None else resource
    return AclFilter(kind, pattern, name, principal, host, operation, permission)


def _confirmed(resource: Named, entries: Sequence[AclEntry]) -> bool:
    what = "all ACLs" if not entries else f"these ACLs:\n{''.join(_plain(entry) for entry in entries)}"
    try:
        return input(f"Are you sure you want to delete {what} for resource filter `{resource}`? (y/n) ").strip().lower() == "y"
    except EOFError:
        raise CommandFailed("there is no answer on standard input: specify --force to delete without a question") from None


def _show(shown: Results, bindings: Iterable[AclBinding], what: str = "Current ACLs for resource") -> None:
    """For scripts in the form of Kafka's tool."""
    if shown.as_json or shown.width is not None:
        shown.rows(COLUMNS, [_row(binding) for binding in bindings])
        return
    for pattern, of_pattern in groupby(bindings, lambda binding: binding.resource):
        resource = Named(pattern.type, pattern.pattern, pattern.name)
        shown.line(f"{what} `{resource}`: \n{''.join(_plain(binding.entry) for binding in of_pattern)}")


def _plain(entry: AclEntry) -> str:
    operation, permission = entry.operation.name, entry.permission.name
    return f" \t(principal={entry.principal}, host={entry.host}, operation={operation}, permissionType={permission})\n"


def _row(binding: AclBinding) -> dict[str, str]:
    resource, entry = binding
    return {"type": resource.type.name, "pattern": resource.pattern.name, "name": resource.name, "principal": entry.principal,
            "host": entry.host, "operation": entry.operation.name, "permission": entry.permission.name}  # fmt: skip
