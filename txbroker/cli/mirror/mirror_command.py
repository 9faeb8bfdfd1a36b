"""`txbroker mirror`: copy topics and groups' offsets from one cluster to another, until it is stopped."""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import sys
import time
from typing import Any

from txbroker.cli.arguments import number
from txbroker.cli.mirror import promote_command
from txbroker.cli.own_connections import checked_security
from txbroker.console.addresses import addresses
from txbroker.console.failures import DONE, FAILED, USAGE, BadUsage, complain, complain_as_json, warn
from txbroker.log_output import FORMATS, TEXT, parse_levels, write_log
from txbroker.mirror.settings import DEFAULT_NAME, Environment, MirrorSettings
from txbroker.names import amount

log = logging.getLogger("txbroker.mirror")

DESCRIPTION = """\
Copy topics from one cluster to another, txbroker or Apache Kafka on either side, until it is stopped. A run continues where the one before
ended, also after a kill: no record is lost or doubled. docs/mirror.md says how.

  txbroker mirror --from 127.0.0.1:9092 --to 127.0.0.1:9192 --topic orders --topic payments
  txbroker mirror --from 127.0.0.1:9092 --to 127.0.0.1:9192 --include 'orders-.*' --groups '.*'
  txbroker mirror --from 127.0.0.1:9092 --to 127.0.0.1:9192 --topic orders --until-caught-up --json report.json
  txbroker mirror promote --to 127.0.0.1:9192 --topic orders

Batches are copied compressed, as they are. Topics that the target does not have are created. Nothing else may produce to a copy.

Exit status: 0 stopped by a signal, or caught up; 1 a topic or a partition could not be copied; 2 wrong usage or a fault: run it again.
"""
SECONDS_MIN = 1


def add_parser(subparsers: Any) -> None:
    """Add the subcommand, with its own subcommand."""
    parser = subparsers.add_parser("mirror", help="copy topics from one cluster to another", description=DESCRIPTION)
    parser.add_argument("--from", dest="source", metavar="HOST:PORT", help="brokers of the source to connect to first, comma-separated")
    parser.add_argument("--to", dest="target", metavar="HOST:PORT", help="brokers of the target to connect to first, comma-separated")
    for flag, side in (("--from-command-config", "source"), ("--to-command-config", "target")):
        parser.add_argument(flag, metavar="FILE", help=f"a properties file of a Kafka client for the {side}, with TLS and SASL")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="a topic; can be specified several times")
    parser.add_argument("--include", metavar="REGEX", help="the topics whose whole name matches, also those created later")
    groups_help = "the groups whose whole name matches: commit their offsets on the target too, translated"
    parser.add_argument("--groups", metavar="REGEX", help=groups_help)
    name_help = f"the name of this mirror, if several copy from the same cluster to the same cluster (default: {DEFAULT_NAME})"
    parser.add_argument("--name", default=DEFAULT_NAME, help=name_help)
    parser.add_argument("--same-offsets", action="store_true", help="records keep their offsets; the target must be txbroker")
    expired_help = "if the source deleted records before they were copied: stop the partition (stop, default), or continue (skip)"
    parser.add_argument("--on-expired", choices=("stop", "skip"), default="stop", help=expired_help)
    doubles_help = "continue where the target has records that cannot be compared with the source any more; they may be doubled"
    parser.add_argument("--accept-doubles", action="store_true", help=doubles_help)
    parser.add_argument("--until-caught-up", action="store_true", help="end when everything that the source has now is copied")
    replication_help = "of topics that are created (default: the target's default.replication.factor)"
    parser.add_argument("--replication-factor", type=number(1), default=-1, metavar="N", help=replication_help)
    for flag, default, what in (
        ("--discover-every", 30, "look for new topics and partitions"),
        ("--groups-every", 10, "commit the offsets of groups"),
        ("--progress-every", 10, "log the progress"),
    ):
        parser.add_argument(flag, type=number(SECONDS_MIN), default=default, metavar="SECONDS", help=f"{what} (default: {default})")
    parser.add_argument("--json", metavar="FILE", help="write a report as JSON when the mirror ends")
    parser.add_argument("--log-format", default=TEXT, choices=FORMATS, help="text (default), or json: one object per line")
    parser.set_defaults(command=run, failed_status=USAGE)
    promote_command.add_parser(parser.add_subparsers(title="other commands", metavar="promote", dest="subcommand"))


def run(arguments: argparse.Namespace) -> int:
    """Copy until Ctrl-C, SIGTERM or the end; the exit status."""
    complain_as_json(False)  # --json names a file here
    chosen = settings(arguments)
    from txbroker.broker_service import log_twisted, monotonic_reactor
    from txbroker.client.client_errors import ClientError
    from txbroker.mirror.service import Mirror, MirrorFailed
    from txbroker.mirror.status import Status
    from txbroker.signals import StopSignals
    from txbroker.spark.reports import remove_report, write_report

    if arguments.json:
        remove_report(arguments.json)
    write_log(sys.stderr, arguments.log_format, parse_levels([]))
    log_twisted()
    reactor = monotonic_reactor()
    mirror = Mirror(chosen, Environment(reactor, random.random, lambda: time.time_ns() // 1_000_000))
    status = Status(mirror, reactor.seconds())
    problems: list[Exception] = []

    async def copy() -> None:
        try:
            await mirror.run(lambda: log.info("%s", status.line(reactor.seconds())))
        except (MirrorFailed, ClientError) as error:
            problems.append(error)
        finally:
            reactor.stop()

    def failed(failure: Any) -> None:
        problems.append(failure.value)

    def start() -> None:
        from twisted.internet.defer import Deferred

        StopSignals(reactor, mirror.stop, "the mirror continues without loss at its next start").take()
        Deferred.fromCoroutine(copy()).addErrback(failed)

    reactor.callWhenRunning(start)
    reactor.run()
    report = status.report(reactor.seconds())
    stopped = mirror.stopped
    if arguments.json:
        ok = not (problems or stopped or report["refused"])
        write_report(arguments.json, "mirror", None, {"ok": ok, "problems": [str(each) for each in problems], **report})
    for problem in problems:
        if not isinstance(problem, MirrorFailed | ClientError):
            raise problem
        return complain("txbroker mirror", str(problem), USAGE)
    for line in lines(report):
        print(line)
    for why in report["refused"].values():
        warn(why)
    if stopped:
        what = f"{amount(len(stopped), 'partition')} could not be copied, the first is {stopped[0]}: {stopped[0].problem}"
        return complain("txbroker mirror", what, FAILED)
    if report["refused"]:
        return complain("txbroker mirror", f"{amount(len(report['refused']), 'topic')} could not be copied, see above", FAILED)
    return DONE


def settings(arguments: argparse.Namespace) -> MirrorSettings:
    """What the flags say; BadUsage."""
    if not arguments.source or not arguments.target:
        raise BadUsage("--from and --to are required")
    if not arguments.topic and not arguments.include:
        raise BadUsage("specify the topics with --topic or --include")
    return MirrorSettings(
        source=addresses(arguments.source, "--from"),
        target=addresses(arguments.target, "--to"),
        run_id=os.urandom(8).hex(),
        source_security=checked_security(arguments.from_command_config),
        target_security=checked_security(arguments.to_command_config),
        topics=list(dict.fromkeys(arguments.topic)),
        include=_pattern(arguments.include, "--include"),
        groups=_pattern(arguments.groups, "--groups"),
        name=arguments.name,
        same_offsets=arguments.same_offsets,
        skip_expired=arguments.on_expired == "skip",
        accept_doubles=arguments.accept_doubles,
        until_caught_up=arguments.until_caught_up,
        replication_factor=arguments.replication_factor,
        discover_every_s=arguments.discover_every,
        groups_every_s=arguments.groups_every,
        progress_every_s=arguments.progress_every,
    )


def _pattern(text: str | None, flag: str) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise BadUsage(f"{flag} {text!r} is not a regular expression ({error})") from None


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people: a line a partition, and the totals last."""
    found = [
        f"{one['topic']}-{one['partition']}: copied to offset {one['copied_to']} of {one['source_end']}, the target ends at "
        f"{one['target_end']}, {amount(one['records'], 'record')} in this run"
        + ("" if one["state"] == "copying" else f", {one['state'].upper()}: {one['problem']}")
        for one in report["partitions"]
    ]
    kinds = (("re_encoded", "re-encoded"), ("converted", "converted from old formats"), ("aborted", "aborted"), ("control", "control"))
    counts = [f"{report['batches'][key]:,} {name}" for key, name in kinds if report["batches"][key]]
    batches = amount(report["batches"]["passed"], "batch") + " unchanged" + "".join(f", {count}" for count in counts)
    return [*found, f"{amount(report['records'], 'record')}, {report['bytes']:,} bytes in {report['seconds']:.1f} s: {batches}"]
