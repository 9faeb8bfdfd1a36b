"""`txbroker dump-log`: print what is in log files (Kafka's kafka-dump-log). It needs no broker."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from txbroker.cli.arguments import number
from txbroker.cli.failures import BadUsage

DESCRIPTION = """\
Print what is in the files of a log directory, as Kafka's tool does: .log, .index, .timeindex, .txnindex, .snapshot, and .checkpoint of
KRaft's metadata. The files are only read; those of a running broker may be growing.

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
    "--offsets-decoder": "print keys and values as those of __consumer_offsets, in the form of Apache Kafka 3.9's tool",
    "--transaction-log-decoder": "print keys and values as those of __transaction_state, in the form of Apache Kafka 3.9's tool",
    "--cluster-metadata-decoder": "print values as those of KRaft's __cluster_metadata",
    "--share-group-state-decoder": "print keys and values as those of __share_group_state",
    "--remote-log-metadata-decoder": "not supported here",
}
# The classes of Kafka's decoders, which 4.0 moved; what they read is a `Form`.
_DECODER_CLASSES = {
    f"{package}.{name}Decoder": form
    for package in ("kafka.serializer", "org.apache.kafka.tools.api")
    for name, form in (("String", "TEXT"), ("Integer", "INT32"), ("Long", "INT64"))
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("dump-log", help="print what is in log files", description=DESCRIPTION)
    parser.add_argument("--files", required=True, metavar="FILE,FILE…", help="files to print, divided by commas")
    for flag, text in _SWITCHES.items():
        parser.add_argument(flag, action="store_true", help=text)
    for flag, text in _DECODERS.items():
        parser.add_argument(flag, action="store_true", help=text)
    for what in ("key", "value"):
        class_help = f"what {what}s are: kafka.serializer.StringDecoder (the default), IntegerDecoder or LongDecoder"
        parser.add_argument(f"--{what}-decoder-class", metavar="CLASS", help=class_help)
    size_help = "bytes of the largest batch for which an index is checked (default: 5242880)"
    parser.add_argument("--max-message-size", type=number(1), metavar="BYTES", help=size_help)
    parser.add_argument("--max-bytes", type=number(0), metavar="BYTES", help="read no more of a .log file")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Dump the files; 1 when one of them could not be read to its end."""
    from txbroker.log.disk import OsDisk
    from txbroker.logtools.dump.dump import Decoder, DumpOptions, Form, dump

    paths = [path.strip() for path in arguments.files.split(",")]
    if "" in paths:
        raise BadUsage("--files names an empty path")
    if arguments.remote_log_metadata_decoder:
        raise BadUsage("--remote-log-metadata-decoder is not supported: there is no tiered storage here; use Apache Kafka's kafka-dump-log")
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
        raise BadUsage(f"the decoder class {decoder_class} cannot be loaded here; known are {', '.join(_DECODER_CLASSES)}")
    return _DECODER_CLASSES[decoder_class]


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _complain(line: str) -> None:
    sys.stdout.flush()  # each complaint stands below what it is about, if both go to the same place
    print(line, file=sys.stderr)
