"""`txbroker perf-consume`: measures how fast a broker delivers records (Kafka's kafka-consumer-perf-test)."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, key_value, number
from txbroker.cli.perf.figures import HEADER, HEADER_DETAILED, Read
from txbroker.cli.results import Results, results
from txbroker.console.addresses import addresses as addresses_of
from txbroker.console.failures import DONE, BadUsage

if TYPE_CHECKING:
    from txbroker.cli.perf.membership import Membership
    from txbroker.cli.perf.reader import Reader

DESCRIPTION = """\
Read records as fast as the broker delivers them, and report rates as kafka-consumer-perf-test does.

  txbroker perf-consume --bootstrap-server 127.0.0.1:9092 --topic load --num-records 1000000
  txbroker perf-consume --bootstrap-server 127.0.0.1:9092 --topic load --num-records 1000000 --group readers --show-detailed-stats

Batches are decompressed and counted, but not decoded into records, so that the broker is measured and not a client library. Without
--group, all partitions are read without a group; Kafka's tool generates a group name then.
"""
POLL_S = 0.1


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("perf-consume", help="measure how fast a broker delivers records", description=DESCRIPTION)
    add_client(parser, "--consumer.config", client="consumer")
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic to read")
    count_help = "the number of records to read"
    parser.add_argument("--num-records", "--messages", dest="num_records", required=True, type=number(1), metavar="N", help=count_help)
    parser.add_argument("--group", metavar="NAME", help="read as a member of this group, from its offsets, and commit them")
    timeout_help = "end when no record has come for this time (default: 10000)"
    parser.add_argument("--timeout", type=number(0), default=10_000, metavar="MS", help=timeout_help)
    detailed_help = "print a line for each --reporting-interval instead of one at the end"
    parser.add_argument("--show-detailed-stats", action="store_true", help=detailed_help)
    parser.add_argument("--reporting-interval", type=number(1), default=5000, metavar="MS", help="the time between reports (default: 5000)")
    fetch_help = "max.partition.fetch.bytes (default: 1048576)"
    parser.add_argument("--fetch-size", type=number(0), metavar="BYTES", help=fetch_help)
    parser.add_argument("--socket-buffer-size", type=number(1), metavar="BYTES", help="receive.buffer.bytes (default: 2097152)")
    latest_help = "start with new records where the group has no offset"
    parser.add_argument("--from-latest", action="store_true", help=latest_help)
    parser.add_argument("--hide-header", action="store_true", help="print no header")
    settings_help = "consumer properties by their Java names, such as fetch.min.bytes=100000; an unsupported one is an error"
    parser.add_argument("--command-property", nargs="+", action="extend", type=key_value, default=[], metavar="KEY=VALUE",
                        help=settings_help)
    parser.add_argument("--print-metrics", action="store_true", help="print the number of fetches at the end")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, and report; CommandFailed or ClientError."""
    from txbroker.cli.perf.membership import member
    from txbroker.cli.perf.reader import Reader
    from txbroker.cli.perf.settings import INT32_MAX, consumer_settings, is_security
    from txbroker.client.client_machine import ClientSettings
    from txbroker.client.topic_metadata import TopicMetadata

    flags = {
        "group.id": arguments.group,
        "auto.offset.reset": "latest" if arguments.from_latest else None,
        "max.partition.fetch.bytes": arguments.fetch_size,
        "receive.buffer.bytes": arguments.socket_buffer_size,
    }
    for key in ("max.partition.fetch.bytes", "receive.buffer.bytes"):
        if (flags[key] or 0) > INT32_MAX:
            raise BadUsage(f"{key} is {flags[key]}; it must be {INT32_MAX} at most")
    properties = {**clients.read_properties(arguments.command_config), **dict(arguments.command_property)}
    properties.update({key: str(value) for key, value in flags.items() if value is not None})
    settings = consumer_settings(properties)
    with ExitStack() as stack:
        client = ClientSettings(settings.client_id, request_timeout_s=settings.request_timeout_s, security=settings.security)
        addresses = addresses_of(arguments.bootstrap_server)
        topic = TopicMetadata(addresses, arguments.topic, client, settings.backoff_s, create=False)
        stack.callback(topic.close)
        report = Report(results(arguments), arguments)
        reader = Reader(topic, settings, report.counted)
        stack.callback(reader.close)
        report.start()
        membership = None
        if settings.group is not None:
            secured = {key: value for key, value in properties.items() if is_security(key)}
            joined = member(arguments.bootstrap_server, arguments.topic, settings.group, settings.client_id, secured)
            membership = stack.enter_context(joined)
            reader.assign({})
        try:
            _read(reader, membership, report, arguments)
        finally:
            report.finish(membership.joining_ms if membership else 0)
        if arguments.print_metrics:
            report.metrics({"fetches": reader.fetches})
    return DONE


def _read(reader: Reader, membership: Membership | None, report: Report, arguments: argparse.Namespace) -> None:
    timeout_s = arguments.timeout / 1000
    while report.records < arguments.num_records:
        waited_s = time.monotonic() - report.last_s
        if waited_s > timeout_s:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({arguments.timeout} ms) exceeded. "
                "You can use the --timeout option to increase the timeout.",
                file=sys.stderr,
            )
            break
        if membership is not None:
            assignment = membership.keep(reader.offsets(), joining=not reader.assigned)
            if assignment is not None:
                reader.assign(assignment)
            report.joining_ms = membership.joining_ms
        if reader.assigned:
            reader.poll(min(POLL_S, timeout_s - waited_s))
        report.tick()
    if membership is not None:
        membership.commit(reader.offsets())


class Report:
    """Counts records, and prints the lines of Kafka's tool or JSON objects."""

    def __init__(self, out: Results, arguments: argparse.Namespace) -> None:
        self.records = self.bytes = 0
        self.joining_ms = 0
        self._out = out
        self._detailed = arguments.show_detailed_stats
        self._interval_s = arguments.reporting_interval / 1000
        if not arguments.hide_header and not out.as_json:
            out.line(HEADER_DETAILED if self._detailed else HEADER)
            sys.stdout.flush()
        self.start()

    def start(self) -> None:
        """Start the measured time."""
        self.last_s = time.monotonic()
        self._date_at_zero_s = time.time() - self.last_s
        self._start_s = self._window_s = self._date_s()
        self._window = (0, 0, 0)

    def counted(self, records: int, size: int) -> None:
        """Count records, and the bytes of their keys and values."""
        if records:
            self.records += records
            self.bytes += size
            self.last_s = time.monotonic()

    def tick(self) -> None:
        """Print an interval, when it is time."""
        now_s = self._date_s()
        if now_s - self._window_s < self._interval_s:
            return
        records, size, joining_ms = self._window
        interval = Read(self.records - records, self.bytes - size, self._window_s, now_s, self.joining_ms - joining_ms)
        self._window_s, self._window = now_s, (self.records, self.bytes, self.joining_ms)
        if self._detailed:
            so_far = self._so_far(now_s)
            self._out.either(interval.row("interval"), lambda: [interval.interval_line(so_far)])
            sys.stdout.flush()

    def finish(self, joining_ms: int) -> None:
        """Print the total; as in Kafka's tool, there is none with --show-detailed-stats."""
        self.joining_ms = joining_ms
        total = self._so_far(self._date_s())
        if self._out.as_json or not self._detailed:
            self._out.either(total.row("total"), lambda: [total.total_line()])
            sys.stdout.flush()

    def metrics(self, counts: dict[str, int]) -> None:
        """Print the lines of --print-metrics."""
        self._out.either({"kind": "metrics", **counts}, lambda: [f"{name} : {value}" for name, value in counts.items()])

    def _date_s(self) -> float:
        """The date of the start plus the time since then: changes of the wall clock do not alter rates."""
        return self._date_at_zero_s + time.monotonic()

    def _so_far(self, now_s: float) -> Read:
        return Read(self.records, self.bytes, self._start_s, now_s, self.joining_ms)
