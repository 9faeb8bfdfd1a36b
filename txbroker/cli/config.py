"""`txbroker config`: print the configuration of a start with the origin of each value, or check whether a broker would start."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from txbroker.cli.run import add_configuration, process_count
from txbroker.cli.tables import table, terminal_width
from txbroker.config.load import LOG_DIRECTORY_KEYS, InvalidConfig
from txbroker.config.origins import ORDER, Row, rows
from txbroker.config.process_layout import process_overrides
from txbroker.config.resolve import BrokerConfig
from txbroker.console.failures import DONE, FAILED, BadUsage, warn
from txbroker.errors import ConfigError, StartError
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.logtools.stored_configs import StoredConfigs

DESCRIPTION = """\
Print the configuration with which `txbroker run` would start with the same flags, and the origin of each value: a default, a line of a
file, an environment variable, --override, or a dynamic configuration that is stored in the metadata. Secrets are hidden. --check reports
all errors and warnings, also those of the log directories, certificates and other files; it does not check ports, locks that another
process holds, and ZooKeeper.

  txbroker config --print --config server.properties --override log.dirs=./data
  txbroker config --check --config server.properties && txbroker run --config server.properties
  txbroker config --check --config server.properties --processes auto

"""


class Checked(NamedTuple):
    """Sentences, and the dynamic configurations that were found; None: not readable."""

    errors: list[str]
    warnings: list[str]
    stored: StoredConfigs | None = None


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("config", help="print or check a broker's configuration", description=DESCRIPTION + ORDER)
    parser.add_argument("--print", action="store_true", dest="prints", help="print each key that has an effect on this broker, or is set")
    check_help = "print warnings and errors, or that a broker would start; the exit status is 1 if it would not"
    parser.add_argument("--check", action="store_true", help=check_help)
    add_configuration(parser)
    parser.add_argument("--processes", type=process_count, metavar="N|auto", help="check for a start with these --processes")
    parser.add_argument("--all", action="store_true", help="with --print: also Kafka's keys that have no effect on this broker")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print values, warnings and errors; 1 if a start would be refused."""
    from txbroker.startup import read_startup

    if arguments.prints == arguments.check:
        raise BadUsage("specify one of --print and --check")
    if arguments.check and arguments.all:
        raise BadUsage("--all is only valid with --print")
    try:
        startup = read_startup(arguments.config, arguments.override, environment=arguments.env)
    except InvalidConfig as error:
        place = error.valid.static.place(LOG_DIRECTORY_KEYS)
        errors, warnings, _ = _check_data(error.valid, arguments.processes) if place else Checked([], [])
        return _report(arguments, [*error.problems, *errors], [*error.valid.static.warnings, *warnings], None)
    except StartError as error:
        return _report(arguments, [str(error)], [], None)
    errors, warnings, stored = _check_data(startup.config, arguments.processes)
    started = _check_start(startup.config, arguments.processes, stored)
    errors, warnings = [*errors, *started.errors], [*warnings, *started.warnings]
    if arguments.processes is not None:
        errors += _check_processes(startup.config, arguments.processes)
    printed = rows(startup.config, everything=arguments.all) if arguments.prints else None
    return _report(arguments, errors, [*startup.warnings, *warnings], printed)


def _report(arguments: argparse.Namespace, errors: Sequence[str], warnings: Sequence[str], printed: Sequence[Row] | None) -> int:
    if arguments.json:
        shown: dict[str, Any] = {"errors": list(errors), "warnings": list(warnings)}
        if printed is not None:
            shown["values"] = [row._asdict() for row in printed]
        print(json.dumps(shown, ensure_ascii=False, indent=2))
        return FAILED if errors else DONE
    if printed is not None:
        _print_table(printed)
    for warning in warnings:
        warn(f"txbroker config: warning: {warning}")
    for error in errors:
        warn(f"txbroker config: {error}")
    if printed is None and not errors:
        given = f", with {amount(len(warnings), 'warning')}" if warnings else ""
        print(f"A broker would start with this configuration{given}.")
    return FAILED if errors else DONE


def _check_processes(config: BrokerConfig, processes: int) -> list[str]:
    """Why the processes could not have this configuration."""
    try:
        process_overrides(config, processes, "", max(config.int("broker.id"), 0))
    except ConfigError as error:
        return [str(error)]
    return []


def _check_data(config: BrokerConfig, processes: int | None) -> Checked:
    """Errors and warnings about log.dirs; applies the dynamic configurations in the metadata there."""
    from txbroker.cli.directory_checks import check_directories
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.stored_configs import NotReadable, broker_configs

    directories = [os.path.abspath(path) for path in config.list("log.dirs") if path]
    if not directories:
        return Checked([], [])
    errors, warnings = check_directories(directories, config, processes)
    stored = None
    try:
        stored = broker_configs(OsDisk(), directories, config.int("broker.id"))
    except NotReadable as error:
        errors = errors or [str(error)]
    else:
        config.set_dynamic(stored.broker, stored.default)
    place = config.static.place(LOG_DIRECTORY_KEYS)
    return Checked([place + error for error in errors], [place + warning for warning in warnings], stored)


def _check_start(config: BrokerConfig, processes: int | None, stored: StoredConfigs | None) -> Checked:
    """Errors and warnings about what a start reads, but for log.dirs. `stored`: None if it cannot be read."""
    from random import Random

    from twisted.internet.defer import maybeDeferred
    from twisted.internet.task import Clock

    from txbroker.broker.environment import Environment
    from txbroker.broker.identity import uses_zookeeper
    from txbroker.broker.start_checks import start_problems
    from txbroker.cli.directory_checks import audit_problem
    from txbroker.cluster.tree.sqlite import open_sqlite_tree
    from txbroker.log.os_disk import OsDisk

    # Nothing runs: the clock stands still, and the metadata are not opened.
    environment = Environment(
        reactor=Clock(), disk=OsDisk(), in_worker=maybeDeferred, later=lambda delay_ms, work, done=None: None,
        run_all=lambda jobs, *, at_once=None: None,
        open_tree=lambda path, on_full, create: open_sqlite_tree(path, worker=maybeDeferred, on_full=on_full, create=create),
        monotonic_s=time.monotonic, now_ms=lambda: time.time_ns() // 1_000_000, random=Random(0), random_bytes=os.urandom,
        host_name=socket.getfqdn,
    )  # fmt: skip
    knows_stored = stored is not None and not uses_zookeeper(config)
    errors, warnings = start_problems(config, environment, -1 if stored is None else stored.broker_id, knows_stored=knows_stored)
    problem = audit_problem(config, processes)
    return Checked([*errors, *([] if problem is None else [problem])], warnings)


def _print_table(printed: Sequence[Row]) -> None:
    cells = [(row.name, "" if row.value is None else row.value, row.origin) for row in printed]
    width = terminal_width()
    if width is None:
        # For scripts: one key per line.
        print("\n".join("  ".join(row) for row in table_rows(cells)))
    else:
        print("\n".join(table(("KEY", "VALUE", "ORIGIN"), cells, width)))


def table_rows(cells: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """key=value and the origin, aligned unless values are long."""
    pairs = [(f"{name}={value}", origin) for name, value, origin in cells]
    width = min(max(len(pair) for pair, _ in pairs), 60)
    return [(pair.ljust(width), f"# {origin}") for pair, origin in pairs]
