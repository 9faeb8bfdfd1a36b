"""`txbroker consume`: print the records of a topic (Kafka's kafka-console-consumer)."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.deserializers import NotDeserialized
from txbroker.cli.own_connections import full_disk_of
from txbroker.cli.partition_flags import topic_pattern
from txbroker.cli.progress import Progress
from txbroker.cli.record_formatter import Formatter, formatter, formatter_properties
from txbroker.console.failures import DONE, BadUsage, CommandFailed, no_topic, warn

DESCRIPTION = """\
Read the records of a topic and print them as they arrive, starting at the end of the topic, or at its beginning with --from-beginning.
Ctrl-C stops the command; with --group it commits the offsets first.

  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --from-beginning --formatter-property print.key=true
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --group readers --timeout-ms 5000
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --partition 0 --offset 42 --max-messages 1
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic counts --from-beginning --value-deserializer LongDeserializer

Properties of the default formatter (--formatter-property), with their defaults:
  print.timestamp=false, print.partition=false, print.offset=false, print.epoch=false, print.headers=false, print.key=false,
  print.value=true      the fields that are printed, in this order
  key.separator         between the fields (a tab); line.separator after them (a line feed); headers.separator between headers (,)
  null.literal=null     printed for null
  key.deserializer, value.deserializer, headers.deserializer: see --value-deserializer

Formatters (--formatter, the name of the class with or without its package):
  DefaultMessageFormatter           the default, with the properties above
  NoOpMessageFormatter              prints nothing
  OffsetsMessageFormatter           committed offsets of __consumer_offsets, as JSON
  GroupMetadataMessageFormatter     groups of __consumer_offsets, as JSON
  TransactionLogMessageFormatter    transactions of __transaction_state, as JSON

Deserializers: String, Short, Integer, Long, Float, Double, Boolean, UUID, Void, Bytes and ByteArray, each followed by "Deserializer".
Without one, bytes are printed as they are.

With --json each line is an object: topic, partition, offset, timestamp, timestamp_type, headers, key, value. Keys and values that are not
deserialized are text if they are UTF-8, and otherwise {"base64": "..."}.
"""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
POLL_MS = 1000
POLL_RECORDS = 2000
STALL_S = 5.0  # without an assigned partition, before the disks of the broker are checked


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("consume", help="print the records of a topic", description=DESCRIPTION)
    add_client(parser, "--consumer.config", client="consumer")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="NAME", help="the topic to read")
    include_help = "the topics to read: all whose whole name matches, including topics created later; a comma means or"
    topics.add_argument("--include", metavar="REGEX", help=include_help)
    parser.add_argument("--from-beginning", action="store_true", help="start at the oldest record, unless --group has committed offsets")
    parser.add_argument("--partition", type=number(0), metavar="N", help="read only this partition, from its end or --offset")
    offset_help = "the offset in --partition to start at: a number, earliest or latest (default)"
    parser.add_argument("--offset", type=offset, metavar="OFFSET", help=offset_help)
    group_help = "join this consumer group: start at its committed offsets, and commit offsets"
    parser.add_argument("--group", metavar="NAME", help=group_help)
    parser.add_argument("--max-messages", type=number(1), metavar="N", help="exit after this number of records")
    parser.add_argument("--timeout-ms", type=number(0), metavar="MS", help="exit if no record arrives for this time")
    level_help = "read_uncommitted (default), or read_committed to skip records of aborted and open transactions"
    parser.add_argument("--isolation-level", choices=ISOLATION_LEVELS, metavar="LEVEL", help=level_help)
    parser.add_argument("--formatter", metavar="CLASS", help="the formatter, see above")
    add_properties(parser, "--formatter-property", "a property of the formatter, see above", "--property")
    parser.add_argument("--formatter-config", metavar="FILE", help="a properties file for the formatter")
    parser.add_argument("--key-deserializer", metavar="CLASS", help="the deserializer of keys, see above")
    parser.add_argument("--value-deserializer", metavar="CLASS", help="the deserializer of values, see above")
    skip_help = "print a warning for a record that cannot be deserialized, and continue"
    parser.add_argument("--skip-message-on-error", action="store_true", help=skip_help)
    property_help = "a property of the consumer by its Java name, such as fetch.max.wait.ms=100"
    add_properties(parser, "--command-property", property_help, "--consumer-property")
    parser.set_defaults(command=run)


def offset(text: str) -> int | str:
    """The type of --offset."""
    if text in ("earliest", "latest"):
        return text
    try:
        return number(0)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be an offset of 0 or more, earliest or latest, not {text!r}") from None


def check(arguments: argparse.Namespace) -> None:
    """BadUsage if flags cannot be used together."""
    if arguments.include is not None:
        topic_pattern(arguments.include, "--include")
    if arguments.offset is not None and arguments.partition is None:
        raise BadUsage("--offset needs --partition")
    if arguments.include is not None and arguments.partition is not None:
        raise BadUsage("--include and --partition cannot be used together: specify --topic with --partition")
    if arguments.group is not None and arguments.partition is not None:
        raise BadUsage("--group and --partition cannot be used together: a group assigns the partitions itself")
    if arguments.from_beginning and arguments.offset is not None:
        raise BadUsage("--from-beginning and --offset cannot be used together")
    printed = [key for key in arguments.formatter_property if not key.endswith(".deserializer")]
    if arguments.json and (printed or arguments.formatter is not None):
        flag = f"--formatter-property {printed[0]}" if printed else "--formatter"
        raise BadUsage(f"{flag} and --json cannot be used together: JSON contains all fields of a record")


def chosen_formatter(arguments: argparse.Namespace) -> Formatter:
    """By the flags; BadUsage, CommandFailed."""
    properties = {**clients.read_properties(arguments.formatter_config), **arguments.formatter_property}
    for field in ("key", "value"):
        name = getattr(arguments, f"{field}_deserializer")
        if name is not None:
            properties[f"{field}.deserializer"] = name
    return formatter(arguments.formatter, formatter_properties(properties), as_json=arguments.json)


def run(arguments: argparse.Namespace) -> int:
    """Print records until Ctrl-C, --max-messages or --timeout-ms."""
    check(arguments)
    text = chosen_formatter(arguments)
    properties = {**clients.read_properties(arguments.command_config), **arguments.command_property}
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
                notice.show(lambda: full_disk_of(server, properties))

        _print(consumer, text, arguments, waiting)
    return DONE


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM, too, lets the consumer commit offsets and leave the group."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _start(consumer: Any, arguments: argparse.Namespace) -> None:
    """Subscribe, or assign the partition and seek."""
    from kafka import TopicPartition

    topic, partition = arguments.topic, arguments.partition
    if arguments.include is not None:
        # The library matches the beginning of a name only.
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
    assigned = TopicPartition(topic, partition)
    consumer.assign([assigned])
    start = "earliest" if arguments.from_beginning else arguments.offset
    if start == "earliest":
        consumer.seek_to_beginning(assigned)
    elif start is None or start == "latest":
        consumer.seek_to_end(assigned)
    else:
        consumer.seek(assigned, start)


def _print(consumer: Any, text: Formatter, arguments: argparse.Namespace, waiting: Callable[[], None]) -> None:
    """Print until --max-messages, or until no record came for --timeout-ms; call `waiting` while none come. CommandFailed."""
    max_messages, timeout_ms = arguments.max_messages, arguments.timeout_ms
    printed = 0
    # While records go to a file or a pipe, the terminal shows the progress.
    shown = sys.stderr.isatty() and not sys.stdout.isatty()
    progress = Progress(sys.stderr if shown else None, time.monotonic)
    last_s = time.monotonic()
    try:
        while max_messages is None or printed < max_messages:
            wait_ms = POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms - int((time.monotonic() - last_s) * 1000))
            if wait_ms < 0:
                return
            # No more than can be printed: offsets of all polled records are committed.
            count_max = POLL_RECORDS if max_messages is None else min(POLL_RECORDS, max_messages - printed)
            polled = [record for records in consumer.poll(wait_ms, max_records=count_max).values() for record in records]
            if polled:
                # Counted before they are written: the reader of a pipe may then end this command.
                printed += len(polled)
                size = _write(text, polled, arguments.skip_message_on_error)
                progress.add(size, len(polled), None if max_messages is None else printed / max_messages)
                last_s = time.monotonic()
            else:
                waiting()
    finally:
        progress.finish()
        print(f"Processed a total of {printed} messages", file=sys.stderr)


def _write(text: Formatter, records: Sequence[Any], skip: bool) -> int:
    """Write records to standard output; the number of bytes. CommandFailed for one that cannot be deserialized, unless `skip`."""
    parts: list[bytes] = []
    problem = None
    for record in records:
        try:
            parts.append(text(record))
        except NotDeserialized as error:
            problem = f"the record at offset {record.offset} of {record.topic}-{record.partition} cannot be deserialized: {error}"
            if not skip:
                break
            warn(problem)
    printable = b"".join(parts)
    sys.stdout.buffer.write(printable)
    sys.stdout.buffer.flush()
    if problem is not None and not skip:
        raise CommandFailed(f"{problem}; correct the deserializer, or use --skip-message-on-error")
    return len(printable)
