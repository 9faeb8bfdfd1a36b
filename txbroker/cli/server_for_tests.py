"""`txbroker test-server`: a broker for the tests of applications in any language."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from types import FrameType
from typing import Any

from txbroker.cli.arguments import add_properties
from txbroker.console.failures import DONE, CommandFailed
from txbroker.errors import StartError
from txbroker.ready_file import ReadyFile
from txbroker.testing import Kafka, KitError
from txbroker.testing.cluster_settings import BROKERS_MAX
from txbroker.testing.secured import PLAINTEXT, VALUES

DESCRIPTION = """\
Run a broker for tests, with its data in a temporary directory, until SIGTERM or Ctrl-C. When it serves clients, a line of JSON with
bootstrap_servers and control_url is printed, and written to the ready file. The control URL takes rules for faults, and has a journal of
requests: docs/testing.md.

  txbroker test-server --topic orders:3 --ready-file ready.json &
  txbroker test-server --stop-with-input     # for a test process that keeps a pipe to it
"""

LOOK_S = 0.2


class _Stop(Exception):
    """A signal has arrived."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("test-server", help="run a broker for tests, in any language", description=DESCRIPTION)
    parser.add_argument("--port", type=_port, default=0, metavar="PORT", help="the port (default: a free one)")
    brokers_help = "how many brokers: more than one are a cluster, with consecutive ports from PORT on"
    parser.add_argument("--brokers", type=_brokers, default=1, metavar="N", help=brokers_help)
    add_properties(parser, "--setting", "a setting of the broker, by its key in server.properties")
    topic_help = "a topic that the broker has from the start; can be specified several times"
    parser.add_argument("--topic", action="append", default=[], type=_topic, metavar="NAME[:PARTITIONS]", help=topic_help)
    release_help = "the release of Kafka whose requests and versions clients see, such as 2.8 (default: those of this broker)"
    parser.add_argument("--as-version", metavar="RELEASE", help=release_help)
    security_help = "the security protocol; MTLS is SSL with certificates of clients. The line of JSON has settings for librdkafka and Java"
    parser.add_argument("--security", choices=VALUES, default=PLAINTEXT, help=security_help)
    parser.add_argument("--ready-file", metavar="FILE", help="write the line of JSON to FILE once clients are served")
    input_help = "stop when standard input ends: with a pipe to it, the broker ends with the test process, also when that is killed"
    parser.add_argument("--stop-with-input", action="store_true", help=input_help)
    parser.set_defaults(command=run)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text} is not a port: it must be from 0 to 65535")
    return int(text)


def _brokers(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= BROKERS_MAX):
        raise argparse.ArgumentTypeError(f"{text} brokers are not possible: it must be from 1 to {BROKERS_MAX}")
    return int(text)


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isascii() and partitions.isdecimal() and int(partitions))):
        raise argparse.ArgumentTypeError(f"{text} is neither NAME nor NAME:PARTITIONS, such as orders:3")
    return name, int(partitions or 1)


def run(arguments: argparse.Namespace) -> int:
    """Run until it is stopped; CommandFailed if the broker does not start, or ends by itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    ready = ReadyFile(arguments.ready_file)
    try:
        ready.remove_earlier()
        given: dict[str, Any] = {"settings": arguments.setting, "topics": dict(arguments.topic)}
        given |= {"as_version": arguments.as_version, "security": arguments.security}
        with Kafka(arguments.brokers, port=arguments.port, **given) as kafka:
            shown: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "control_url": kafka.control_url}
            if arguments.security != PLAINTEXT:
                shown["client_config"] = {library: kafka.client_config(library) for library in ("librdkafka", "java")}
            line = json.dumps(shown)
            _write(ready, line)
            try:
                print(line, flush=True)
                _wait(kafka, with_input=arguments.stop_with_input)
            finally:
                ready.remove()
    except (KitError, StartError) as error:
        raise CommandFailed(str(error)) from None
    except _Stop:
        pass
    return DONE


def _write(ready: ReadyFile, line: str) -> None:
    try:
        ready.write([line])
    except OSError as error:
        raise CommandFailed(f"{ready.path} cannot be written: {error.strerror}; correct --ready-file") from None


def _wait(kafka: Kafka, *, with_input: bool) -> None:
    """Return when the input ends; _Stop at a signal, CommandFailed if the broker ends by itself."""
    waits_for = [sys.stdin.fileno()] if with_input and sys.stdin is not None else []
    while kafka.running:
        readable, _, _ = select.select(waits_for, [], [], LOOK_S)
        if readable and not os.read(readable[0], 1024):
            return
    raise CommandFailed(f"the broker has ended by itself; its log ends with:\n{kafka.log_tail()}")


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stop
