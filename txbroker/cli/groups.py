"""`txbroker groups`: list, describe, reset and delete consumer groups (Kafka's kafka-consumer-groups)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, number
from txbroker.cli.group_describe import describe
from txbroker.cli.group_requests import delete_groups, list_groups
from txbroker.cli.group_reset import datetime_ms, duration_ms, reset, topic_partitions
from txbroker.cli.results import Column, Results, results
from txbroker.console.failures import DONE, FAILED, BadUsage, broker_error, warn
from txbroker.errors import ErrorCode, error_name
from txbroker.names import TopicPartition

DESCRIPTION = """\
List, describe and delete consumer groups, and reset their committed offsets.

  txbroker groups --bootstrap-server 127.0.0.1:9092 --describe --group readers
  txbroker groups --bootstrap-server 127.0.0.1:9092 --reset-offsets --group readers --topic hello:0,1 --to-earliest --execute
  txbroker groups --bootstrap-server 127.0.0.1:9092 --reset-offsets --group readers --all-topics --by-duration PT1H --dry-run
  txbroker groups --bootstrap-server 127.0.0.1:9092 --delete --group readers

The offsets of a group can be reset only while it has no members. --reset-offsets needs one of --to-earliest, --to-latest, --to-current,
--to-offset, --shift-by, --to-datetime, --by-duration and --from-file, and --topic or --all-topics except with --from-file.
"""

ACTIONS = {
    "list": "list the names of groups, with --state and --type also states and types",
    "describe": "describe offsets and lag, or the --members, or the --state",
    "reset-offsets": "print new offsets, and commit them with --execute",
    "delete": "delete groups without members, and all their offsets",
    "delete-offsets": "delete the offsets of a group for a --topic",
}
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling", "Unknown")
TYPES = ("Classic", "Consumer")
TARGETS = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration", "from_file")
TIMEOUT_MS = 5_000
SUCCESSFUL = "Successful"
STATUS = (Column("topic", "TOPIC", 15), Column("partition", "PARTITION", 10), Column("status", "STATUS", 15))


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("groups", help="list, describe, reset and delete consumer groups", description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, text in ACTIONS.items():
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    parser.add_argument("--group", action="append", default=[], metavar="NAME", help="a group; can be specified several times")
    parser.add_argument("--all-groups", action="store_true", help="with --describe, --reset-offsets and --delete: all groups")
    timeout_help = f"milliseconds to wait for a group's coordinator (default: {TIMEOUT_MS})"
    parser.add_argument("--timeout", type=number(0), default=TIMEOUT_MS, metavar="MS", help=timeout_help)
    state_help = "with --list: print states, or only groups in these states; with --describe: the state and the coordinator"
    parser.add_argument("--state", nargs="?", const="", type=_choice("states", STATES), metavar="STATE,...", help=state_help)
    type_help = "with --list: print types, or only groups of these types: Classic, Consumer"
    parser.add_argument("--type", nargs="?", const="", type=_choice("types", TYPES), metavar="TYPE,...", help=type_help)
    parser.add_argument("--offsets", action="store_true", help="with --describe: offsets and lag (default)")
    parser.add_argument("--members", action="store_true", help="with --describe: the members")
    parser.add_argument("--verbose", action="store_true", help="with --describe: more columns")
    topic_help = "only this topic, or some of its partitions: topic:0,1; can be specified several times"
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help=topic_help)
    parser.add_argument("--all-topics", action="store_true", help="all topics for which the group has committed offsets")
    _add_targets(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--execute", action="store_true", help="commit the new offsets")
    modes.add_argument("--dry-run", action="store_true", help="only print the new offsets (default)")
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV, for --from-file")
    parser.set_defaults(command=run)


def _add_targets(targets: argparse.ArgumentParser) -> None:
    targets.add_argument("--to-earliest", action="store_true", help="to the start of the log")
    targets.add_argument("--to-latest", action="store_true", help="to the end of the log")
    targets.add_argument("--to-current", action="store_true", help="to the committed offset, or to the end of the log if there is none")
    targets.add_argument("--to-offset", type=number(0), metavar="OFFSET", help="to this offset, or to the nearest one in the log")
    targets.add_argument("--shift-by", type=int, metavar="N", help="forward by N from the committed offset, or backward if N is negative")
    targets.add_argument("--to-datetime", type=datetime_ms, metavar="TIME", help="to the first record since 2026-01-31T18:00:00.000")
    targets.add_argument("--by-duration", type=duration_ms, metavar="TIME", help="to the first record since PnDTnHnMnS ago")
    targets.add_argument("--from-file", metavar="FILE", help="to the offsets in a CSV file")


def _choice(what: str, known: Sequence[str]) -> Any:
    """A type whose value is comma-separated words of `known`, in any case."""
    spelled = {word.lower(): word for word in known}

    def parse(text: str) -> list[str]:
        words = [word.strip().lower() for word in text.split(",")] if text else []
        wrong = [word for word in words if word not in spelled]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of the {what} {', '.join(known)}")
        return [spelled[word] for word in words]

    return parse


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check(arguments: argparse.Namespace) -> None:
    """BadUsage if flags cannot be used together."""
    action = arguments.action
    targets = [_flag(name) for name in TARGETS if getattr(arguments, name) is not None and getattr(arguments, name) is not False]
    allowed = {
        "--group": (bool(arguments.group), ("describe", "reset-offsets", "delete", "delete-offsets")),
        "--all-groups": (arguments.all_groups, ("describe", "reset-offsets", "delete")),
        "--state": (arguments.state is not None, ("list", "describe")),
        "--type": (arguments.type is not None, ("list",)),
        "--offsets": (arguments.offsets, ("describe",)),
        "--members": (arguments.members, ("describe",)),
        "--verbose": (arguments.verbose, ("describe",)),
        "--topic": (bool(arguments.topic), ("reset-offsets", "delete-offsets")),
        "--all-topics": (arguments.all_topics, ("reset-offsets",)),
        "--execute": (arguments.execute, ("reset-offsets",)),
        "--dry-run": (arguments.dry_run, ("reset-offsets",)),
        "--export": (arguments.export, ("reset-offsets",)),
        **dict.fromkeys(targets, (True, ("reset-offsets",))),
    }
    for flag, (given, actions) in allowed.items():
        if given and action not in actions:
            raise BadUsage(f"{flag} is only valid with {' and '.join(f'--{other}' for other in actions)}, not with --{action}")
    if action != "list" and bool(arguments.group) == arguments.all_groups:
        raise BadUsage(f"--{action} needs {'--group' if action == 'delete-offsets' else 'either --group or --all-groups'}")
    _check_action(arguments, targets)


def _check_action(arguments: argparse.Namespace, targets: Sequence[str]) -> None:
    if arguments.action == "describe":
        if arguments.offsets + arguments.members + (arguments.state is not None) > 1:
            raise BadUsage("--describe allows only one of --offsets, --members and --state")
        if arguments.state:
            raise BadUsage("--state can have values only with --list")
    if arguments.action == "delete-offsets" and (len(arguments.group) != 1 or not arguments.topic):
        raise BadUsage("--delete-offsets needs one --group, and --topic")
    if arguments.action == "reset-offsets":
        if len(targets) != 1:
            raise BadUsage(f"--reset-offsets needs one of {', '.join(map(_flag, TARGETS))}")
        if not arguments.from_file and bool(arguments.topic) == arguments.all_topics:
            raise BadUsage("--reset-offsets needs either --topic or --all-topics")
        if arguments.from_file and (arguments.topic or arguments.all_topics):
            raise BadUsage("--from-file cannot be used with --topic and --all-topics")
        if arguments.export and arguments.json:
            raise BadUsage("--export and --json cannot be used together")


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    # As in Kafka's tool, --state can have a value only with --list.
    check(arguments)
    shown = results(arguments)
    with clients.administering(arguments) as admin:
        if arguments.action == "list":
            return _list(admin, arguments, shown)
        groups = list_groups(admin, arguments.timeout) if arguments.all_groups else []
        names = [row["group"] for row in groups] or arguments.group
        if not names:
            return DONE
        if arguments.action == "describe":
            return describe(admin, names, arguments, shown)
        if arguments.action == "reset-offsets":
            return reset(admin, names, arguments, shown)
        if arguments.action == "delete":
            return _delete(admin, names, arguments, shown)
        return _delete_offsets(admin, arguments, shown)


def _list(admin: Any, arguments: argparse.Namespace, shown: Results) -> int:
    groups = [
        row
        for row in list_groups(admin, arguments.timeout)
        if (not arguments.state or row["state"] in arguments.state) and (not arguments.type or row["type"] in arguments.type)
    ]
    columns = [Column("group", "GROUP", max([15, *(len(row["group"]) for row in groups)]) + 10)]
    columns += [Column("type", "TYPE", 20)] if arguments.type is not None else []
    columns += [Column("state", "STATE", 20)] if arguments.state is not None else []
    if shown.as_json or len(columns) > 1:
        shown.rows(columns, groups)
    else:
        for row in groups:
            shown.line(row["group"])
    return DONE


def _delete(admin: Any, names: Sequence[str], arguments: argparse.Namespace, shown: Results) -> int:
    codes = delete_groups(admin, names, arguments.timeout)
    done = [name for name, code in codes.items() if code == ErrorCode.NONE]
    if shown.as_json:
        for name in done:
            shown.json({"group": name, "action": "deleted"})
    elif done:
        quoted = ", ".join(f"'{name}'" for name in done)
        some = len(done) < len(codes)
        shown.line(f"These consumer groups were deleted successfully: {quoted}" if some else
                   f"Deletion of requested consumer groups ({quoted}) was successful.")  # fmt: skip
    for name, code in codes.items():
        if code != ErrorCode.NONE:
            warn(str(broker_error(f"Group '{name}' could not be deleted", code, None)))
    return FAILED if len(done) < len(codes) else DONE


def _delete_offsets(admin: Any, arguments: argparse.Namespace, shown: Results) -> int:
    from kafka import TopicPartition as KafkaPartition
    from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError

    (group,) = arguments.group
    partitions = [KafkaPartition(*partition) for partition in topic_partitions(arguments.topic, admin.describe_topics)]
    try:
        answers = clients.retried(lambda: admin.delete_group_offsets(group, partitions), arguments.timeout)
    except (GroupIdNotFoundError, GroupSubscribedToTopicError) as error:
        raise broker_error(f"no offset of group {group} was deleted", error.errno, None) from None
    failed = {partition: error.errno for partition, error in answers.items() if error.errno != ErrorCode.NONE}
    rows = [
        {"group": group, **_status(TopicPartition(*partition), failed.get(partition, int(ErrorCode.NONE)))} for partition in sorted(answers)
    ]
    if not shown.as_json:
        succeeded = f"Request succeeded for deleting offsets from group {group}."
        shown.line("Some offsets were not deleted, see STATUS." if failed else succeeded)
        shown.line("")
    shown.rows(STATUS, rows)
    for code in sorted(set(failed.values())):
        warn(str(broker_error(f"offsets of group {group} were not deleted", code, None)))
    return FAILED if failed else DONE


def _status(partition: TopicPartition, code: int) -> dict[str, Any]:
    status = SUCCESSFUL if code == ErrorCode.NONE else f"Error: {error_name(code)}"
    return {"topic": partition.topic, "partition": partition.partition, "status": status}
