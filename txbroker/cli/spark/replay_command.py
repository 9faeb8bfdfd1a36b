"""`txbroker spark replay`: a topic, or a table of `load`, into a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.clients import read_properties
from txbroker.cli.group_reset import datetime_ms, duration_ms
from txbroker.cli.spark.job_flags import Job, Outcome, add_session, add_source, run_job, source_of
from txbroker.console.failures import BadUsage
from txbroker.names import amount
from txbroker.spark.key_partitioners import PARTITIONERS
from txbroker.wire.compression import Codec

if TYPE_CHECKING:
    from txbroker.spark.replay import ReplayOptions, ReplayReport

DESCRIPTION = """\
Replay a topic, or a table of `txbroker spark load`, into another topic. Key, value, headers, timestamps and the order in each partition are
kept. A run that was killed is continued by running it again: no record is lost or doubled.

  txbroker spark replay --from-table ./warehouse/orders --to-bootstrap-server 127.0.0.1:9092 --to-topic orders-again
  txbroker spark replay --bootstrap-server 127.0.0.1:9092 --topic orders --to-topic orders-test --speed 10 --max-gap PT1M
  txbroker spark replay --bootstrap-server 127.0.0.1:9092 --topic orders --to-topic orders-test --range 0:1000-2000 --range 1:0-

Offsets are not kept, and neither are the bounds of transactions: records of committed transactions are written without one.

Exit status: 0 done, 2 wrong usage or a fault; run it again with the same --id.
"""
CODECS = tuple(codec.name.lower() for codec in Codec)


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("replay", help="write a topic or a table into another topic", description=DESCRIPTION)
    add_source(parser, required=False)
    parser.add_argument("--from-table", metavar="DIR", help="a table of `txbroker spark load` to read instead of a topic")
    to_help = "brokers of the target to connect to first, comma-separated (default: --bootstrap-server)"
    parser.add_argument("--to-bootstrap-server", metavar="HOST:PORT", help=to_help)
    config_help = "a properties file of a Kafka client for the target (default: --command-config)"
    parser.add_argument("--to-command-config", metavar="FILE", help=config_help)
    parser.add_argument("--to-topic", required=True, metavar="NAME", help="the target, which must exist")
    id_help = "the name of this replay; a run with the same name continues it (default: SOURCE-TARGET by the topics' names)"
    parser.add_argument("--id", metavar="NAME", help=id_help)
    range_help = "only these offsets, END excluded or left out; can be specified several times (default: all partitions, up to their ends)"
    parser.add_argument("--range", action="append", type=_span, default=[], metavar="PARTITION:START-[END]", help=range_help)
    since_help = "from the first record of this time on (ISO 8601, UTC unless it has a zone), in each partition"
    parser.add_argument("--since", type=datetime_ms, metavar="DATETIME", help=since_help)
    parser.add_argument("--until", type=datetime_ms, metavar="DATETIME", help="up to the first record of this time, which is left out")
    speed_help = "max: as fast as possible (default); 1: at the speed of the timestamps; N: N times as fast"
    parser.add_argument("--speed", type=_speed, default=None, metavar="N", help=speed_help)
    gap_help = "with --speed: shorten times without records to PnDTnHnMnS, such as PT1M"
    parser.add_argument("--max-gap", type=duration_ms, metavar="TIME", help=gap_help)
    partitioner_help = ("the partition of a record: that of the source (default), or by its key with the function that explains the "
                        "partitions of the source (auto), or with this function")
    parser.add_argument("--partitioner", choices=("source", "auto", *PARTITIONERS), default="source", help=partitioner_help)
    parser.add_argument("--compression-type", choices=CODECS, default="none", help="the codec of the batches (default: none)")
    retention_help = "write records that the target's retention.ms deletes soon"
    parser.add_argument("--ignore-retention", action="store_true", help=retention_help)
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay, print what was written, and write the report; CommandFailed."""
    return run_job(arguments, "replay", lambda: _job(arguments))


def _job(arguments: argparse.Namespace) -> Job:
    from txbroker.spark.replay import check_options, replay

    options = _options(arguments)
    check_options(options)

    def work(spark: Any) -> Outcome:
        report = replay(spark, options, sys.stderr)
        return Outcome(lines(report), [], report.as_json())

    return Job(work, arguments.from_table is not None)


def _options(arguments: argparse.Namespace) -> ReplayOptions:
    from txbroker.spark.brokers import Brokers
    from txbroker.spark.loaded_table import LoadedTable
    from txbroker.spark.replay import ReplayOptions

    servers, table = arguments.bootstrap_server, arguments.from_table
    if (servers is None) is (table is None):
        raise BadUsage("specify --from-table, or --bootstrap-server and --topic")
    if table is not None and (arguments.include is not None or len(arguments.topic) > 1):
        raise BadUsage("with --from-table specify at most one --topic, and no --include")
    target = arguments.to_bootstrap_server or servers
    flag = "--to-bootstrap-server" if arguments.to_bootstrap_server else "--bootstrap-server"
    if target is None:
        raise BadUsage("--from-table needs --to-bootstrap-server")
    return ReplayOptions(
        source=source_of(arguments) if table is None else LoadedTable(table, *arguments.topic),
        brokers=Brokers.of(target, read_properties(arguments.to_command_config or arguments.command_config), flag),
        topic=arguments.to_topic,
        id=arguments.id,
        spans=dict(arguments.range) if arguments.range else None,
        since_ms=arguments.since,
        until_ms=arguments.until,
        speed=arguments.speed,
        max_gap_ms=arguments.max_gap,
        partitioner=arguments.partitioner,
        codec=Codec[arguments.compression_type.upper()],
        ignore_retention=arguments.ignore_retention,
    )


def lines(report: ReplayReport) -> Sequence[str]:
    """The report for people, the totals last."""
    found = []
    if report.sampled:
        shown = ", ".join(f"{name} {count:,}" for name, count in report.explained.items())
        found.append(f"of {amount(report.sampled, 'sampled key')} these explain the partition: {shown}; {report.partitioner} is used")
    found += [f"{report.target}-{index}: {amount(count, 'record')}" for index, count in sorted(report.written.items())]
    if not report.ranges:
        return [*found, f"nothing left to replay (group {report.group})"]
    total = sum(report.written.values())
    offsets = sum(one.size for one in report.ranges)
    return [*found, f"{amount(total, 'record')} of {amount(offsets, 'offset')} of {report.source} written to {report.target} "
                    f"(group {report.group})"]


def _span(text: str) -> tuple[int, Any]:
    """The type of --range."""
    from txbroker.spark.replay import Span

    partition, colon, offsets = text.partition(":")
    start, dash, end = offsets.partition("-")
    numbers = (partition, start, *([end] if end else []))
    if not colon or not dash or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"must be PARTITION:START-END or PARTITION:START-, not {text!r}")
    if end and int(end) < int(start):
        raise argparse.ArgumentTypeError(f"has an end before its start: {text!r}")
    return int(partition), Span(int(start), int(end) if end else None)


def _speed(text: str) -> float | None:
    """The type of --speed."""
    if text == "max":
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be max or a number above 0, not {text!r}")
    return found
