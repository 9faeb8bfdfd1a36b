"""`txbroker log`: the family of tools for log directories; each has a module of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DESCRIPTION = """\
Look at log directories without a broker: txbroker's own, and those of Apache Kafka from 0.8 to 4.3.

  txbroker log verify data

A path is a data directory (one of log.dirs), a partition's directory in it, or one file. A running broker's directory may be read.
"""

TOOLS = ("verify",)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand with its own subcommands."""
    parser = subparsers.add_parser("log", help="look at, repair and read log directories without a broker", description=DESCRIPTION)
    tools = parser.add_subparsers(title="tools", metavar="TOOL", dest="tool", required=True)
    for name in TOOLS:
        import_module(f"txbroker.cli.log.{name}").add_parser(tools)
