"""`txbroker consume`: print the records of a topic (Kafka's kafka-console-consumer)."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.failures import DONE, BadUsage, CommandFailed, no_topic
from txbroker.cli.partition_flags import topic_pattern
from txbroker.cli.progress import Progress
from txbroker.cli.record_formatter import json_line, record_format

DESCRIPTION = """\
Print the records of a topic as they come, from now on or --from-beginning. Ctrl-C ends it.

  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --from-beginning --property print.key=true
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --group readers --timeout-ms 5000
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --partition 0 --offset 42 --max-messages 1

Properties of what is printed (--property), with their defaults:
  print.timestamp=false, print.partition=false, print.offset=false, print.headers=false, print.key=false, print.value=true
  key.separator (a tab) stands between these, line.separator (a line feed) after them, headers.separator (,) between headers
  null.literal=null     what stands for a key or value that is null

With --json a line is an object: topic, partition, offset, timestamp, timestamp_type, headers, key, value. Keys and values are text where
they are UTF-8, and otherwise {"base64": "…"}.
"""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
POLL_MS = 1000
POLL_RECORDS = 2000
STALL_S = 5.0  # without an assigned partition


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("consume", help="print the records of a topic", description=DESCRIPTION)
    add_client(parser, "--consumer.config", client="consumer")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="NAME", help="the topic to read")
    include_help = "read all topics whose whole name matches, also those that are made later; a comma means or"
    topics.add_argument("--include", metavar="REGEX", help=include_help)
    parser.add_argument("--from-beginning", action="store_true", help="start at the oldest record, where --group has no offset yet")
    parser.add_argument("--partition", type=number(0), metavar="N", help="read this partition only, from the end or --offset")
    offset_help = "where to start in --partition: an offset, earliest or latest (default)"
    parser.add_argument("--offset", type=offset, metavar="OFFSET", help=offset_help)
    parser.add_argument("--group", metavar="NAME", help="read as a member of this group: go on where it was, and commit offsets")
    parser.add_argument("--max-messages", type=number(1), metavar="N", help="end after so many records")
    parser.add_argument("--timeout-ms", type=number(0), metavar="MS", help="end when no record has come for so long")
    level_help = "read_uncommitted (default) or read_committed"
    parser.add_argument("--isolation-level", choices=ISOLATION_LEVELS, metavar="LEVEL", help=level_help)
    add_properties(parser, "--property", "what is printed, see above")
    add_properties(parser, "--consumer-property", "a setting of the consumer by its Java name, such as fetch.max.wait.ms=100")
    parser.set_defaults(command=run)


def offset(text: str) -> int | str:
    """The type of --offset."""
    if text in ("earliest", "latest"):
        return text
    try:
        return number(0)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"wants an offset of 0 or more, earliest or latest, not {text!r}") from None


def check(arguments: argparse.Namespace) -> None:
    """BadUsage when flags do not go together."""
    if arguments.include is not None:
        topic_pattern(arguments.include, "--include")
    if arguments.offset is not None and arguments.partition is None:
        raise BadUsage("--offset needs --partition")
    if arguments.include is not None and arguments.partition is not None:
        raise BadUsage("--include and --partition do not go together: a partition is one of a --topic")
    if arguments.group is not None and arguments.partition is not None:
        raise BadUsage("--group and --partition do not go together: a group divides the partitions itself")
    if arguments.from_beginning and arguments.offset is not None:
        raise BadUsage("--from-beginning and --offset do not go together")
    if arguments.json and arguments.property:
        raise BadUsage("--property and --json do not go together: JSON has all of a record")


def run(arguments: argparse.Namespace) -> int:
    """Print records until told to end."""
    check(arguments)
    text = json_line if arguments.json else record_format(arguments.property).text
    properties = {**clients.read_properties(arguments.command_config), **arguments.consumer_property}
    if arguments.group is not None:
        properties["group.id"] = arguments.group
    in_group = "group.id" in properties and arguments.partition is None
    defaults = {"auto_offset_reset": "latest", "max_poll_records": POLL_RECORDS}
    flags: dict[str, Any] = {"allow_auto_create_topics": False}
    if arguments.from_beginning:
        flags["auto_offset_reset"] = "earliest"
    if not in_group:
        flags["enable_auto_commit"] = False
    if arguments.isolation_level:
        flags["isolation_level"] = arguments.isolation_level
    server = arguments.bootstrap_server
    with _sigterm_as_ctrl_c(), clients.connected("KafkaConsumer", server, properties, defaults=defaults, flags=flags) as consumer:
        _start(consumer, arguments)
        notice, started_s = clients.Notice(), time.monotonic()

        def waiting() -> None:
            if in_group and time.monotonic() > started_s + STALL_S and not consumer.assignment():
                notice.show(lambda: clients.full_disk_of(server, properties))

        _print(consumer, text, arguments.max_messages, arguments.timeout_ms, waiting)
    return DONE


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Whoever ends the command with SIGTERM has it commit offsets and leave the group, too."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _start(consumer: Any, arguments: argparse.Namespace) -> None:
    """Choose what is read, and from where."""
    from kafka import TopicPartition

    topic, partition = arguments.topic, arguments.partition
    if arguments.include is not None:
        # The library looks for a match at the beginning of a name.
        consumer.subscribe(pattern=f"(?:{topic_pattern(arguments.include, '--include').pattern})$")
        return
    partitions = consumer.partitions_for_topic(topic)
    if not partitions:
        raise no_topic(topic)
    if partition is None:
        consumer.subscribe([topic])
        return
    if partition not in partitions:
        raise CommandFailed(f"topic {topic} has no partition {partition}, only 0 to {max(partitions)}; correct --partition")
    wanted = TopicPartition(topic, partition)
    consumer.assign([wanted])
    start = "earliest" if arguments.from_beginning else arguments.offset
    if start == "earliest":
        consumer.seek_to_beginning(wanted)
    elif start is None or start == "latest":
        consumer.seek_to_end(wanted)
    else:
        consumer.seek(wanted, start)


def _print(
    consumer: Any, text: Callable[[Any], bytes], max_messages: int | None, timeout_ms: int | None, waiting: Callable[[], None]
) -> None:
    """Print until there were `max_messages`, or none came for `timeout_ms`; call `waiting` while none come."""
    printed = 0
    # Where records go to a file or a pipe, a person at the terminal sees nothing else.
    shown = sys.stderr.isatty() and not sys.stdout.isatty()
    progress = Progress(sys.stderr if shown else None, time.monotonic)
    last_s = time.monotonic()
    try:
        while max_messages is None or printed < max_messages:
            wait_ms = POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms - int((time.monotonic() - last_s) * 1000))
            if wait_ms < 0:
                return
            # No more than are wanted: what was polled counts as read when the group's offsets are committed.
            count_max = POLL_RECORDS if max_messages is None else min(POLL_RECORDS, max_messages - printed)
            polled = [record for records in consumer.poll(wait_ms, max_records=count_max).values() for record in records]
            if polled:
                # Counted first: who has read them may end this command at once.
                printed += len(polled)
                printable = b"".join(map(text, polled))
                sys.stdout.buffer.write(printable)
                sys.stdout.buffer.flush()
                progress.add(len(printable), len(polled))
                last_s = time.monotonic()
            else:
                waiting()
    finally:
        progress.finish()
        print(f"Processed a total of {printed} messages", file=sys.stderr)
