"""`txbroker spark upsert`: the latest value of each key of a topic in a Delta table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.clients import read_properties
from txbroker.cli.group_reset import duration_ms
from txbroker.cli.spark.job_flags import Job, Outcome, add_expired, add_session, add_source, run_job, source_of
from txbroker.console.failures import BadUsage
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.upsert import UpsertOptions, UpsertReport

DESCRIPTION = """\
Keep the latest value of each key of a topic in a Delta table. A run merges what the table does not have yet, from a table of
`txbroker spark load`, or directly from the topic. Merging a record again changes nothing, and late records do no harm.

  txbroker spark upsert --from-table ./warehouse/orders --bootstrap-server 127.0.0.1:9092 --table ./warehouse/orders-latest
  txbroker spark upsert --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders-latest

The latest record is the one that compaction keeps: by the topic's compaction.strategy the one with the largest offset, timestamp, or
version in a header. A record with a null value deletes its key. The row stays, with deleted = true, so that an older record that comes
later does not bring the key back. Readers take the rows with deleted = false.

Exit status: 0 done, 1 keys are in two partitions and their records cannot be compared, 2 wrong usage or a fault; run it again then.
"""


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("upsert", help="keep the latest value of each key in a table", description=DESCRIPTION)
    add_source(parser, required=False)
    from_help = "a table of `txbroker spark load` to read instead of the topic; the broker is only asked for the topic's configuration"
    parser.add_argument("--from-table", metavar="DIR", help=from_help)
    parser.add_argument("--table", required=True, metavar="DIR", help="the table's folder, which the driver and all executors mount")
    strategy_help = "which record of a key is the latest: the one with the largest offset, timestamp or version (default: the topic's)"
    parser.add_argument("--compaction-strategy", choices=[each.value for each in Strategy], help=strategy_help)
    parser.add_argument("--version-header", metavar="NAME", help="with --compaction-strategy header: the header that holds the version")
    cross_help = ("if a key has records in two partitions, whose offsets do not compare: report them and merge nothing (fail, default), "
                  "or compare all records of the topic by their timestamps")
    parser.add_argument("--cross-partition", choices=("fail", "timestamp"), help=cross_help)
    buckets_help = "divide a new table into N parts by a hash of the key; a run rewrites only parts with new records (default: 16)"
    parser.add_argument("--buckets", type=number(1), default=16, metavar="N", help=buckets_help)
    parser.add_argument("--again", action="store_true", help="merge all records of the source, also those that the table has")
    purge_help = ("delete the rows of deleted keys after PnDTnHnMnS, such as P7D, and not before the topic's delete.retention.ms "
                  "(default: keep them)")
    parser.add_argument("--purge-after", type=duration_ms, metavar="TIME", help=purge_help)
    add_expired(parser)
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Merge, print what changed, and write the report; CommandFailed."""
    return run_job(arguments, "upsert", lambda: _job(arguments))


def _job(arguments: argparse.Namespace) -> Job:
    from txbroker.spark.tables.table_folder import check_writable, folder
    from txbroker.spark.upsert import check_options, upsert

    options = _options(arguments)
    check_writable(folder(options.table))
    check_options(options)

    def work(spark: Any) -> Outcome:
        report = upsert(spark, options, sys.stderr)
        return Outcome(lines(report), complaints(report), report.as_json())

    return Job(work)


def _options(arguments: argparse.Namespace) -> UpsertOptions:
    from txbroker.spark.brokers import Brokers
    from txbroker.spark.loaded_table import LoadedTable
    from txbroker.spark.upsert import UpsertOptions

    servers = arguments.bootstrap_server
    if servers is None and arguments.from_table is None:
        raise BadUsage("specify --from-table or --bootstrap-server")
    if arguments.from_table is not None and (arguments.include is not None or len(arguments.topic) > 1):
        raise BadUsage("with --from-table specify at most one --topic, and no --include")
    strategy, header = arguments.compaction_strategy, arguments.version_header
    if (strategy == Strategy.HEADER.value) is not (header is not None):
        raise BadUsage("--compaction-strategy header and --version-header need each other")
    return UpsertOptions(
        source=source_of(arguments) if arguments.from_table is None else LoadedTable(arguments.from_table, *arguments.topic),
        table=arguments.table,
        brokers=None if servers is None else Brokers.of(servers, read_properties(arguments.command_config)),
        order=None if strategy is None else CompactionOrder.of_topic(strategy, header or ""),
        by_timestamp=None if arguments.cross_partition is None else arguments.cross_partition == "timestamp",
        buckets=arguments.buckets,
        again=arguments.again,
        purge_after_ms=arguments.purge_after,
        skip_expired=arguments.on_expired == "skip",
    )


def lines(report: UpsertReport) -> Sequence[str]:
    """The report for people, the totals last."""
    found = [f"{one.topic}-{one.partition} [{one.start}, {one.end}): expired before it was merged, skipped" for one in report.expired]
    if report.read.null_keys:
        found.append(f"{amount(report.read.null_keys, 'record')} without a key, which cannot be in the table")
    if report.purged:
        found.append(f"{amount(report.purged, 'row')} of deleted keys purged")
    if not report.ranges:
        return [*found, "nothing new"]
    read = report.read
    total = f"{amount(read.records, 'record')} of {amount(read.keys, 'key')} read"
    if report.merged is None:
        return [*found, f"{total}, nothing merged"]
    same = read.keys - report.merged.inserted - report.merged.updated
    return [*found, f"{total}: {report.merged.inserted:,} inserted, {report.merged.updated:,} updated, {same:,} unchanged"]


def complaints(report: UpsertReport) -> Sequence[str]:
    """What is wrong with the data."""
    if not report.incomparable:
        return []
    found = ", ".join(f"{_shown(one.key)} in {one.partitions[0]} and {one.partitions[1]}" for one in report.examples)
    return [f"{amount(report.incomparable, 'key')} of {report.identity.topic} with records in two partitions, whose offsets do not "
            f"compare, so nothing was merged: {found}; with --cross-partition timestamp and another --table they are compared by timestamp"]


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "replace")
    return repr(text[:80]) if text.isprintable() and "\ufffd" not in text else f"0x{key[:40].hex()}"
