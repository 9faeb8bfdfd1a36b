"""`txbroker spark load`: topics into a table, each record exactly once."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.spark.job_flags import Job, Outcome, add_expired, add_session, add_source, run_job, source_of
from txbroker.cli.spark.load_output import complaints, faults, lines, planned_lines
from txbroker.cli.spark.setup_command import jar_folder
from txbroker.console.addresses import addresses
from txbroker.console.failures import BadUsage, warn
from txbroker.names import amount
from txbroker.signals import SignalledEvent

if TYPE_CHECKING:
    from txbroker.spark.load import LoadOptions, LoadReport
    from txbroker.spark.load_metrics import LoadMetrics

DESCRIPTION = """\
Load topics into a Delta or Parquet table, each record exactly once, also after a kill at any point. A run loads what the table does not
have yet.

  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --include 'orders-.*' --table ./warehouse/orders --json report.json
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --every 30 --compact 200
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --decode-value json --schema order.sql
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --dry-run

Rows have the columns topic, partition, offset, timestamp, timestamp_ms, timestamp_type, key, value and headers, and with
--decode-value also decoded and decode_error. The offsets are committed with the rows. Then the rows are checked against the offsets: an
offset without a row must be compacted, aborted, a transaction marker or expired, or it is reported as lost.

Exit status: 0 done, 1 records are lost or doubled, or more than --max-bad are undecodable, 2 wrong usage or a fault; after a fault nothing
is lost or doubled: run it again.
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
    decode_help = "decode values into the column decoded, beside the raw value; registry: Avro in the framing of a schema registry"
    parser.add_argument("--decode-value", choices=("none", "json", "avro", "registry"), default="none", help=decode_help)
    schema_help = "json: columns in SQL, or a JSON Schema; avro: the schema; registry: the schema to read with (default: the newest found)"
    parser.add_argument("--schema", metavar="FILE", help=schema_help)
    parser.add_argument("--registry", metavar="DIR|URL", help="a folder with ID.avsc files, or the URL of a schema registry")
    bad_help = "exit with status 1 if more values than N could not be decoded; all rows are loaded (default: no limit)"
    parser.add_argument("--max-bad", type=number(0), metavar="N", help=bad_help)
    compact_help = "after a load, rewrite the table's small files (below 32 MiB) into larger ones if there are N or more"
    parser.add_argument("--compact", type=number(2), metavar="N", help=compact_help)
    rebase_help = ("continue a table although the cluster or a topic has another id: only if the records are the same at the same offsets, "
                   "as in a restored cluster; the last loaded record of each partition is compared")
    parser.add_argument("--rebase", action="store_true", help=rebase_help)
    parser.add_argument("--dry-run", action="store_true", help="print the offsets and sizes that would be loaded, and write nothing")
    every_help = "load again every N seconds, until SIGTERM or SIGINT, which ends after the current load with exit status 0"
    parser.add_argument("--every", type=number(1), metavar="N", help=every_help)
    metrics_help = "with --every: serve /metrics for Prometheus, with the lag, and /ready at this address"
    parser.add_argument("--metrics", metavar="HOST:PORT", help=metrics_help)
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, print a line a partition, and write the report; CommandFailed."""
    return run_job(arguments, "load", lambda: _job(arguments))


def _job(arguments: argparse.Namespace) -> Job:
    from txbroker.spark.decoding.decoding import Decoding
    from txbroker.spark.dry_run import dry_run
    from txbroker.spark.load import LoadOptions, check_options, load_once
    from txbroker.spark.load_metrics import LoadMetrics, serve
    from txbroker.spark.tables.table_folder import check_writable, folder

    if arguments.dry_run and arguments.every is not None:
        raise BadUsage("--dry-run and --every exclude each other")
    if arguments.metrics is not None and arguments.every is None:
        raise BadUsage("--metrics needs --every")
    skip_expired = arguments.on_expired == "skip"
    decoding = Decoding(arguments.decode_value, arguments.schema, arguments.registry, arguments.max_bad)
    options = LoadOptions(source_of(arguments), arguments.table, skip_expired, arguments.commit_group, arguments.format, decoding,
                          arguments.compact, arguments.rebase)
    if not arguments.dry_run:
        check_writable(folder(options.table))
    check_options(options)
    metrics = None if arguments.metrics is None else LoadMetrics(options.source.snapshot, time.time)
    if metrics is not None:
        serve(metrics, *addresses(arguments.metrics, "--metrics"))

    def work(spark: Any) -> Outcome:
        if arguments.dry_run:
            planned = dry_run(spark, options)
            return Outcome(planned_lines(planned), (), planned.as_json())
        if arguments.every is not None:
            return _rounds(spark, options, arguments.every, metrics)
        report = load_once(spark, options, sys.stderr)
        return Outcome(lines(report), complaints(report), report.as_json(), faults(report))

    return Job(work, _needs_delta(arguments))


def _rounds(spark: Any, options: LoadOptions, every_s: int, metrics: LoadMetrics | None) -> Outcome:
    """Load until a signal, with the output of each round at its end."""
    from txbroker.spark.load_loop import load_every

    def show(report: LoadReport) -> None:
        for line in lines(report) if report.loaded or report.checked else ():
            print(line, flush=True)
        for problem in (*complaints(report), *faults(report)):
            warn(problem)

    with stop_signals() as stop:
        rounds = load_every(spark, options, every_s, stop, show, sys.stderr, metrics)
    totals = f"stopped after {amount(rounds.count, 'load')} with {amount(rounds.rows, 'row')}"
    wrong = ["at least one of the loads found records that are lost, doubled or undecodable, see above"] if rounds.wrong else []
    last = {} if rounds.last is None else rounds.last.as_json()
    failed = [] if rounds.last is None or not faults(rounds.last) else ["the last load could not commit its offsets, see above"]
    return Outcome([totals], wrong, {**last, "loads": rounds.count, "rows": rounds.rows}, failed)


@contextmanager
def stop_signals() -> Iterator[SignalledEvent]:
    """An event that SIGTERM and SIGINT set; a second one ends the process as usual."""
    stop = SignalledEvent()
    before: dict[int, Any] = {}

    def received(number: int, frame: object) -> None:
        stop.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    for one in (signal.SIGTERM, signal.SIGINT):
        before[one] = signal.signal(one, received)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _needs_delta(arguments: argparse.Namespace) -> bool:
    from txbroker.spark import jars
    from txbroker.spark.tables.table_folder import DELTA, folder, format_of

    chosen = format_of(folder(arguments.table)) or arguments.format
    return jars.has_delta(jar_folder(arguments)) if chosen is None else chosen == DELTA
