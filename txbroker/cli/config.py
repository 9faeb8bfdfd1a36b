"""`txbroker config`: what a broker would be started with, and where each value comes from; or only whether it would start."""

from __future__ import annotations

import argparse
import json
import os.path
import sys
from collections.abc import Sequence
from typing import Any

from txbroker.cli.failures import DONE, BadUsage, CommandFailed
from txbroker.cli.run import add_configuration
from txbroker.cli.tables import table, terminal_width
from txbroker.config.origins import ORDER, Row, rows
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError

DESCRIPTION = """\
Print the configuration that `txbroker run` with the same flags would start with, and the origin of every value: a default, the line of a
file, an environment variable, --override, or what was changed while the broker ran and is kept with its metadata. Secrets are hidden.

  txbroker config --print --config server.properties --override log.dirs=./data
  txbroker config --check --config server.properties && txbroker run --config server.properties

"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("config", help="print or check a broker's configuration", description=DESCRIPTION + ORDER)
    parser.add_argument("--print", action="store_true", dest="prints", help="print every key that has an effect here, or was set")
    parser.add_argument("--check", action="store_true", help="print warnings and errors only; exit status 1 if it would not start")
    add_configuration(parser)
    parser.add_argument("--all", action="store_true", help="with --print: also the keys of Kafka that have no effect on this broker")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for; CommandFailed with the sentence of a start that is refused."""
    from txbroker.startup import read_startup

    if arguments.prints == arguments.check:
        raise BadUsage("wants one of --print and --check")
    if arguments.check and arguments.all:
        raise BadUsage("--all goes with --print")
    try:
        startup = read_startup(arguments.config, arguments.override, environment=arguments.env)
    except StartError as error:
        if arguments.json:
            print(json.dumps({"error": str(error)}, ensure_ascii=False))
        raise CommandFailed(str(error)) from error
    notes = _take_over_dynamic(startup.config)
    warnings = [*startup.warnings, *notes]
    printed = rows(startup.config, everything=arguments.all) if arguments.prints else []
    if arguments.json:
        shown: dict[str, Any] = {"warnings": warnings}
        if arguments.prints:
            shown["values"] = [row._asdict() for row in printed]
        print(json.dumps(shown, ensure_ascii=False, indent=2))
        return DONE
    if arguments.prints:
        _print_table(printed)
    for warning in warnings:
        print(f"txbroker config: warning: {warning}", file=sys.stderr)
    return DONE


def _take_over_dynamic(config: BrokerConfig) -> list[str]:
    """Apply the dynamic configurations in the metadata of log.dirs; a warning if they cannot be read."""
    from txbroker.log.disk import OsDisk
    from txbroker.logtools.stored_configs import NotReadable, broker_configs

    directories = [os.path.abspath(path) for path in config.list("log.dirs")]
    try:
        stored = broker_configs(OsDisk(), directories, config.int("broker.id"))
    except NotReadable as error:
        return [f"dynamic configurations are not included: {error}"]
    config.set_dynamic(stored.broker, stored.default)
    return []


def _print_table(printed: Sequence[Row]) -> None:
    cells = [(row.name, "" if row.value is None else row.value, row.origin) for row in printed]
    width = terminal_width()
    if width is None:
        # For programs and grep: one key a line.
        print("\n".join("  ".join(row) for row in table_rows(cells)))
    else:
        print("\n".join(table(("KEY", "VALUE", "ORIGIN"), cells, width)))


def table_rows(cells: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """key=value and the origin, aligned as far as values are short."""
    pairs = [(f"{name}={value}", origin) for name, value, origin in cells]
    width = min(max(len(pair) for pair, _ in pairs), 60)
    return [(pair.ljust(width), f"# {origin}") for pair, origin in pairs]
