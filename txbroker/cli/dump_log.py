"""`txbroker dump-log`: print the content of log files, without a broker (Kafka's kafka-dump-log)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from txbroker.cli.arguments import number
from txbroker.console.failures import BadUsage

DESCRIPTION = """\
Print the content of files of a log directory as Kafka's tool does: .log, .index, .timeindex, .txnindex, .snapshot, and .checkpoint of
KRaft's metadata. The files are only read. While a broker runs, the end of a file may be incomplete.

  txbroker dump-log --files data/hello-0/00000000000000000000.log --print-data-log
"""

# Flag -> help. The fields of DumpOptions are named alike.
_SWITCHES = {
    "--deep-iteration": "print a line for each record of a batch",
    "--print-data-log": "print keys and values",
    "--verify-index-only": "check indexes against their logs without printing them",
    "--index-sanity-check": "check indexes without their logs",
    "--skip-record-metadata": "print only the key and the value of each record",
}
_DECODERS = {
    "--offsets-decoder": "decode records of __consumer_offsets, and print them as Kafka 3.9 does",
    "--transaction-log-decoder": "decode records of __transaction_state, and print them as Kafka 3.9 does",
    "--cluster-metadata-decoder": "decode records of KRaft's __cluster_metadata",
    "--share-group-state-decoder": "decode records of __share_group_state",
    "--remote-log-metadata-decoder": "not supported",
}
# The classes of Kafka's decoders, in their packages before and since 4.0, and the `Form` that they decode.
_DECODER_CLASSES = {
    f"{package}.{name}Decoder": form
    for package in ("kafka.serializer", "org.apache.kafka.tools.api")
    for name, form in (("String", "TEXT"), ("Integer", "INT32"), ("Long", "INT64"))
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("dump-log", help="print the content of log files", description=DESCRIPTION)
    parser.add_argument("--files", required=True, metavar="FILE,FILE...", help="the files to print, comma-separated")
    for flag, text in _SWITCHES.items():
        parser.add_argument(flag, action="store_true", help=text)
    for flag, text in _DECODERS.items():
        parser.add_argument(flag, action="store_true", help=text)
    for what in ("key", "value"):
        class_help = f"the decoder of {what}s: kafka.serializer.StringDecoder (default), IntegerDecoder or LongDecoder"
        parser.add_argument(f"--{what}-decoder-class", metavar="CLASS", help=class_help)
    size_help = "the largest batch, in bytes, whose index entries are checked (default: 5242880)"
    parser.add_argument("--max-message-size", type=number(1), metavar="BYTES", help=size_help)
    parser.add_argument("--max-bytes", type=number(0), metavar="BYTES", help="read only this many bytes of a .log file")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the files; 1 if one of them could not be read completely."""
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.dump.dump import Decoder, DumpOptions, Form, dump

    paths = [path.strip() for path in arguments.files.split(",")]
    if "" in paths:
        raise BadUsage("--files contains an empty path")
    if arguments.remote_log_metadata_decoder:
        raise BadUsage("--remote-log-metadata-decoder is not supported; use Apache Kafka's kafka-dump-log")
    given = [flag for flag in _DECODERS if getattr(arguments, flag.removeprefix("--").replace("-", "_"))]
    if len(given) > 1:
        raise BadUsage(f"{given[1]}: not allowed with argument {given[0]}")
    chosen = {
        Decoder.OFFSETS: arguments.offsets_decoder,
        Decoder.TRANSACTIONS: arguments.transaction_log_decoder,
        Decoder.METADATA: arguments.cluster_metadata_decoder,
        Decoder.SHARE_STATE: arguments.share_group_state_decoder,
    }
    decoder = next((each for each, wanted in chosen.items() if wanted), Decoder.TEXT)
    key_form, value_form = Form[_form(arguments.key_decoder_class)], Form[_form(arguments.value_decoder_class)]
    names = [flag.removeprefix("--").replace("-", "_") for flag in _SWITCHES]
    sizes = {name: getattr(arguments, name) for name in ("max_message_size", "max_bytes") if getattr(arguments, name) is not None}
    switches = {name: getattr(arguments, name) for name in names}
    options = DumpOptions(
        decoder=decoder, key_form=key_form, value_form=value_form, working_directory=os.getcwd(), **switches, **sizes
    )
    return dump(OsDisk(), paths, options, _write, _complain)


def _form(decoder_class: str | None) -> str:
    if decoder_class is None:
        return "TEXT"
    if decoder_class not in _DECODER_CLASSES:
        raise BadUsage(f"the decoder class {decoder_class} is not available; use one of {', '.join(_DECODER_CLASSES)}")
    return _DECODER_CLASSES[decoder_class]


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _complain(line: str) -> None:
    sys.stdout.flush()  # a warning follows the line that it is about, if both go to the same place
    print(line, file=sys.stderr)
