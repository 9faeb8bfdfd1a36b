"""`txbroker run`: a broker in the foreground."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from typing import Any

from txbroker.errors import StartError

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("run", help="start a broker in the foreground", description="Start a broker in the foreground.")
    parser.add_argument("--config", metavar="FILE", help="a server.properties file with Kafka's keys")
    override_help = "taken in place of what the file says; may be given several times"
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help=override_help)
    parser.add_argument("--ready-file", metavar="FILE", help="write host:port of each listener into FILE once clients are served")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"], help="what to log (default: info)")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; 0 after a clean stop, 1 when the broker could not start or go on."""
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT, level=arguments.log_level.upper())
    from txbroker.tap import BrokerService, read_config

    try:
        config = read_config(arguments.config, arguments.override)
    except StartError as error:
        print(f"txbroker: {error}", file=sys.stderr)
        return 1
    from twisted.internet import reactor

    service = BrokerService(config, arguments.ready_file, on_ready=_print_welcome)
    service.startService()
    running: Any = reactor
    running.addSystemEventTrigger("before", "shutdown", service.stopService)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    running.run()
    return service.exit_status


def _print_welcome(broker: Any) -> None:
    host, port = next(iter(broker.bound.values()))
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    listening = ", ".join(f"{name} on {host}:{port}" for name, (host, port) in broker.bound.items())
    data = ", ".join(broker.directories)
    print(
        f"txbroker is listening: {listening}\n"
        f"Its data is in {data}\n"
        "Try it, in another terminal:\n"
        f"  txbroker topics --bootstrap-server {address} --create --topic hello --partitions 3\n"
        f"  echo 'hello, world' | txbroker produce --bootstrap-server {address} --topic hello\n"
        f"  txbroker consume --bootstrap-server {address} --topic hello --from-beginning --max-messages 1\n"
        "Ctrl-C stops it.",
        flush=True,
    )
