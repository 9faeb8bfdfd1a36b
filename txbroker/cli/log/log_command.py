"""`txbroker log`: tools for log directories."""

from __future__ import annotations

from typing import Any

from txbroker.cli.log import extract, repair, stats, verify

DESCRIPTION = """\
Check, repair and read log directories without a broker: txbroker's own, and those of Apache Kafka from 0.8 to 4.3.

  txbroker log verify data
  txbroker log repair data --yes
  txbroker log extract data/orders-0 --output orders.parquet
  txbroker log stats data --topic orders --plot orders.png

A path is a log directory (one of log.dirs), the directory of a partition in it, or (for verify) one file. Log directories of a running
broker and of KRaft nodes can be read, but not repaired.
"""

TOOLS = (verify, repair, extract, stats)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand with its own subcommands."""
    parser = subparsers.add_parser("log", help="check, repair and read log directories without a broker", description=DESCRIPTION)
    tools = parser.add_subparsers(title="tools", metavar="TOOL", dest="tool", required=True)
    for tool in TOOLS:
        tool.add_parser(tools)
