"""`txbroker log compact --dry-run`: which records compaction would remove; the same as `txbroker log-cleaner --dry-run`."""

from __future__ import annotations

import argparse
from typing import Any

from txbroker.cli.arguments import add_properties, number
from txbroker.cli.failures import DONE, BadUsage, CommandFailed
from txbroker.cli.log.tool_arguments import add_places, look

DESCRIPTION = """\
Show which records the log cleaner would remove from a topic's partitions now, and why. Nothing is changed; a broker may be running.

  txbroker log compact --dry-run data --topic orders
  txbroker log compact --dry-run data/orders-3 --roll --topic-config compaction.strategy=timestamp

The topic's settings are those that the directory has, or Kafka's defaults. Compaction itself is a broker's work: txbroker log-cleaner
--compact-now TOPIC.
"""


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("compact", help="show which records compaction would remove", description=DESCRIPTION)
    add_places(parser, files=False)
    parser.add_argument("--dry-run", action="store_true", help="show which records would go, and why; there is nothing else here")
    parser.add_argument("--roll", action="store_true", help="as if the active segments were closed")
    add_properties(parser, "--topic-config", "a setting of the topic to assume")
    size_help = "memory for the map of keys, as log.cleaner.dedupe.buffer.size (default: 134217728)"
    parser.add_argument("--dedupe-buffer-size", type=number(1 << 20), metavar="BYTES", help=size_help)
    parser.add_argument("--json", action="store_true", help="print records and summaries as JSON, one object a line")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """The dry run of each partition."""
    from txbroker.cli import dry_run
    from txbroker.log.disk import OsDisk

    if not arguments.dry_run:
        raise BadUsage("only --dry-run is done here; a broker compacts, at once with `txbroker log-cleaner --compact-now TOPIC`")
    found = look(OsDisk(), arguments, files=False)
    if found.directories and arguments.topic is None:
        raise BadUsage("a data directory needs --topic: what is compacted is one topic with its settings")
    for place in found.partitions:
        directory, _, name = place.path.rpartition("/")
        if name != str(place.topic_partition):
            raise CommandFailed(f"{place.path} is not named as a partition's directory, TOPIC-NUMBER; rename it")
        wanted = argparse.Namespace(
            log_dir=directory or "/",
            topic=place.topic_partition.topic,
            partition=place.topic_partition.partition,
            topic_config=arguments.topic_config,
            dedupe_buffer_size=arguments.dedupe_buffer_size,
            roll=arguments.roll,
            bootstrap_server=None,
            json=arguments.json,
        )
        dry_run.run(wanted)
    return DONE
