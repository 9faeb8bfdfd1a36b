"""`txbroker produce`: a record for each line of standard input (Kafka's kafka-console-producer)."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from txbroker.cli import clients, produce_transactions
from txbroker.cli.arguments import add_client, add_properties, number
from txbroker.cli.line_reader import Line, LineFormat, line_format
from txbroker.cli.own_connections import full_disk_of, own_settings
from txbroker.cli.produce_transactions import NoTransactions, Transactions
from txbroker.cli.progress import Progress
from txbroker.cli.results import Results, results
from txbroker.console.failures import DONE, BadUsage, CommandFailed, no_topic

DESCRIPTION = """\
Read lines from standard input and write each of them to a topic as a record. The topic is created if it does not exist and the broker
creates topics automatically (auto.create.topics.enable).

  echo 'hello, world' | txbroker produce --bootstrap-server 127.0.0.1:9092 --topic hello
  txbroker produce --bootstrap-server 127.0.0.1:9092 --topic hello --reader-property parse.key=true \\
      --reader-property key.separator=: < lines

Properties of the line reader (--reader-property), with their defaults:
  parse.key=false       whether a line begins with a key, followed by key.separator (a tab)
  parse.headers=false   whether a line begins with headers like a:1,b:2, followed by headers.delimiter (a tab); the separators within
                        them are headers.separator (,) and headers.key.separator (:)
  null.marker           the text that means null, as a key or a value
  ignore.error=false    whether a line without a separator is taken as a value

With --transactional-id all lines are written in one transaction, which is committed at the end of the input and aborted after a failure;
with --transaction-duration-ms too, in transactions of about that length.

With --json an object is printed for each acknowledged record: line, topic, partition, offset, timestamp.
"""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Records that are sent and not acknowledged yet; the client library itself has no limit. It is Kafka's default of buffer.memory.
OUTSTANDING_BYTES_MAX = 32 * 1024 * 1024
TOPIC_WAIT_MS = 5_000
BATCH_BYTES = 131_072
LINGER_MS = 20
STALL_S = 5.0  # without an acknowledgement, before the disks of the broker are checked
LINE_READER = "LineMessageReader"

# Flags of Kafka's tool for settings of the producer, by the names of kafka-python.
_SETTINGS = {
    "--batch-size": ("batch_size", 1, "BYTES", f"size of a batch (default: {BATCH_BYTES})"),
    "--timeout": ("linger_ms", 0, "MS", f"milliseconds to wait for more records of a batch (default: {LINGER_MS}), linger.ms"),
    "--max-block-ms": ("max_block_ms", 0, "MS", f"milliseconds to wait for the metadata of the topic (default: {TOPIC_WAIT_MS})"),
    "--request-timeout-ms": ("request_timeout_ms", 1, "MS", "milliseconds to wait for the response to a request"),
    "--message-send-max-retries": ("retries", 0, "N", "how often to send a batch again; default: until delivery.timeout.ms"),
    "--retry-backoff-ms": ("retry_backoff_ms", 0, "MS", "milliseconds to wait before a batch is sent again"),
    "--metadata-expiry-ms": ("metadata_max_age_ms", 1, "MS", "milliseconds after which metadata is read again"),
    "--socket-buffer-size": ("send_buffer_bytes", 1, "BYTES", "size of the socket's send buffer"),
}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("produce", help="write records from standard input", description=DESCRIPTION)
    add_client(parser, "--producer.config", client="producer")
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic to write to")
    add_properties(parser, "--reader-property", "a property of the line reader, see above", "--property")
    parser.add_argument("--reader-config", metavar="FILE", help="a properties file for the line reader")
    parser.add_argument("--line-reader", metavar="CLASS", help=f"the class that parses lines; only {LINE_READER} is available")
    codec_help = "compress batches: none, gzip (also without a value), snappy, lz4 or zstd"
    parser.add_argument("--compression-codec", nargs="?", const="gzip", choices=CODECS, metavar="CODEC", help=codec_help)
    parser.add_argument("--sync", action="store_true", help="wait for the acknowledgement of each record before the next one is sent")
    acks_help = "the required acknowledgements: -1 or all (default), 1 or 0"
    parser.add_argument("--request-required-acks", choices=("-1", "all", "1", "0"), metavar="ACKS", help=acks_help)
    for flag, (_, least, metavar, text) in _SETTINGS.items():
        older = ["--max-partition-memory-bytes"] if flag == "--batch-size" else []
        parser.add_argument(flag, *older, type=number(least), metavar=metavar, help=text)
    memory_help = f"bytes of records that may be sent and not acknowledged yet (default: {OUTSTANDING_BYTES_MAX})"
    parser.add_argument("--max-memory-bytes", type=number(1), default=OUTSTANDING_BYTES_MAX, metavar="BYTES", help=memory_help)
    property_help = "a property of the producer by its Java name, such as linger.ms=5"
    add_properties(parser, "--command-property", property_help, "--producer-property")
    transactional_help = "write in a transaction; a second producer with the same id fences the first one"
    parser.add_argument("--transactional-id", metavar="ID", help=transactional_help)
    duration_help = "commit after so many milliseconds, and begin the next transaction"
    parser.add_argument("--transaction-duration-ms", type=number(1), metavar="MS", help=duration_help)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Send all lines; CommandFailed at the first record that is not acknowledged."""
    if sys.stdin is None:
        raise CommandFailed("standard input is closed; connect it to a pipe or a file")
    if arguments.line_reader is not None and re.split(r"[.$]", arguments.line_reader)[-1] != LINE_READER:
        problem = f"--line-reader {arguments.line_reader} is not available: this command cannot load Java classes"
        raise BadUsage(f"{problem}; use {LINE_READER}")
    lines = line_format({**clients.read_properties(arguments.reader_config), **arguments.reader_property})
    properties = {**clients.read_properties(arguments.command_config), **arguments.command_property}
    produce_transactions.check(arguments, properties)
    defaults = {"batch_size": BATCH_BYTES, "linger_ms": 0 if arguments.sync else LINGER_MS, "max_block_ms": TOPIC_WAIT_MS}
    flags = chosen(arguments)
    with clients.connected("KafkaProducer", arguments.bootstrap_server, properties, defaults=defaults, flags=flags) as producer:
        _wait_for_topic(producer, arguments, properties)
        written = partial(_show_written, results(arguments)) if arguments.json else None
        notice = clients.Notice()
        stalled = partial(_stalled, arguments.bootstrap_server, properties)
        outstanding = 0 if arguments.sync else arguments.max_memory_bytes
        patience_s = producer.config["delivery_timeout_ms"] / 1000
        sending = Sending(
            producer, arguments.topic, outstanding, time.monotonic, patience_s, written=written, stalled=lambda: notice.show(stalled)
        )
        progress = _progress()
        with _transactions(producer, arguments) as transactions:
            for number_, text in enumerate(_read_lines(sys.stdin.buffer), 1):
                sending.send(parse(lines, text, number_), number_)
                progress.add(len(text))
                if transactions.is_due:
                    sending.finish()
                    transactions.next()
            sending.finish()
        progress.finish()
    return DONE


def _stalled(servers: str, properties: Mapping[str, str]) -> str | None:
    full = full_disk_of(servers, properties)
    return None if full is None else f"no record was acknowledged for {STALL_S:.0f} s: {full}; trying again"


def _show_written(shown: Results, line: int, record: Any) -> None:
    """Print the position of a line's record. Without acknowledgements its offset, and maybe its timestamp, are not known."""
    offset, timestamp = (value if value >= 0 else None for value in (record.offset, record.timestamp))
    shown.json({"line": line, "topic": record.topic, "partition": record.partition, "offset": offset, "timestamp": timestamp})


def chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """The producer's settings that are set by flags."""
    flags: dict[str, Any] = {}
    if arguments.compression_codec:
        flags["compression_type"] = None if arguments.compression_codec == "none" else arguments.compression_codec
    if arguments.request_required_acks:
        flags["acks"] = -1 if arguments.request_required_acks == "all" else int(arguments.request_required_acks)
    if arguments.transactional_id is not None:
        flags["transactional_id"] = arguments.transactional_id
    for flag, (name, *_) in _SETTINGS.items():
        value = getattr(arguments, flag[2:].replace("-", "_"))
        if value is not None:
            flags[name] = value
    return flags


def parse(lines: LineFormat, text: bytes, number_: int) -> Line:
    """The record of a line that ends with LF or CR LF."""
    return lines.parse(text.removesuffix(b"\n").removesuffix(b"\r"), number_)


def _transactions(producer: Any, arguments: argparse.Namespace) -> AbstractContextManager[NoTransactions | Transactions]:
    if arguments.transactional_id is None:
        return nullcontext(NoTransactions())
    return Transactions(producer, arguments.transaction_duration_ms, time.monotonic)


def _wait_for_topic(producer: Any, arguments: argparse.Namespace, properties: Mapping[str, str]) -> None:
    """Wait until the topic exists. The library would wait for max.block.ms for one that is not created, so that is checked first."""
    from kafka.errors import KafkaTimeoutError

    from txbroker.cli.autocreate import will_never_be

    topic = arguments.topic
    own = own_settings(properties)
    if own is not None and will_never_be(arguments.bootstrap_server, topic, own):
        raise no_topic(topic)
    try:
        producer.partitions_for(topic)
    except KafkaTimeoutError:
        full = full_disk_of(arguments.bootstrap_server, properties)
        raise no_topic(topic) if full is None else CommandFailed(f"topic {topic} does not exist and cannot be created: {full}") from None
    except ValueError as error:
        raise CommandFailed(f"{error}; correct --topic") from None


def _read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines as they arrive, with a prompt if they are typed."""
    prompt = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if prompt:
            print(">", end="", flush=True)
        line = stream.readline()
        if not line:
            return
        yield line


def _progress() -> Progress:
    """Shown on a terminal while a file or a pipe is read."""
    shown = sys.stderr.isatty() and not sys.stdin.isatty()
    status = os.fstat(sys.stdin.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Progress(sys.stderr if shown else None, time.monotonic, total)


class _Sent(NamedTuple):
    future: Any
    line: int
    size: int


class Sending:
    """Records that were sent, in the order of their lines. At most `outstanding_bytes_max` are not acknowledged yet.

    `written` is called for each acknowledged record with the line's number and kafka-python's metadata of the record, `stalled` each time
    that STALL_S have passed without the acknowledgement that is waited for. After `patience_s` without one, by `clock_s`, sending fails:
    the library does not limit the time in which it requests a producer id.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        outstanding_bytes_max: int,
        clock_s: Callable[[], float],
        patience_s: float,
        *,
        written: Callable[[int, Any], None] | None = None,
        stalled: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock_s = clock_s
        self._patience_s = patience_s
        self._last_s = clock_s()
        self._producer = producer
        self._topic = topic
        self._written = written
        self._stalled = stalled
        self._outstanding: deque[_Sent] = deque()
        self._outstanding_bytes = 0
        self._outstanding_bytes_max = outstanding_bytes_max

    def send(self, line: Line, number_: int) -> None:
        """Send a record; CommandFailed if this one, or an earlier one, is refused."""
        size = 1 + len(line.key or b"") + len(line.value or b"")
        try:
            future = self._producer.send(self._topic, line.value, key=line.key, headers=line.headers)
        except Exception as error:
            raise self._failed(number_, error) from error
        self._outstanding.append(_Sent(future, number_, size))
        self._outstanding_bytes += size
        self._settle_done()
        while self._outstanding_bytes > self._outstanding_bytes_max:
            self._settle()

    def finish(self) -> None:
        """Wait for all acknowledgements; CommandFailed."""
        from kafka.errors import KafkaTimeoutError

        flushed = False
        while not flushed and self._outstanding:
            try:
                self._producer.flush(self._patience_left_s())
                flushed = True
            except KafkaTimeoutError:
                self._settle_done()
        while self._outstanding:
            self._settle()

    def _settle_done(self) -> None:
        while self._outstanding and self._outstanding[0].future.is_done:
            self._settle()

    def _settle(self) -> None:
        sent = self._outstanding[0]
        while not sent.future.is_done:
            left_s = self._patience_left_s()
            with suppress(Exception):  # a timeout, or the failure of the record, which is raised below
                sent.future.get(left_s)
        self._last_s = self._clock_s()
        self._outstanding.popleft()
        self._outstanding_bytes -= sent.size
        try:
            record = sent.future.get()
        except Exception as error:
            raise self._failed(sent.line, error) from error
        if self._written is not None:
            self._written(sent.line, record)

    def _patience_left_s(self) -> float:
        """For how long to wait for an acknowledgement before the next look; CommandFailed when it has been waited for too long."""
        from kafka.errors import KafkaTimeoutError

        waited_s = self._clock_s() - self._last_s
        if waited_s >= self._patience_s:
            raise self._failed(self._outstanding[0].line, KafkaTimeoutError(f"no acknowledgement within {self._patience_s:g} s"))
        if waited_s >= STALL_S:
            self._stalled()
        return min(STALL_S, self._patience_s - waited_s)

    def _failed(self, number_: int, error: Exception) -> CommandFailed:
        return clients.failure(f"line {number_} was not written to {self._topic}, and those after it may not be", error)
