"""`txbroker log-cleaner`: the status of compaction, compaction and expiry on request, and a dry run on the files."""

from __future__ import annotations

import argparse
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.results import results
from txbroker.console.failures import DONE, BadUsage

DESCRIPTION = """\
Show the status of the log cleaner, compact or expire topics on request, and print what a pass would remove.

  txbroker log-cleaner --bootstrap-server 127.0.0.1:9092 --describe --topic orders
  txbroker log-cleaner --bootstrap-server 127.0.0.1:9092 --compact-now orders --roll --wait
  txbroker log-cleaner --bootstrap-server 127.0.0.1:9092 --expire orders --wait
  txbroker log-cleaner --dry-run --log-dir ./data --topic orders

The active segment of a partition is never compacted; --roll closes it first. With --wait the command returns when the operation is
complete, and exits with status 1 if it fails. The broker completes an operation even if the command is interrupted.

A dry run reads the files of a log directory and prints the records that a pass would remove now, with the reasons. It changes nothing, and
a broker may be running. The topic's configuration is read from the directory; with --bootstrap-server it is read from a broker, and
includes the defaults of its server.properties. --topic-config overrides it, e.g. --topic-config compaction.strategy=timestamp.
"""

ACTIONS = ("describe", "compact_now", "expire", "dry_run")
# Flags -> the only actions for which they are valid.
ONLY = {
    "roll": ("compact_now", "dry_run"),
    "wait": ("compact_now", "expire"),
    "topic": ("describe", "dry_run"),
    "partition": ("dry_run",),
    "log_dir": ("dry_run",),
    "topic_config": ("dry_run",),
    "dedupe_buffer_size": ("dry_run",),
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    help_text = "show the status of compaction, and compact or expire on request"
    parser = subparsers.add_parser("log-cleaner", help=help_text, description=DESCRIPTION)
    add_client(parser, required=False)
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", action="store_true", help="show the status of each partition")
    actions.add_argument("--compact-now", metavar="TOPIC", help="compact a topic now")
    actions.add_argument("--expire", metavar="TOPIC", help="delete the expired records of a topic now")
    actions.add_argument("--dry-run", action="store_true", help="print the records that a pass would remove, with the reasons")
    parser.add_argument("--wait", action="store_true", help="return when the operation is complete")
    parser.add_argument("--roll", action="store_true", help="close the active segments first; with --dry-run: as if they were closed")
    parser.add_argument("--topic", metavar="NAME", help="with --describe: only this topic; with --dry-run: the topic")
    add_dry_run(parser)
    parser.set_defaults(command=run)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """The flags of a dry run, except --topic and --roll."""
    parser.add_argument("--log-dir", metavar="DIRECTORY", help="the broker's log.dirs, comma-separated")
    parser.add_argument("--partition", type=number(0), metavar="NUMBER", help="only this partition of the topic")
    add_properties(parser, "--topic-config", "a configuration of the topic that overrides the stored one")
    size_help = "size of the dedupe buffer, as log.cleaner.dedupe.buffer.size (default: 134217728)"
    parser.add_argument("--dedupe-buffer-size", type=number(1 << 20), metavar="BYTES", help=size_help)


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    (action,) = [name for name in ACTIONS if getattr(arguments, name) not in (None, False)]
    check(arguments, action)
    if action == "dry_run":
        from txbroker.cli import cleaner_dry_run

        return cleaner_dry_run.run(arguments)
    from txbroker.cli import cleaner_requests

    shown = results(arguments)
    if action == "describe":
        with clients.administering(arguments) as admin:
            cleaner_requests.describe(admin, shown, arguments.topic)
        return DONE
    if action == "compact_now":
        wanted = cleaner_requests.Wanted(arguments.compact_now, "txbroker.compact", "roll" if arguments.roll else "now")
    else:
        wanted = cleaner_requests.Wanted(arguments.expire, "txbroker.expire", "now")
    cleaner_requests.perform(arguments, shown, wanted, wait=arguments.wait)
    return DONE


def check(arguments: argparse.Namespace, action: str) -> None:
    """BadUsage if flags cannot be used together, or a topic has no name."""
    for flag in ("compact_now", "expire", "topic"):
        if getattr(arguments, flag) == "":  # as of a shell's variable that is not set
            raise BadUsage(f"{_flag(flag)} is empty; specify a topic, see `txbroker topics --list`")
    for flag, actions in ONLY.items():
        given = getattr(arguments, flag)
        if given is not None and given is not False and given != {} and action not in actions:
            allowed = " and ".join(_flag(each) for each in actions)
            raise BadUsage(f"{_flag(flag)} is only valid with {allowed}, not with {_flag(action)}")
    if action != "dry_run" and not arguments.bootstrap_server:
        raise BadUsage(f"{_flag(action)} needs --bootstrap-server")
    if action == "dry_run" and not (arguments.log_dir and arguments.topic):
        raise BadUsage("--dry-run needs --topic, and --log-dir, the broker's log.dirs on this machine")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
