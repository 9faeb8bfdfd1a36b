"""`txbroker mirror promote`: end the copying of a topic, so that clients may produce to it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from txbroker.cli.own_connections import checked_security
from txbroker.console.addresses import addresses
from txbroker.console.failures import DONE, BadUsage, CommandFailed

DESCRIPTION = """\
End the copying of topics: producers may write to them from now on, and no mirror continues to copy to them. Stop the mirror first, and
producers on the source before it, so that everything is copied.

  txbroker mirror promote --to 127.0.0.1:9192 --topic orders
"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("promote", help="end the copying of topics: clients may produce to them", description=DESCRIPTION)
    to_help = "brokers of the target to connect to first, comma-separated"
    parser.add_argument("--to", dest="promoted_target", required=True, metavar="HOST:PORT", help=to_help)
    parser.add_argument("--to-command-config", dest="promoted_config", metavar="FILE",
                        help="a properties file of a Kafka client for the target, with TLS and SASL")
    topic_help = "a topic; can be specified several times"
    parser.add_argument("--topic", dest="promoted", action="append", required=True, metavar="NAME", help=topic_help)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Promote, and print a line a topic; CommandFailed if a topic is not a copy."""
    import random

    from twisted.internet.defer import Deferred

    from txbroker.broker_service import monotonic_reactor
    from txbroker.mirror.promotion import NotACopy, promote
    from txbroker.mirror.settings import Environment

    reactor = monotonic_reactor()
    environment = Environment(reactor, random.random, lambda: time.time_ns() // 1_000_000)
    outcome: list[Any] = []

    target = addresses(arguments.promoted_target, "--to")
    security = checked_security(arguments.promoted_config)

    def start() -> None:
        done = Deferred.fromCoroutine(promote(target, arguments.promoted, environment, security))
        done.addBoth(outcome.append).addBoth(lambda _: reactor.stop())

    if not all(arguments.promoted):
        raise BadUsage("--topic must be the name of a topic")
    reactor.callWhenRunning(start)
    reactor.run()
    (found,) = outcome
    if isinstance(found, list):
        for line in found:
            print(line)
        sys.stdout.flush()
        return DONE
    if found.check(NotACopy):
        raise CommandFailed(found.getErrorMessage())
    raise found.value
