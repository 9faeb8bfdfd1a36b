"""`txbroker spark load`: topics into a table, each record exactly once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.spark.job_flags import Outcome, add_expired, add_session, add_source, run_job, source_of
from txbroker.cli.spark.setup_command import jar_folder
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.load import LoadReport
    from txbroker.spark.load_check import CheckedRange

DESCRIPTION = """\
Load topics into a Delta or Parquet table, each record exactly once, also after a kill at any point. A run loads what the table does not
have yet.

  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --include 'orders-.*' --table ./warehouse/orders --json report.json

Rows have the columns topic, partition, offset, timestamp, timestamp_ms, timestamp_type, key, value and headers. The offsets are committed
with the rows. Then the rows are checked against the offsets: an offset without a row must be compacted, aborted, a transaction marker or
expired, or it is reported as lost.

Exit status: 0 done, 1 records are lost or doubled, 2 wrong usage or a fault; after a fault nothing is lost or doubled: run it again.
"""


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("load", help="load topics into a table, each record exactly once", description=DESCRIPTION)
    add_source(parser)
    parser.add_argument("--table", required=True, metavar="DIR", help="the table's folder, which the driver and all executors mount")
    format_help = "the format of a new table (default: delta if its jars are there, otherwise parquet)"
    parser.add_argument("--format", choices=("delta", "parquet"), help=format_help)
    add_expired(parser)
    group_help = "commit the end offsets to this consumer group after each load, so that tools show its lag; it must have no members"
    parser.add_argument("--commit-group", metavar="NAME", help=group_help)
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, print a line a partition, and write the report; CommandFailed."""
    from txbroker.spark.load import LoadOptions, load

    skip_expired = arguments.on_expired == "skip"
    options = LoadOptions(source_of(arguments), arguments.table, skip_expired, arguments.commit_group, arguments.format)

    def work(spark: Any) -> Outcome:
        report = load(spark, options, sys.stderr)
        faults = [f"the data is loaded, but {report.group.problem}"] if report.group is not None and report.group.problem else []
        return Outcome(lines(report), [complaint(one) for one in report.wrong], report.as_json(), faults)

    return run_job(arguments, "load", work, delta=_needs_delta(arguments))


def _needs_delta(arguments: argparse.Namespace) -> bool:
    from txbroker.spark import jars
    from txbroker.spark.tables.table_folder import DELTA, folder, format_of

    chosen = format_of(folder(arguments.table)) or arguments.format
    return jars.has_delta(jar_folder(arguments)) if chosen is None else chosen == DELTA


def lines(report: LoadReport) -> Sequence[str]:
    """The report for people: a line a partition, and the totals last."""
    found = [_partition(one) for one in report.checked]
    for one in report.expired:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): expired before it was loaded, skipped")
    for one in report.unchecked:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): loaded by an earlier run, cannot be checked any more")
    for one in report.waiting:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): in open transactions, not loaded yet")
    if report.group is not None and report.group.committed:
        found.append(f"group {report.group.group}: the offsets of {amount(report.group.committed, 'partition')} committed")
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
    found = f"{amount(one.rows, 'row')} and {amount(one.gaps.total, 'gap')}"
    return f"{name}: {found} are not {amount(one.range.size, 'offset')}; run the load again and report it"
