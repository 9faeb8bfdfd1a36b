"""`txbroker run`: a broker in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import os.path
import shutil
import sys
from collections.abc import Callable
from typing import Any

from txbroker.cli.arguments import key_value
from txbroker.cli.failures import FAILED
from txbroker.errors import StartError
from txbroker.log_output import FORMATS, TEXT, parse_levels, write_log

DESCRIPTION = """\
Start a broker in the foreground. Without flags it listens on port 9092 and keeps its data in /tmp/kafka-logs, as Kafka's defaults say.

  txbroker run --override listeners=PLAINTEXT://127.0.0.1:9092 --override log.dirs=./data

Ctrl-C and SIGTERM stop it cleanly; a second Ctrl-C ends it at once, and its logs are then recovered at the next start.
"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("run", help="start a broker in the foreground", description=DESCRIPTION)
    add_configuration(parser)
    parser.add_argument("--ready-file", metavar="FILE", help="write host:port of each listener into FILE once clients are served")
    level_help = "what to log (default: info), at all or by one logger (txbroker.groups=debug); may be given several times"
    parser.add_argument("--log-level", action="append", default=[], type=_level, metavar="[LOGGER=]LEVEL", help=level_help)
    parser.add_argument("--log-format", default=TEXT, choices=FORMATS, help="text (default), or json: one object a line")
    parser.set_defaults(command=run)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """The flags that say what a broker is configured with."""
    several = "may be given several times"
    config_help = f"a server.properties file with Kafka's keys; {several}, the last one wins"
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help=config_help)
    env_help = "read KAFKA_... environment variables, as the container images of Kafka do; they win over files"
    parser.add_argument("--env", action="store_true", help=env_help)
    override_help = f"taken in place of what files and environment say; {several}"
    parser.add_argument("--override", action="append", default=[], type=_override, metavar="KEY=VALUE", help=override_help)


def _override(text: str) -> str:
    key_value(text)
    return text


def _level(text: str) -> str:
    try:
        parse_levels([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; 0 after a clean stop, 1 when the broker could not start or go on."""
    write_log(sys.stderr, arguments.log_format, parse_levels(arguments.log_level))
    from txbroker.startup import read_startup
    from txbroker.tap import BrokerService, log_twisted, monotonic_reactor

    try:
        startup = read_startup(arguments.config, arguments.override, environment=arguments.env)
    except StartError as error:
        for problem in str(error).split("\n"):
            _refuse(problem)
        return FAILED
    log_twisted()
    service = BrokerService(startup, arguments.ready_file, refuse=_refuse, on_ready=_welcome(arguments.log_format))
    service.startService()
    reactor = monotonic_reactor()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return service.exit_status


def _refuse(why: str) -> None:
    print(f"txbroker: {why}", file=sys.stderr, flush=True)


def _welcome(log_format: str) -> Callable[[Any], None]:
    """What is printed once clients are served: first steps on a terminal, and nothing elsewhere; the log has the addresses too."""
    return _print_welcome if log_format == TEXT and sys.stdout.isatty() else lambda broker: None


def _print_welcome(broker: Any) -> None:
    host, port = next(iter(broker.bound.values()))
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    listening = ", ".join(f"{name} on {host}:{port}" for name, (host, port) in broker.bound.items())
    data = ", ".join(broker.directories)
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
    """How this command was called, so that it can be called again from the same place."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return "python -m txbroker" if sys.prefix == sys.base_prefix else f"{_short(sys.executable)} -m txbroker"
    found = shutil.which("txbroker")
    return "txbroker" if found is not None and os.path.realpath(found) == os.path.realpath(called) else _short(called)


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
