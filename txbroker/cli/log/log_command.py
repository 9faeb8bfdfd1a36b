"""`txbroker log`: the family of tools for log directories; each has a module of its own."""

from __future__ import annotations

from typing import Any

from txbroker.cli.log import extract, repair, stats, verify

DESCRIPTION = """\
Look at, repair and read log directories without a broker: txbroker's own, and those of Apache Kafka from 0.8 to 4.3.

  txbroker log verify data
  txbroker log repair data --yes
  txbroker log extract data/orders-0 --output orders.parquet
  txbroker log stats data --topic orders --plot orders.png

A path is a data directory (one of log.dirs), a partition's directory in it, or one file. A running broker's directory may be read,
but not repaired; one of a KRaft node is only read.
"""

TOOLS = (verify, repair, extract, stats)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand with its own subcommands."""
    parser = subparsers.add_parser("log", help="look at, repair and read log directories without a broker", description=DESCRIPTION)
    tools = parser.add_subparsers(title="tools", metavar="TOOL", dest="tool", required=True)
    for tool in TOOLS:
        tool.add_parser(tools)
