"""`txbroker log extract`: writes the records of a log directory as JSON lines, Arrow or Parquet."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.group_reset import datetime_ms
from txbroker.cli.log.tool_arguments import add_paths, find_logs, finishing, progress, shorten
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed, warn
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.logtools.damaged_walk import Damage

DESCRIPTION = """\
Write the records of a log directory as JSON lines, or into an Arrow or Parquet file (requires pyarrow).

  txbroker log extract data/orders-0 > orders.jsonl
  txbroker log extract data --topic orders --from-time 2026-01-31T18:00:00 --committed-only
  txbroker log extract data --topic orders --output orders.parquet --value-encoding utf-8

The JSON lines are those of txbroker consume --json: keys and values are strings, or {"base64": ...} if they are not UTF-8. Arrow and
Parquet files have binary columns for them, or text columns with --key-encoding utf-8 and --value-encoding utf-8.

Records below the log start offset are included as long as their segments exist; exclude them with --from-offset.

Exit status: 0 if all batches were read, 1 if damaged batches were skipped, 2 for wrong usage.
"""

ENCODINGS = ("binary", "utf-8")
WARNINGS_MAX = 20  # further damaged ranges are only counted


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("extract", help="write records as JSON lines, Arrow or Parquet", description=DESCRIPTION)
    add_paths(parser, files=False)
    output_help = "write to FILE.jsonl, FILE.arrow or FILE.parquet (default: JSON lines to standard output)"
    parser.add_argument("--output", metavar="FILE", help=output_help)
    parser.add_argument("--from-offset", type=number(0), default=0, metavar="OFFSET", help="start with this offset")
    parser.add_argument("--to-offset", type=number(0), metavar="OFFSET", help="end before this offset")
    parser.add_argument("--from-time", type=datetime_ms, metavar="TIME", help="records since this time, e.g. 2026-01-31T18:00:00 (UTC)")
    parser.add_argument("--to-time", type=datetime_ms, metavar="TIME", help="records before this time")
    parser.add_argument("--committed-only", action="store_true", help="exclude records of aborted and open transactions")
    for what in ("key", "value"):
        encoding_help = f"the {what} column of Arrow and Parquet: binary (the default) or utf-8"
        parser.add_argument(f"--{what}-encoding", choices=ENCODINGS, default="binary", metavar="ENCODING", help=encoding_help)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the records; FAILED if damaged batches were skipped."""
    from txbroker.cli.log.record_files import NotText, open_records
    from txbroker.errors import StorageError
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.extract import Selection, TooMany, extract
    from txbroker.wire.records import INT64_MAX

    end = INT64_MAX if arguments.to_offset is None else arguments.to_offset
    if arguments.from_offset > end:
        raise BadUsage("--from-offset is above --to-offset")
    selection = Selection(
        start=arguments.from_offset,
        end=end,
        time_start=arguments.from_time,
        time_end=arguments.to_time,
        committed_only=arguments.committed_only,
    )
    disk = OsDisk()
    found = find_logs(disk, arguments, files=False)
    damages = 0

    def on_damage(path: str, damage: Damage) -> None:
        nonlocal damages
        damages += 1
        if damages <= WARNINGS_MAX:
            warn(f"{shorten(path, arguments.paths)}: skipped bytes {damage.start} to {damage.end}: {damage.problem}")

    try:
        with ExitStack() as stack:
            texts = {"key_text": arguments.key_encoding == "utf-8", "value_text": arguments.value_encoding == "utf-8"}
            output = stack.enter_context(open_records(arguments.output, **texts))
            shown = stack.enter_context(finishing(progress(found.size)))
            for place in found.partitions:
                for extracted in extract(disk, place, selection, on_damage, shown.add):
                    output.add(place.topic_partition, extracted)
    except StorageError as error:
        raise CommandFailed(f"{error}; run this command as a user with read permission") from None
    except (TooMany, NotText) as error:
        raise CommandFailed(str(error)) from None
    _summary(arguments.output, shown.records, len(found.partitions))
    if damages:
        warn(f"skipped {amount(damages, 'damaged range')}; see `txbroker log verify`")
    return FAILED if damages else DONE


def _summary(path: str | None, records: int, partitions: int) -> None:
    """Printed to standard output, or, if that has the records, to the terminal on standard error."""
    sentence = f"wrote {amount(records, 'record')} of {amount(partitions, 'partition')}"
    if path is not None:
        print(f"{sentence} to {path}")
    elif sys.stderr.isatty():
        warn(sentence)
