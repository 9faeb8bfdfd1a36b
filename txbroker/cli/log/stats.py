"""`txbroker log stats`: statistics of the partitions in log directories."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from txbroker.cli.log.tool_arguments import add_paths, find_logs, finishing, progress, shorten
from txbroker.cli.results import Column, Row, results
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed, warn
from txbroker.console.texts import size_text

if TYPE_CHECKING:
    from txbroker.logtools.damaged_walk import Damage
    from txbroker.logtools.partition_stats import PartitionStats

DESCRIPTION = """\
Print statistics of the partitions in log directories: segments, batches, records, keys, codecs and their compression ratio, and how many
records compaction could remove.

  txbroker log stats data
  txbroker log stats data --topic orders --json
  txbroker log stats data --topic orders --plot orders.png

OBSOLETE is the number of records that have a later record with the same key: compaction can remove at most these. For more than a million
keys in a partition, KEYS and OBSOLETE are estimates within 1 %, marked with ~. RATIO is the decompressed size of the records divided by
their size on disk.

Exit status: 0, or 1 if damaged batches were skipped.
"""

COLUMNS = (
    Column("topic_partition", "PARTITION"),
    Column("segments_text", "SEGMENTS"),
    Column("bytes_text", "SIZE"),
    Column("batches", "BATCHES"),
    Column("batch_text", "BATCH-SIZE"),
    Column("records", "RECORDS"),
    Column("keys_text", "KEYS"),
    Column("obsolete_text", "OBSOLETE"),
    Column("codecs_text", "CODECS"),
    Column("ratio", "RATIO"),
    Column("first_time", "FIRST"),
    Column("last_time", "LAST"),
)
PLOT_ENDINGS = (".png", ".svg", ".pdf")


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("stats", help="print statistics of partitions", description=DESCRIPTION)
    add_paths(parser, files=False)
    parser.add_argument("--plot", metavar="FILE", help="draw the statistics to FILE.png, FILE.svg or FILE.pdf (requires matplotlib)")
    parser.add_argument("--json", action="store_true", help="print all statistics as JSON, one object for each partition")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the statistics; FAILED if damaged batches were skipped."""
    from txbroker.errors import StorageError
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.partition_stats import gather

    if arguments.plot is not None:
        if not arguments.plot.endswith(PLOT_ENDINGS):
            raise BadUsage(f"--plot is {arguments.plot!r}; it must end with {', '.join(PLOT_ENDINGS[:-1])} or {PLOT_ENDINGS[-1]}")
        from txbroker.cli.log.plot import check_matplotlib

        check_matplotlib()
    disk = OsDisk()
    found = find_logs(disk, arguments, files=False)
    damages = 0

    def on_damage(path: str, damage: Damage) -> None:
        nonlocal damages
        damages += 1
        if damages <= 20:
            warn(f"{shorten(path, arguments.paths)}: skipped bytes {damage.start} to {damage.end}: {damage.problem}")

    try:
        with ExitStack() as stack:
            shown = stack.enter_context(finishing(progress(found.size)))
            counted = [gather(disk, place, on_damage, shown.add) for place in found.partitions]
    except StorageError as error:
        raise CommandFailed(f"{error}; run this command as a user with read permission") from None
    if arguments.plot is not None and not counted:
        raise BadUsage(f"no partitions in {', '.join(arguments.paths)}: nothing to plot")
    printed = results(arguments)
    printed.rows(COLUMNS, [_json(stats) if arguments.json else _row(stats) for stats in counted])
    if arguments.plot is not None:
        from txbroker.cli.log.plot import plot

        plot(arguments.plot, counted, ", ".join(arguments.paths), datetime.now(UTC))
    return FAILED if damages else DONE


def _time(timestamp: int | None) -> str | None:
    if timestamp is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)  # outside of the years 1 to 9999


def _row(stats: PartitionStats) -> Row:
    about = "" if stats.keys.exact else "~"
    mean = sum(segment.size for segment in stats.segments) // stats.batches if stats.batches else 0
    return {
        "topic_partition": str(stats.topic_partition),
        "segments_text": len(stats.segments),
        "bytes_text": size_text(stats.size),
        "batches": stats.batches,
        "batch_text": size_text(mean),
        "records": stats.records,
        "keys_text": f"{about}{stats.keys.count}" if stats.keyed else None,
        "obsolete_text": f"{about}{stats.obsolete} ({100 * stats.obsolete / stats.keyed:.0f}%)" if stats.keyed else None,
        "codecs_text": sorted(stats.codecs),
        "ratio": None if stats.ratio is None else f"{stats.ratio:.2f}",
        "first_time": _time(stats.first_timestamp),
        "last_time": _time(stats.last_timestamp),
    }


def _json(stats: PartitionStats) -> Row:
    return {
        "topic": stats.topic_partition.topic,
        "partition": stats.topic_partition.partition,
        "bytes": stats.size,
        "segments": [
            {"base_offset": segment.base_offset, "bytes": segment.size, "index_bytes": segment.index_bytes} for segment in stats.segments
        ],
        "start_offset": stats.start_offset,
        "end_offset": stats.end_offset,
        "batches": stats.batches,
        "batch_bytes_max": stats.batch_bytes_max,
        "batch_bytes_below": {str(1 << bits): count for bits, count in sorted(stats.batch_sizes.items())},
        "batch_records_below": {str(1 << bits): count for bits, count in sorted(stats.batch_records.items())},
        "formats": {f"v{magic}": count for magic, count in sorted(stats.formats.items())},
        "transactional_batches": stats.transactional,
        "records": stats.records,
        "control_records": stats.control_records,
        "records_without_key": stats.keyless,
        "tombstones": stats.tombstones,
        "key_bytes": stats.key_bytes,
        "value_bytes": stats.value_bytes,
        "keys": stats.keys.count,
        "keys_exact": stats.keys.exact,
        "obsolete_records": stats.obsolete,
        "obsolete_bytes": stats.obsolete_bytes,
        "codecs": {
            name: {
                "batches": codec.batches,
                "records": codec.records,
                "stored_bytes": codec.stored_bytes,
                "plain_bytes": codec.plain_bytes,
            }
            for name, codec in sorted(stats.codecs.items())
        },
        "compression_ratio": None if stats.ratio is None else round(stats.ratio, 3),
        "first_timestamp": stats.first_timestamp,
        "last_timestamp": stats.last_timestamp,
        "unread_batches": stats.unread,
    }
