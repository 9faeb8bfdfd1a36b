"""`txbroker get-offsets`: the first and last offsets of partitions, and offsets by timestamp (Kafka's kafka-get-offsets)."""

from __future__ import annotations

import argparse
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, numbers
from txbroker.cli.partition_flags import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
    Rule,
    list_offsets,
    partitions_of,
    rules,
    topic_pattern,
    with_leaders,
)
from txbroker.cli.results import Column, Row, results
from txbroker.console.failures import DONE, BadUsage, CommandFailed
from txbroker.names import TopicPartition

DESCRIPTION = """\
Print offsets of partitions: the end of the log (latest), its start (earliest), or the first record with a timestamp since a time.

  txbroker get-offsets --bootstrap-server 127.0.0.1:9092 --topic hello
  txbroker get-offsets --bootstrap-server 127.0.0.1:9092 --topic 'orders-.*' --partitions 0,1 --time earliest
  txbroker get-offsets --bootstrap-server 127.0.0.1:9092 --topic-partitions hello:0-2,orders:5 --time 1700000000000

Partitions without such an offset, for example without a record since that time, are omitted.
"""

# The negative timestamps of ListOffsets (KIP-79, KIP-734, KIP-405, KIP-1005).
TIMES = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP, "earliest-local": -4, "latest-tiered": -5}
COLUMNS = (Column("topic", "TOPIC"), Column("partition", "PARTITION"), Column("offset", "OFFSET"))


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("get-offsets", help="print offsets of partitions", description=DESCRIPTION)
    add_client(parser)
    parser.add_argument("--topic", metavar="NAME", help="a topic, or a regular expression for whole names (default: all topics)")
    parser.add_argument("--partitions", type=numbers, metavar="N,N,...", help="only these partitions of the topics")
    rules_help = "topics (regular expressions) with partitions, in which the end of a range is excluded: a:1,b:0-3,c:5-,d:-3,e"
    parser.add_argument("--topic-partitions", metavar="TOPIC:N,...", help=rules_help)
    time_help = "latest (default, also -1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5), or milliseconds"
    parser.add_argument("--time", type=time, default=TIMES["latest"], metavar="TIME", help=time_help)
    parser.add_argument("--exclude-internal-topics", action="store_true", help="exclude internal topics like __consumer_offsets")
    parser.set_defaults(command=run)


def time(text: str) -> int:
    """The type of --time: a timestamp of ListOffsets."""
    try:
        value = TIMES[text] if text in TIMES else int(text)
    except ValueError:
        value = min(TIMES.values()) - 1
    if not min(TIMES.values()) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be {', '.join(TIMES)} or milliseconds since 1970, not {text!r}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Print the offsets; CommandFailed if the flags select no partition."""
    if arguments.topic_partitions and (arguments.topic or arguments.partitions):
        raise BadUsage("--topic-partitions cannot be used with --topic and --partitions")
    wanted = rules(arguments.topic_partitions) if arguments.topic_partitions else None
    pattern = topic_pattern(arguments.topic or ".*", "--topic")
    with clients.administering(arguments) as admin:
        topics = [topic for topic in admin.describe_topics() if not (arguments.exclude_internal_topics and topic["is_internal"])]
        leaders = {
            partition: leader
            for partition, leader in partitions_of(topics).items()
            if (_by_rules(partition, wanted) if wanted is not None else _by_name(partition, pattern, arguments.partitions))
        }
        if not leaders:
            raise CommandFailed("no partition matches these flags; see `txbroker topics --list`")
        found = list_offsets(admin, with_leaders(leaders), arguments.time)
    rows = [_row(partition, at) for partition, at in sorted(found.items()) if at.offset != UNKNOWN_OFFSET]
    results(arguments).rows(COLUMNS, rows, lambda row: f"{row['topic']}:{row['partition']}:{row['offset']}")
    return DONE


def _row(partition: TopicPartition, at: Any) -> Row:
    timestamp = at.timestamp if at.timestamp >= 0 else None
    return {"topic": partition.topic, "partition": partition.partition, "offset": at.offset, "timestamp": timestamp}


def _by_rules(partition: TopicPartition, wanted: list[Rule]) -> bool:
    return any(rule.matches(partition) for rule in wanted)


def _by_name(partition: TopicPartition, pattern: Any, wanted: set[int] | None) -> bool:
    return pattern.fullmatch(partition.topic) is not None and (wanted is None or partition.partition in wanted)
