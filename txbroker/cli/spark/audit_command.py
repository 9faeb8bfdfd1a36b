"""`txbroker spark audit`: whether what was written to topics was delivered, to a table, a mirrored topic, a group or a replica."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.clients import read_properties
from txbroker.cli.group_reset import datetime_ms
from txbroker.cli.spark.job_flags import Job, Outcome, add_session, add_source, run_job, source_of
from txbroker.console.failures import BadUsage
from txbroker.console.input_files import read_json
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.audit.job import Since
    from txbroker.spark.audit.report import AuditReport, PartitionResult
    from txbroker.spark.topic_source import TopicSource

DESCRIPTION = """\
Compare what was written to topics with what was delivered: to a table of `txbroker spark load` or `txbroker spark upsert`, to a mirrored
topic, to a consumer group, or to another replica, by the log directories of both. Records are compared by key, value, timestamp and
headers, at their offsets, or by their order where a mirror has other offsets.

  txbroker spark audit --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --html audit.html
  txbroker spark audit --bootstrap-server a:9092 --topic orders --against-bootstrap-server b:9092 --against-topic orders
  txbroker spark audit --bootstrap-server 127.0.0.1:9092 --topic prices --group readers --keys-table ./keys
  txbroker spark audit --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --since yesterday.json
  txbroker spark audit --topic orders --log-dir broker-1=/srv/broker-1 --against-log-dir broker-2=/srv/broker-2

Records that are missing, doubled, changed or out of order are reported with the first offset of each kind, examples, and a command that
shows them. What compaction, retention and aborted transactions removed is counted and not wrong, if there is proof; a record that is gone
without a reason is lost. Records after what was delivered are not wrong either: they are not delivered yet.

Exit status: 0 nothing is wrong, 1 something is, 2 wrong usage or a fault.
"""


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("audit", help="compare what was written to topics with what was delivered", description=DESCRIPTION)
    add_source(parser, required=False)
    sides = parser.add_mutually_exclusive_group(required=True)
    sides.add_argument("--table", metavar="DIR", help="compare with this table of `txbroker spark load` or `upsert`")
    against_help = "compare with this topic, a mirror; can be specified several times, then with the same names as --topic"
    sides.add_argument("--against-topic", action="append", metavar="NAME", help=against_help)
    sides.add_argument("--group", metavar="NAME", help="compare with what this consumer group has read, by its committed offsets")
    replica_help = "compare with the replicas in these directories of another broker's log.dirs, comma-separated"
    sides.add_argument("--against-log-dir", metavar="DIR,...", help=replica_help)
    log_dir_help = "read from these directories of a broker's log.dirs, each after NAME= if it has a name, instead of --bootstrap-server"
    parser.add_argument("--log-dir", metavar="DIR,...", help=log_dir_help)
    server_help = "brokers of --against-topic, comma-separated (default: --bootstrap-server)"
    parser.add_argument("--against-bootstrap-server", metavar="HOST:PORT", help=server_help)
    config_help = "a properties file of a Kafka client for --against-topic (default: --command-config)"
    parser.add_argument("--against-command-config", metavar="FILE", help=config_help)
    since_help = "only records since this time, e.g. 2026-01-31T18:00:00 (UTC), or since the end of an earlier audit, by its JSON report"
    parser.add_argument("--since", metavar="TIME|FILE.json", help=since_help)
    parser.add_argument("--keys", action="store_true", help="compare by key too, as --html and --keys-table do")
    parser.add_argument("--keys-table", metavar="DIR", help="write a row for each key as Parquet into this new folder")
    parser.add_argument("--examples", type=number(0), default=5, metavar="N", help="examples of each finding (default: 5)")
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit, print a line a partition and the findings, and write the report; CommandFailed."""
    return run_job(arguments, "audit", lambda: _job(arguments))


def _job(arguments: argparse.Namespace) -> Job:
    from txbroker.spark.audit.job import AuditOptions, audit, check_options

    if (arguments.bootstrap_server is None) is (arguments.log_dir is None):
        raise BadUsage("specify --bootstrap-server, or --log-dir with --against-log-dir")
    arguments.bootstrap_server = arguments.bootstrap_server or ""
    options = AuditOptions(
        source=source_of(arguments),
        table=arguments.table,
        against=_against(arguments),
        group=arguments.group,
        log_dirs=arguments.log_dir,
        against_log_dirs=arguments.against_log_dir,
        since=None if arguments.since is None else _since(arguments.since),
        keys=arguments.keys or arguments.html is not None,
        keys_table=arguments.keys_table,
        examples=arguments.examples,
    )
    check_options(options)

    def work(spark: Any) -> Outcome:
        report = audit(spark, options, time.time_ns() // 1_000_000, sys.stderr)
        return Outcome(lines(report), [one.sentence for one in report.findings], report.as_json())

    return Job(work, _needs_delta(arguments))


def _needs_delta(arguments: argparse.Namespace) -> bool:
    """Whether the session must have Delta's jars."""
    from txbroker.spark.tables.table_folder import DELTA, folder, format_of

    return arguments.table is not None and format_of(folder(arguments.table)) == DELTA


def _against(arguments: argparse.Namespace) -> TopicSource | None:
    from dataclasses import replace

    if not arguments.against_topic:
        if arguments.against_bootstrap_server or arguments.against_command_config:
            raise BadUsage("--against-bootstrap-server and --against-command-config need --against-topic")
        return None
    properties = read_properties(arguments.against_command_config or arguments.command_config)
    servers = arguments.against_bootstrap_server or arguments.bootstrap_server
    return replace(source_of(arguments), servers=servers, topics=arguments.against_topic, include=None, properties=properties)


def _since(text: str) -> Since | int:
    """A time, or the ends of an earlier audit."""
    from txbroker.spark.audit.job import Since

    if not text.endswith(".json"):
        try:
            return datetime_ms(text)
        except argparse.ArgumentTypeError as error:
            raise BadUsage(f"--since {error}, or a report whose name ends with .json") from None
    report = read_json(text)
    try:
        if report["job"] != "audit":
            raise ValueError(f"of the job {report['job']}")
        partitions = [((str(one["topic"]), int(one["partition"])), one) for one in report["partitions"]]
        return Since({key: int(one["end"]) for key, one in partitions}, {key: int(one["delivered_end"]) for key, one in partitions})
    except (KeyError, TypeError, ValueError) as error:
        raise BadUsage(f"--since {text} is no report of `txbroker spark audit` ({type(error).__name__}: {error}); "
                       "specify a file that it wrote with --json") from None


def lines(report: AuditReport) -> Sequence[str]:
    """The report for people: a line a partition, and the totals last."""
    found = [_partition(one) for one in report.partitions]
    found += [f"not checked: {sentence}" for sentence in report.not_checked]
    equal, waiting = sum(one.equal for one in report.partitions), sum(one.waiting for one in report.partitions)
    behind = f", {amount(waiting, 'record')} not delivered yet" if waiting else ""
    wrong = f"; {amount(len(report.findings), 'finding')}" if report.findings else "; nothing is wrong"
    return [*found, f"{amount(equal, 'record')} equal in {report.topic} and {report.delivered}{behind}{wrong}"]


def _partition(one: PartitionResult) -> str:
    from txbroker.spark.audit.report import WRONG

    counts = [f"{one.written:,} written", f"{one.delivered:,} delivered", f"{one.equal:,} equal"]
    counts += [f"{count:,} {kind.upper() if kind in WRONG else kind}" for kind, count in one.events.items()]
    if one.waiting:
        counts.append(f"{one.waiting:,} not delivered yet")
    names = ("compacted", "aborted", "control", "expired", "unexplained")
    gaps = [f"{count:,} {name}" for name in names if one.gaps is not None and (count := getattr(one.gaps, name))]
    if gaps:
        counts.append(f"offsets without record: {', '.join(gaps)}")
    if one.keys is not None:
        counts.append(f"{amount(one.keys.keys, 'key')}, {one.keys.unseen:,} unseen")
    return f"{one.topic}-{one.partition} [{one.start}, {one.end}): {', '.join(counts)}"
