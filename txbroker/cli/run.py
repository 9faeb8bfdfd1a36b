"""`txbroker run`: a broker in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import key_value
from txbroker.config.process_layout import PROCESSES_MAX
from txbroker.console.failures import FAILED
from txbroker.errors import StartError
from txbroker.garbage_collection import GarbageCollection
from txbroker.log_output import FORMATS, TEXT, parse_levels, write_log
from txbroker.platform import system

if TYPE_CHECKING:
    from txbroker.startup import Startup

DESCRIPTION = """\
Run a broker in the foreground. With Kafka's defaults it listens on port 9092 of all addresses and keeps its data in /tmp/kafka-logs.

  txbroker run --override listeners=PLAINTEXT://127.0.0.1:9092 --override log.dirs=./data
  txbroker run --config server.properties
  txbroker run --config server.properties --processes auto

Ctrl-C and SIGTERM stop the broker cleanly. A second Ctrl-C ends the process at once; the next start then recovers the logs.
"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("run", help="run a broker in the foreground", description=DESCRIPTION)
    add_configuration(parser)
    ready_help = "write host:port of each listener to FILE once clients are served (with port 0 a free port is taken)"
    parser.add_argument("--ready-file", metavar="FILE", help=ready_help)
    level_help = "the log level (default: info), of all loggers or of one (txbroker.groups=debug); can be specified several times"
    parser.add_argument("--log-level", action="append", default=[], type=_level, metavar="[LOGGER=]LEVEL", help=level_help)
    parser.add_argument("--log-format", default=TEXT, choices=FORMATS, help="text (default), or json: one object per line")
    processes_help = (
        "run N brokers of one cluster as processes of this machine, or one for each core with auto; their ports are consecutive, from those"
        " of the listeners on"
    )
    parser.add_argument("--processes", type=process_count, metavar="N|auto", help=processes_help)
    parser.add_argument("--stop-with-input", action="store_true", help=argparse.SUPPRESS)  # for --processes
    parser.set_defaults(command=run)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """The flags for the configuration of a broker."""
    several = "can be specified several times"
    config_help = f"a server.properties file with Kafka's keys; {several}, the last value of a key applies"
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help=config_help)
    env_help = "read KAFKA_... environment variables, as Kafka's container images do; they override the files"
    parser.add_argument("--env", action="store_true", help=env_help)
    override_help = f"overrides files and environment variables; {several}"
    parser.add_argument("--override", action="append", default=[], type=_override, metavar="KEY=VALUE", help=override_help)


def _override(text: str) -> str:
    key_value(text)
    return text


def process_count(text: str) -> int:
    """The value of --processes."""
    if text == "auto":
        return system.cores()
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"{text} is neither auto nor a number from 1 to {PROCESSES_MAX}")
    return int(text)


def _level(text: str) -> str:
    try:
        parse_levels([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; 0 after a clean stop, 1 if the broker could not start or failed."""
    write_log(sys.stderr, arguments.log_format, parse_levels(arguments.log_level))
    from txbroker.startup import choose_platform, read_startup

    try:
        startup = read_startup(arguments.config, arguments.override, environment=arguments.env)
        choose_platform(startup.config)
    except StartError as error:
        for problem in str(error).split("\n"):
            _refuse(problem)
        return FAILED
    if arguments.processes is not None:
        return _run_processes(arguments, startup)
    GarbageCollection().begin()  # before the imports, which leave many objects and hardly any garbage
    from txbroker.broker_service import BrokerService, log_twisted, monotonic_reactor

    log_twisted()
    # The process that has started this one prints the first steps for all.
    welcomes = _welcomes(arguments) and not arguments.stop_with_input
    on_ready = _welcome if welcomes else lambda broker: None
    service = BrokerService(startup, arguments.ready_file, refuse=_refuse, on_ready=on_ready)
    service.startService()
    reactor = monotonic_reactor()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    if arguments.stop_with_input:
        service.stop_with_input()
    reactor.run()
    return service.exit_status


def _run_processes(arguments: argparse.Namespace, startup: Startup) -> int:
    from txbroker.broker_processes import BrokerProcesses
    from txbroker.broker_service import log_twisted, monotonic_reactor
    from txbroker.startup import log_directories
    from txbroker.supervisor import supervisor

    passed = ["--log-format", arguments.log_format, *(["--env"] if arguments.env else [])]
    for flag, values in (("--config", arguments.config), ("--override", arguments.override), ("--log-level", arguments.log_level)):
        for value in values:
            passed += [flag, value]
    log_twisted()
    reactor = monotonic_reactor()

    def welcome(addresses: Sequence[str]) -> None:
        if _welcomes(arguments):
            _print_first_steps(", ".join(addresses), addresses[0], ", ".join(log_directories(startup.config)))

    group = BrokerProcesses(
        reactor,
        startup.config,
        passed,
        arguments.processes,
        arguments.ready_file,
        systemd=supervisor(reactor),
        refuse=_refuse,
        on_ready=welcome,
    )
    reactor.callWhenRunning(group.start)
    reactor.run()
    return group.exit_status


def _refuse(why: str) -> None:
    print(f"txbroker: {why}", file=sys.stderr, flush=True)


def _welcomes(arguments: argparse.Namespace) -> bool:
    """Whether to print first steps once clients are served: standard output is a terminal. The addresses are in the log too."""
    return arguments.log_format == TEXT and sys.stdout.isatty()


def _welcome(broker: Any) -> None:
    listening = ", ".join(f"{name} on {host}:{port}" for name, (host, port) in broker.bound.items())
    host, port = next(iter(broker.bound.values()))
    _print_first_steps(listening, f"{host}:{port}", ", ".join(broker.directories))


def _print_first_steps(listening: str, address: str, data: str) -> None:
    """`address`: host:port of a listener."""
    host, _, port = address.rpartition(":")
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '::', '[::]') else host}:{port}"
    program = _program()
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(
            f"txbroker is listening: {listening}\n"
            f"Its data is in {data}\n"
            "Try it, in another terminal:\n"
            f"  {program} topics --bootstrap-server {address} --create --topic hello --partitions 3\n"
            f"  echo 'hello, world' | {program} produce --bootstrap-server {address} --topic hello\n"
            f"  {program} consume --bootstrap-server {address} --topic hello --from-beginning --max-messages 1\n"
            "Ctrl-C stops it.",
            flush=True,
        )


def _program() -> str:
    """The program name to call this command again from the same directory."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return "python -m txbroker" if sys.prefix == sys.base_prefix else f"{_short(sys.executable)} -m txbroker"
    found = shutil.which("txbroker")
    return "txbroker" if found is not None and os.path.realpath(found) == os.path.realpath(called) else _short(called)


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
