"""`txbroker perf-produce`: measures how fast a broker accepts records (Kafka's kafka-producer-perf-test)."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, key_value, number
from txbroker.cli.full_disks import explaining
from txbroker.cli.perf.figures import Latencies, Sent
from txbroker.cli.results import Results, results
from txbroker.console.addresses import addresses as addresses_of
from txbroker.console.failures import DONE, BadUsage, CommandFailed

if TYPE_CHECKING:
    from txbroker.cli.perf.batches import Source
    from txbroker.cli.perf.sender import Batch
    from txbroker.cli.perf.settings import ProducerSettings

DESCRIPTION = """\
Send records as fast as the broker accepts them, or at --throughput, and report rates and latencies as kafka-producer-perf-test does.

  txbroker perf-produce --bootstrap-server 127.0.0.1:9092 --topic load --num-records 1000000 --record-size 100 --throughput -1
  txbroker perf-produce --bootstrap-server 127.0.0.1:9092 --topic load --num-records 100000 --record-size 1024 --throughput 5000 \\
      --command-property acks=1 linger.ms=10 batch.size=131072 compression.type=lz4

Batches are compressed once and sent many times, so that the broker is measured and not a client library. A record's latency counts
from when it is due (with --throughput: by the clock, whether the broker keeps up or not) to its acknowledgement; Kafka's tool adds the
time that records wait in the producer's buffer.memory.

With --transactional-id or --transaction-duration-ms records are sent in transactions, one after the other. A record's latency does not
include the commit; the rate does.
"""
TRANSACTION_DURATION_MS = 3000  # the default of Kafka's tool
PAYLOAD_FILE_MAX = 512 * 1024 * 1024
RECORD_MAX = 256 * 1024 * 1024


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("perf-produce", help="measure how fast a broker accepts records", description=DESCRIPTION)
    add_client(parser, "--producer.config", client="producer")
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic to write to")
    parser.add_argument("--num-records", required=True, type=number(1), metavar="N", help="the number of records to send")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record-size", type=number(1), metavar="BYTES", help="the length of the values, which are random letters")
    what.add_argument("--payload-file", metavar="FILE", help="a file with values, which are chosen at random")
    what.add_argument("--payload-monotonic", action="store_true", help="the values are 0, 1, 2, ...")
    delimiter_help = "the separator of values in --payload-file (default: \\n)"
    parser.add_argument("--payload-delimiter", default="\\n", metavar="TEXT", help=delimiter_help)
    rate_help = "records per second; -1 (default): as many as the broker accepts"
    parser.add_argument("--throughput", type=_rate, default=-1.0, metavar="RATE", help=rate_help)
    settings_help = "producer properties by their Java names, such as acks=1 linger.ms=5; an unsupported one is an error"
    parser.add_argument("--command-property", "--producer-props", dest="command_property", nargs="+", action="extend", type=key_value,
                        default=[], metavar="KEY=VALUE", help=settings_help)
    parser.add_argument("--reporting-interval", type=number(1), default=5000, metavar="MS", help="the time between reports (default: 5000)")
    warmup_help = "the number of first records that a second total leaves out"
    parser.add_argument("--warmup-records", type=number(0), default=0, metavar="N", help=warmup_help)
    parser.add_argument("--print-metrics", action="store_true", help="print requests, batches and retries at the end")
    transactional_help = "send in transactions with this id (default with --transaction-duration-ms: a new one)"
    parser.add_argument("--transactional-id", metavar="ID", help=transactional_help)
    duration_help = f"commit after so many milliseconds (default with --transactional-id: {TRANSACTION_DURATION_MS})"
    parser.add_argument("--transaction-duration-ms", type=number(1), metavar="MS", help=duration_help)
    parser.set_defaults(command=run)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (value == -1 or 0 < value < float("inf")):
        raise argparse.ArgumentTypeError(f"must be a number above 0, or -1 for no limit, not {text!r}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Send, and report; CommandFailed or ClientError at the first record that fails."""
    from txbroker.cli.perf.sender import Sender
    from txbroker.cli.perf.settings import producer_settings
    from txbroker.cli.perf.transactions import Transactions
    from txbroker.client.client_machine import ClientSettings
    from txbroker.client.producer_transactions import ProducerTransactions
    from txbroker.client.topic_metadata import TopicMetadata

    if arguments.warmup_records >= arguments.num_records:
        raise BadUsage("--warmup-records must be fewer than --num-records")
    properties = {**clients.read_properties(arguments.command_config), **dict(arguments.command_property)}
    if arguments.transactional_id is not None:
        properties["transactional.id"] = arguments.transactional_id
    elif arguments.transaction_duration_ms is not None:
        properties.setdefault("transactional.id", f"performance-producer-{secrets.token_urlsafe(16)}")
    settings = producer_settings(properties)
    source = _source(arguments, settings)
    client = ClientSettings(settings.client_id, request_timeout_s=settings.request_timeout_s, security=settings.security)
    addresses = addresses_of(arguments.bootstrap_server)
    with (
        explaining(addresses, client),
        closing(TopicMetadata(addresses, arguments.topic, client, settings.backoff_s, create=True)) as topic,
    ):
        report = Report(results(arguments), arguments.reporting_interval / 1000, arguments.warmup_records)
        transactions = None
        if settings.transactional_id is not None:
            producer = ProducerTransactions(addresses, settings.transactional_id, client)
            transactions = Transactions(producer, (arguments.transaction_duration_ms or TRANSACTION_DURATION_MS) / 1000)
        sender = Sender(topic, settings, source, arguments.num_records, arguments.throughput, report.acknowledged, transactions)
        report.start(sender.start_s)
        try:
            sender.run()
        finally:
            report.finish()
            sender.close()
        if arguments.print_metrics:
            report.metrics(sender.counts())
    return DONE


def _source(arguments: argparse.Namespace, settings: ProducerSettings) -> Source:
    from txbroker.cli.perf import batches

    if arguments.payload_monotonic:
        return batches.Numbers(arguments.num_records, settings)
    if arguments.payload_file is not None:
        return batches.Templates(batches.given_values(_read_payloads(arguments.payload_file, arguments.payload_delimiter)), settings)
    if arguments.record_size > RECORD_MAX:
        raise BadUsage(f"--record-size is {arguments.record_size}; it must be {RECORD_MAX} at most")
    return batches.Templates(batches.random_values(arguments.record_size), settings)


def _read_payloads(name: str, delimiter: str) -> list[bytes]:
    """The values in a file. As in Kafka's tool (Java's split), empty ones at its end do not count."""
    path = Path(name)
    try:
        if path.stat().st_size > PAYLOAD_FILE_MAX:
            raise CommandFailed(f"{name} has more than {PAYLOAD_FILE_MAX} bytes; use a part of it as --payload-file")
        data = path.read_bytes()
    except OSError as error:
        raise CommandFailed(f"{name} cannot be read: {error.strerror}; correct --payload-file") from None
    values = data.split((delimiter.replace("\\n", "\n").replace("\\t", "\t") or "\n").encode(errors="surrogateescape"))
    while values and not values[-1]:
        values.pop()
    if not values:
        raise CommandFailed(f"{name} has no values; specify another --payload-file")
    print(f"Reading payloads from: {path.absolute()}\nNumber of records read: {len(values)}", file=sys.stderr)
    return values


class Report:
    """Counts acknowledged records, and prints a line every `interval_s` seconds and totals."""

    def __init__(self, out: Results, interval_s: float, warmup: int) -> None:
        self._out = out
        self._interval_s = interval_s
        self._warmup = warmup
        self.start(time.monotonic())

    def start(self, start_s: float) -> None:
        """Start the measured time."""
        self._start_s = self._window_s = self._steady_s = self._last_s = start_s
        self._records = self._bytes = 0
        self._window_records = self._window_bytes = 0
        self._steady_records = self._steady_bytes = 0
        self._all, self._window, self._steady = Latencies(), Latencies(), Latencies()

    def acknowledged(self, batch: Batch, now_s: float) -> None:
        """A batch was acknowledged (with acks=0: sent)."""
        steady = self._warmup and self._records >= self._warmup
        self._records += batch.count
        self._bytes += batch.value_bytes
        self._window_records += batch.count
        self._window_bytes += batch.value_bytes
        self._last_s = now_s
        if not steady:
            self._steady_s = now_s
        else:
            self._steady_records += batch.count
            self._steady_bytes += batch.value_bytes
        for latency_ms, count in spread(batch, now_s):
            self._all.add(latency_ms, count)
            self._window.add(latency_ms, count)
            if steady:
                self._steady.add(latency_ms, count)
        if now_s - self._window_s >= self._interval_s:
            window = Sent(self._window_records, self._window_bytes, self._window_s, now_s, self._window)
            self._out.either(window.row("interval"), lambda: [window.interval_line()])
            sys.stdout.flush()
            self._window_s, self._window_records, self._window_bytes, self._window = now_s, 0, 0, Latencies()

    def finish(self) -> None:
        """Print the totals, also after an error."""
        if not self._records:
            return
        total = Sent(self._records, self._bytes, self._start_s, max(self._last_s, self._start_s), self._all)
        self._out.either(total.row("total"), lambda: [total.total_line()])
        if self._warmup and self._steady_records:
            steady = Sent(self._steady_records, self._steady_bytes, self._steady_s, self._last_s, self._steady)
            self._out.either(steady.row("steady"), lambda: [steady.total_line("steady state records sent")])
        sys.stdout.flush()

    def metrics(self, counts: dict[str, int]) -> None:
        """Print the lines of --print-metrics: the sender's counters."""
        self._out.either({"kind": "metrics", **counts}, lambda: [f"{name.replace('_', '-')} : {value}" for name, value in counts.items()])


# The number of different latencies that are counted for one batch.
SPREAD = 16


def spread(batch: Batch, now_s: float) -> list[tuple[float, int]]:
    """The latencies (ms) of a batch's records, and how many have each: they are due evenly between the first and the last."""
    first_ms, last_ms = (now_s - batch.due_s) * 1000, (now_s - batch.last_due_s) * 1000
    if first_ms == last_ms:
        return [(first_ms, batch.count)]
    parts = min(SPREAD, batch.count)
    step_ms = (first_ms - last_ms) / max(parts - 1, 1)
    each, more = divmod(batch.count, parts)
    return [(first_ms - i * step_ms, each + (i < more)) for i in range(parts)]
