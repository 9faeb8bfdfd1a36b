"""`txbroker spark load`: topics into a Delta table, each record exactly once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.clients import read_properties
from txbroker.cli.failures import DONE, FAILED, complain, complain_as_json, warn
from txbroker.cli.spark.setup_command import add_jars, jar_folder
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.load import LoadReport
    from txbroker.spark.load_check import CheckedRange

DESCRIPTION = """\
Load topics into a Delta table, each record exactly once, also after a kill at any point. A run loads what the table does not have yet.

  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --include 'orders-.*' --table ./warehouse/orders --json report.json

Rows have the columns topic, partition, offset, timestamp, timestamp_ms, timestamp_type, key, value and headers. The offsets are committed
with the rows. Then the rows are checked against the offsets: an offset without a row must be compacted, aborted, a transaction marker or
expired, or it is reported as lost.

Exit status: 0 done, 1 records are lost or doubled, 2 wrong usage or a fault; after a fault nothing is lost or doubled: run it again.
"""
DEFAULT_MASTER = "local[*]"


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("load", help="load topics into a table, each record exactly once", description=DESCRIPTION)
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="brokers to connect to first, comma-separated")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="a topic; can be specified several times")
    parser.add_argument("--include", metavar="REGEX", help="the topics whose whole name matches, instead of --topic")
    parser.add_argument("--table", required=True, metavar="DIR", help="the table's folder, which the driver and all executors mount")
    parser.add_argument("--master", default=DEFAULT_MASTER, metavar="URL", help=f"the Spark master (default: {DEFAULT_MASTER})")
    config_help = "a properties file for Spark's Kafka consumers"
    parser.add_argument("--command-config", metavar="FILE", help=config_help)
    levels = ("read_committed", "read_uncommitted")
    level_help = "whether to leave out records of aborted and open transactions (default: read_committed)"
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help=level_help)
    expired_help = "if offsets were deleted before they were loaded: fail (default), or skip them and report how many"
    parser.add_argument("--on-expired", choices=("fail", "skip"), default="fail", help=expired_help)
    split_help = "divide a partition into tasks of at most N offsets (default: one task a partition)"
    parser.add_argument("--split", type=number(1), metavar="N", help=split_help)
    parser.add_argument("--json", metavar="FILE", help="write a report as JSON; the file exists only if the job has finished")
    add_jars(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, print a line a partition, and write the report; CommandFailed."""
    complain_as_json(False)  # --json names a file here
    from txbroker.spark.load import LoadOptions, load
    from txbroker.spark.offset_ranges import WrongData
    from txbroker.spark.reports import remove_report, write_report
    from txbroker.spark.session import open_session

    options = LoadOptions(
        servers=arguments.bootstrap_server,
        table=arguments.table,
        topics=arguments.topic,
        include=arguments.include,
        isolation_level=arguments.isolation_level,
        skip_expired=arguments.on_expired == "skip",
        split=arguments.split,
        properties=read_properties(arguments.command_config),
    )
    if arguments.json:
        remove_report(arguments.json)
    spark = open_session(arguments.master, jar_folder(arguments), delta=True)
    try:
        report = load(spark, options, sys.stderr)
        version = spark.version
    except WrongData as wrong:
        return complain("txbroker spark load", str(wrong), FAILED)
    finally:
        spark.stop()
    for line in lines(report):
        print(line)
    for one in report.wrong:
        warn(complaint(one))
    if arguments.json:
        write_report(arguments.json, "load", version, report.as_json())
    return FAILED if report.wrong else DONE


def lines(report: LoadReport) -> Sequence[str]:
    """The report for people: a line a partition, and the totals last."""
    found = [_partition(one) for one in report.checked]
    for one in report.expired:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): expired before it was loaded, skipped")
    for one in report.unchecked:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): loaded by an earlier run, cannot be checked any more")
    for one in report.waiting:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): in open transactions, not loaded yet")
    if not report.loaded:
        return [*found, "nothing new"]
    rows = sum(one.rows for one in report.checked)
    offsets = sum(one.size for one in report.loaded)
    return [*found, f"{amount(rows, 'row')} of {amount(offsets, 'offset')} in {amount(len(report.loaded), 'partition')} loaded"]


def _partition(one: CheckedRange) -> str:
    gaps = one.gaps
    counts = {"compacted": gaps.compacted, "aborted": gaps.aborted, "control": gaps.control, "expired": gaps.expired,
              "UNEXPLAINED": gaps.unexplained, "DOUBLED": one.doubled}
    where = f"{one.range.topic}-{one.range.partition} [{one.range.start}, {one.range.end})"
    return ", ".join([f"{where}: {amount(one.rows, 'row')}", *(f"{count:,} {name}" for name, count in counts.items() if count)])


def complaint(one: CheckedRange) -> str:
    """What is wrong with a partition, and what to look at."""
    name = f"{one.range.topic}-{one.range.partition}"
    if one.gaps.unexplained:
        return (f"{name}: {amount(one.gaps.unexplained, 'offset')} without a record and without a reason, the first is "
                f"{one.gaps.first_unexplained}; look at the broker's log and its files with `txbroker log verify`")
    if one.doubled:
        return f"{name}: {amount(one.doubled, 'row')} are doubled or outside of [{one.range.start}, {one.range.end})"
    return f"{name}: {one.rows} rows and {one.gaps.total} gaps are not {one.range.size} offsets; run the load again and report it"
