"""The command line's entry: subcommands and exit statuses (0 done, 1 failed, 2 usage)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from txbroker import __version__
from txbroker.cli import run


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; what they need is imported when they run."""
    parser = argparse.ArgumentParser(
        prog="txbroker",
        description="A broker that speaks Kafka's wire protocol, and the tools to use it.",
        epilog="Help on one: txbroker COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"txbroker {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (run,):
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has enough
        return 1
    return status
