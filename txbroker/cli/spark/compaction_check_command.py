"""`txbroker spark compaction-check`: whether compaction kept what it must keep."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import add_properties, number
from txbroker.cli.spark.job_flags import Job, Outcome, add_session, add_source, run_job, source_of
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.compaction.check import CheckReport
    from txbroker.spark.compaction.verdicts import Violation

DESCRIPTION = """\
Check that compaction keeps what it must keep: take a snapshot of a compacted topic, let the cleaner work, and compare.

  txbroker spark compaction-check --before --bootstrap-server 127.0.0.1:9092 --topic prices --state ./prices-before
  txbroker log-cleaner --bootstrap-server 127.0.0.1:9092 --compact-now prices --roll --wait
  txbroker spark compaction-check --after --bootstrap-server 127.0.0.1:9092 --topic prices --state ./prices-before

The latest record of each key, by the topic's compaction.strategy, must be unchanged. Records that are left must be the same, at the same
offsets. Tombstones must stay for delete.retention.ms. Nothing may be removed where the cleaner has not been. With --log-dir the records
are read from segment files, and the files are compared with their indexes and with what the broker delivers.

Exit status: 0 all is well, 1 something is wrong with the data, 2 wrong usage or a fault.
"""


def add_parser(jobs: Any) -> None:
    """Add the job."""
    parser = jobs.add_parser("compaction-check", help="check that compaction keeps what it must keep", description=DESCRIPTION)
    step = parser.add_mutually_exclusive_group(required=True)
    step.add_argument("--before", action="store_true", help="take a snapshot of the topics")
    step.add_argument("--after", action="store_true", help="compare the topics with the snapshot")
    parser.add_argument("--state", required=True, metavar="DIR", help="the snapshot's folder, which the driver and all executors mount")
    add_source(parser, required=False)
    log_dir_help = "read segment files in these directories of log.dirs, comma-separated, each after NAME= if it has a name"
    parser.add_argument("--log-dir", metavar="DIR,...", help=log_dir_help)
    add_properties(parser, "--topic-config", "a configuration of the topics, if neither a broker nor the log directories have it")
    parser.add_argument("--examples", type=number(1), default=5, metavar="N", help="show so many records of each violation (default: 5)")
    add_session(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Take the snapshot or compare, print a line a partition, and write the report; CommandFailed."""
    return run_job(arguments, "compaction-check", lambda: _job(arguments))


def _job(arguments: argparse.Namespace) -> Job:
    from txbroker.spark.compaction.check import CheckOptions, after, before, check_after, check_before

    arguments.bootstrap_server = arguments.bootstrap_server or ""
    options = CheckOptions(
        source_of(arguments),
        arguments.state,
        lambda: time.time_ns() // 1_000_000,
        log_dirs=arguments.log_dir,
        topic_configs=arguments.topic_config,
        examples=arguments.examples,
    )
    (check_before if arguments.before else check_after)(options)

    def work(spark: Any) -> Outcome:
        report = (before if arguments.before else after)(spark, options, sys.stderr)
        return Outcome(lines(report), complaints(report), report.as_json())

    return Job(work, delta=False)


def lines(report: CheckReport) -> Sequence[str]:
    """The report for people: a line a partition, and the totals last."""
    from txbroker.spark.compaction.check import unchecked

    found = []
    for part in report.parts:
        where = f"{_name(*part[:3])} [{part.log_start}, {part.end})"
        clean_end = report.clean_ends.get(part[:3])
        clean = "the cleaner's checkpoint is not known" if clean_end is None else f"clean up to {clean_end}"
        if report.verdict is None:
            counts = [amount(report.before.rows[part], "record")]
        else:
            counts = [f"{count:,} {kind}" for kind, count in report.verdict.counts.get(part[:3], {}).items()]
        found.append(", ".join([f"{where}: {clean}", *counts]))
    if report.verdict is None:
        return [*found, f"snapshot of {amount(sum(report.before.rows.values()), 'record')} in {report.state}"]
    if (count := unchecked(report)) > 0:
        found.append(f"{amount(count, 'tombstone')} removed that had no known delete horizon: it is not checked whether that was too early")
    found += [f"{topic}-{partition}: its files changed meanwhile and were not compared with what the broker delivers; run --after again"
              for topic, partition in report.not_compared]
    checked = f"{amount(sum(report.verdict.before.values()), 'record')} of {amount(len(report.parts), 'partition')} checked"
    return [*found, f"{checked}: {'all is well' if report.ok else 'something is wrong'}"]


_ADVICE = {
    "LOST": "the latest record of a key is gone; restore it from a backup or a replica, and look at the broker's log",
    "CHANGED": "a record has another content than before; look at the files with `txbroker log verify`",
    "REORDERED": "the content of a record is at another offset than before; look at the files with `txbroker log verify`",
    "APPEARED": "a record is at an offset that had none; look at the files with `txbroker log verify`",
    "ABOVE_CHECKPOINT": "a record is gone where the cleaner has not been; look at the broker's log and at `txbroker log verify`",
    "TOMBSTONE_EARLY": "a reader that is slower than this misses the deletion; compare delete.retention.ms and the brokers' clocks",
    "RESURRECTED": "the tombstone is gone and an older value of its key is not; delete the key again",
    "TRUNCATED": "the log is shorter than before; look at the brokers' logs for an unclean election or a repair",
    "EXPIRED_WITHOUT_RETENTION": "the log start offset moved, but cleanup.policy has no delete; look at the broker's log",
}


def complaints(report: CheckReport) -> Sequence[str]:
    """What is wrong, and what to do."""
    found = [] if report.verdict is None else [_complaint(one) for one in report.verdict.violations]
    found += [f"{_name(*one[:3])}: {one.path} is damaged {one.problem}; see `txbroker log verify`" for one in report.damages]
    found += [f"{_name(*one[:3])}: {one.path}: {one.problem}; `txbroker log repair --dry-run` shows the remedy" for one in report.faults]
    found += [f"{_name(*one[:3])}: {amount(one.records, 'record')} {one.problem}, the first at offset {one.first_offset}; "
              "look at the broker's log" for one in report.differences]
    return found


def _complaint(one: Violation) -> str:
    shown = ", ".join(f"{example.offset}" + ("" if example.key is None else f" ({example.key})") for example in one.examples)
    more = "" if one.records == len(one.examples) else ", ..."
    return f"{_name(*one[1:4])}: {one.kind}: {amount(one.records, 'record')}, offset {shown}{more}; {_ADVICE[one.kind.name]}"


def _name(replica: str, topic: str, partition: int) -> str:
    return f"{topic}-{partition}" + (f" of {replica}" if replica else "")
