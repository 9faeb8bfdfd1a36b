"""`txbroker dump-log`: print what is in log files (Kafka's kafka-dump-log). It needs no broker."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from txbroker.cli.arguments import number
from txbroker.cli.failures import BadUsage

DESCRIPTION = """\
Print what is in the files of a log directory, as Kafka's tool does: .log, .index, .timeindex, .txnindex and .snapshot.
The files are only read; those of a running broker may be growing.

  txbroker dump-log --files data/hello-0/00000000000000000000.log --print-data-log
"""

# Flag -> help. The fields of DumpOptions are named alike.
_SWITCHES = {
    "--deep-iteration": "open batches and print a line for each record",
    "--print-data-log": "print keys and values too",
    "--verify-index-only": "check indexes against their logs without printing them",
    "--index-sanity-check": "only check whether indexes are sound by themselves",
    "--skip-record-metadata": "of each record print key and value only",
}
_DECODERS = {
    "--offsets-decoder": "print keys and values as those of __consumer_offsets",
    "--transaction-log-decoder": "print keys and values as those of __transaction_state",
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("dump-log", help="print what is in log files", description=DESCRIPTION)
    parser.add_argument("--files", required=True, metavar="FILE,FILE…", help="files to print, divided by commas")
    for flag, text in _SWITCHES.items():
        parser.add_argument(flag, action="store_true", help=text)
    decoders = parser.add_mutually_exclusive_group()
    for flag, text in _DECODERS.items():
        decoders.add_argument(flag, action="store_true", help=text)
    size_help = "bytes of the largest batch for which an index is checked (default: 5242880)"
    parser.add_argument("--max-message-size", type=number(1), metavar="BYTES", help=size_help)
    parser.add_argument("--max-bytes", type=number(0), metavar="BYTES", help="read no more of a .log file")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Dump the files; 1 when one of them could not be read to its end."""
    from txbroker.log.disk import OsDisk
    from txbroker.log.dump import Decoder, DumpOptions, dump

    paths = [path.strip() for path in arguments.files.split(",")]
    if "" in paths:
        raise BadUsage("--files names an empty path")
    decoder = Decoder.OFFSETS if arguments.offsets_decoder else Decoder.TRANSACTIONS if arguments.transaction_log_decoder else Decoder.TEXT
    names = [flag.removeprefix("--").replace("-", "_") for flag in _SWITCHES]
    sizes = {name: getattr(arguments, name) for name in ("max_message_size", "max_bytes") if getattr(arguments, name) is not None}
    switches = {name: getattr(arguments, name) for name in names}
    options = DumpOptions(decoder=decoder, working_directory=os.getcwd(), **switches, **sizes)
    return dump(OsDisk(), paths, options, _write, _complain)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _complain(line: str) -> None:
    sys.stdout.flush()  # each complaint stands below what it is about, if both go to the same place
    print(line, file=sys.stderr)
