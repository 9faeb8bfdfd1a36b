"""`txbroker acls suggest`: the rules that allow what the audit log says that principals did."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.acls import acl_requests
from txbroker.cli.acls.acl_flags import Named, with_value
from txbroker.cli.acls.audit_lines import Placed, placed_lines, sources
from txbroker.cli.acls.suggested_rules import SuggestedRule, Suggestion, Use, suggested
from txbroker.cli.results import Results
from txbroker.console.failures import DONE, BadUsage, CommandFailed
from txbroker.names import amount
from txbroker.security.acl_index import ACL, EVERYONE, SUPER_USER, AclIndex
from txbroker.security.acl_model import ANY_HOST, AclEntry, AclOperation, AclResource, PatternType, ResourcePattern
from txbroker.security.audit_trail import CUT

_OPERATIONS = {each.title: each for each in AclOperation}
_RESOURCES = {each.title: each for each in AclResource}


class Recorded(NamedTuple):
    """A use of a right. `by`: the rule that decided; `acl`: the ACL, if it was one."""

    use: Use
    by: str
    acl: str | None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `suggest`."""
    audit_help = "with suggest: a file of the audit log, with events `use`; can be specified several times. --topic: a topic with them"
    parser.add_argument("--audit", action="append", default=[], metavar="FILE", help=audit_help)
    prefixed_help = "with suggest: one prefixed rule for names that share a prefix; it allows other names, too"
    parser.add_argument("--prefixed", action="store_true", help=prefixed_help)
    parser.add_argument("--by-host", action="store_true", help="with suggest: rules for the addresses that were used, not for all")
    parser.add_argument("--denied", action="store_true", help="with suggest: also what was denied")
    parser.add_argument("--kafka-acls", action="store_true", help="with suggest: commands of Kafka's tool")


def suggest(arguments: argparse.Namespace, shown: Results) -> int:
    """Show the commands. BadUsage, CommandFailed."""
    if not arguments.audit and not arguments.topic:
        raise BadUsage("suggest needs --audit FILE, a file of the audit log (txbroker.audit.file), or --topic NAME (txbroker.audit.topic)")
    if arguments.topic and arguments.bootstrap_server is None:
        raise BadUsage("suggest needs --bootstrap-server for --topic")
    found, where = list(_read(placed_lines(arguments), denied=arguments.denied)), sources(arguments)
    if not found:
        raise CommandFailed(f"no use of a right is in {where}: add use to txbroker.audit.events, and let the applications work")
    wanted = [each for each in found if not arguments.principal or each.use.principal in arguments.principal]
    if not wanted:
        raise CommandFailed(f"{' and '.join(arguments.principal)} did nothing in {where}")
    covered_by = _recorded(wanted) if arguments.bootstrap_server is None else _present(arguments)
    for principal in sorted({each.use.principal for each in wanted}):
        own = [each for each in wanted if each.use.principal == principal]
        suggestion = suggested((each.use for each in own), covered_by, prefixed=arguments.prefixed, by_host=arguments.by_host)
        _show(principal, own, suggestion, arguments, shown)
    return DONE


def _read(lines: Iterable[Placed], *, denied: bool) -> Iterator[Recorded]:
    """Lines that are damaged, as a loss of power may leave one, are skipped with a warning. CommandFailed."""
    for place, text in lines:
        try:
            line = json.loads(text)
            is_wanted = isinstance(line, dict) and (line["event"] == "use" or (denied and line["event"] == "denial"))
            if is_wanted and "resource" in line:
                yield _recorded_use(line)
        except (ValueError, KeyError, TypeError):
            sys.stderr.write(f"{place}: skipped, it is no line of an audit log\n")


def _recorded_use(line: dict[str, Any]) -> Recorded:
    """KeyError, ValueError."""
    principal, host, name, by, acl = line["principal"], line["host"], line["resource"], line["decided_by"], line["acl"]
    if not all(isinstance(each, str) for each in (principal, host, name, by)) or name.endswith(CUT):
        raise ValueError("a field has another type, or the name was cut")
    use = Use(principal, host, _OPERATIONS[line["operation"]], _RESOURCES[line["resource_type"]], name)
    return Recorded(use, "denied" if line["event"] == "denial" else by, acl)


def _recorded(found: Iterable[Recorded]) -> Callable[[Use], str | None]:
    """By the ACLs that decided then."""
    acls = {each.use: each.acl for each in found if each.by == ACL}
    for each in found:
        if each.by != ACL:
            acls.pop(each.use, None)  # an ACL that decided once may be gone
    return acls.get


def _present(arguments: argparse.Namespace) -> Callable[[Use], str | None]:
    """By the ACLs that the cluster has now."""
    with clients.administering(arguments) as admin:
        bindings = acl_requests.described(admin)
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in bindings:
        entries.setdefault(binding.resource, set()).add(binding.entry)
    index = AclIndex({pattern: frozenset(found) for pattern, found in entries.items()})

    def covered_by(use: Use) -> str | None:
        decision = index.decide(use.principal, use.host, use.operation, use.resource, use.name)
        if decision.by is None or decision.allowed:
            return None if decision.by is None else str(decision.by)
        return f"denied, whatever is added, by {decision.by}"

    return covered_by


def _show(principal: str, found: Sequence[Recorded], suggestion: Suggestion, arguments: argparse.Namespace, shown: Results) -> None:
    commands = [_command(rule, arguments) for rule in suggestion.rules]
    if shown.as_json:
        for use, by in suggestion.covered.items():
            shown.json({"principal": principal, "host": use.host, "operation": use.operation.name, "resource": use.resource.name,
                        "name": use.name, "covered_by": by})  # fmt: skip
        for rule, command in zip(suggestion.rules, commands, strict=True):
            shown.json({"principal": principal, "host": rule.host, "operations": [each.name for each in rule.operations],
                        "resource": rule.resource.name, "pattern": rule.pattern.name, "names": list(rule.names),
                        "command": command})  # fmt: skip
        return
    shown.line(f"# {principal} used {amount(len({each.use for each in found}), 'right')}, {len(suggestion.covered)} covered by ACLs")
    rules = {each.by for each in found}
    if SUPER_USER in rules:
        shown.line(f"#   it is in {SUPER_USER}; with these rules it need not be")
    if EVERYONE in rules:
        shown.line(f"#   {EVERYONE} allowed some: the first ACL of a resource ends that, so add the rules of all principals of it")
    for use, by in suggestion.covered.items():
        shown.line(f"#   {use}: {by}")
    for command in commands:
        shown.line(command)


def _command(rule: SuggestedRule, arguments: argparse.Namespace) -> str:
    tool = "kafka-acls" if arguments.kafka_acls else "txbroker acls"
    config = "" if arguments.command_config is None else f" --command-config {shlex.quote(arguments.command_config)}"
    host = "" if rule.host == ANY_HOST else f" {with_value('--allow-host', rule.host)}"
    operations = "".join(f" --operation {each.title}" for each in rule.operations)
    resources = "".join(f" {Named(rule.resource, PatternType.LITERAL, name).flags}" for name in rule.names)
    pattern = " --resource-pattern-type prefixed" if rule.pattern is PatternType.PREFIXED else ""
    server = shlex.quote(arguments.bootstrap_server or "HOST:PORT")
    who = shlex.quote(rule.principal)
    return f"{tool} --bootstrap-server {server}{config} --add --allow-principal {who}{host}{operations}{resources}{pattern}"
