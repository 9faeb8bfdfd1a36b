"""`txbroker spark`: the jobs on Apache Spark; each has a module of its own."""

from __future__ import annotations

from typing import Any

from txbroker.cli.spark import (
    audit_command,
    compaction_check_command,
    files_command,
    load_command,
    replay_command,
    report_command,
    setup_command,
    upsert_command,
)
from txbroker.console.failures import USAGE

DESCRIPTION = """\
Run jobs on Apache Spark, which read topics with Spark's own Kafka source. They need PySpark, Java 17 and a few jars.

  txbroker spark setup
  txbroker spark load --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders
  txbroker spark upsert --from-table ./warehouse/orders --bootstrap-server 127.0.0.1:9092 --table ./warehouse/orders-latest
  txbroker spark audit --bootstrap-server 127.0.0.1:9092 --topic orders --table ./warehouse/orders --html audit.html

Exit status: 0 done, 1 the job found something wrong with the data, 2 wrong usage or a fault.
"""

JOBS = (setup_command, load_command, upsert_command, replay_command, audit_command, compaction_check_command, files_command, report_command)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand with its own subcommands."""
    parser = subparsers.add_parser("spark", help="run jobs on Apache Spark", description=DESCRIPTION)
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", dest="job", required=True)
    for job in JOBS:
        job.add_parser(jobs)
    for name, job_parser in jobs.choices.items():
        job_parser.set_defaults(failed_status=USAGE, command_name=f"txbroker spark {name}")
