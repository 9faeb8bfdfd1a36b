"""`txbroker audit keys`: the latest value of each key, and which of the key's values each consumer group has got."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client
from txbroker.cli.own_connections import security_of
from txbroker.cli.progress import Progress
from txbroker.cli.results import Column, Results, Row, results
from txbroker.console.addresses import addresses
from txbroker.console.failures import DONE, BadUsage, CommandFailed, warn
from txbroker.console.input_files import read_bytes
from txbroker.console.texts import json_value, size_text
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.names import TopicPartition, amount

if TYPE_CHECKING:
    from txbroker.cli.audit.audit import Page, Selection, Summary
    from txbroker.cli.audit.latest_versions import Rows

DESCRIPTION = """\
Audit a topic by its keys: the latest value of each key, the latest one of those that were delivered to each consumer group (the committed
offset is past it), and the keys whose latest value a group has not seen. Values are shown by offset, timestamp and version.

  txbroker audit keys --bootstrap-server 127.0.0.1:9092 --topic prices --key EURUSD --key EURCHF
  txbroker audit keys --bootstrap-server 127.0.0.1:9092 --topic prices --group readers --unseen
  txbroker audit keys --bootstrap-server 127.0.0.1:9092 --topic prices --sample 1/1000 --output audit.parquet
  txbroker audit keys --log-dir ./data --topic prices --sample 1/100 --json

The latest value is the one that compaction keeps: by the topic's compaction.strategy the one with the largest offset, timestamp, or
version in a header (KIP-280). With --log-dir, the strategy is that in the metadata of a txbroker, or else the offset.
A sample is a range of hashes: it has the same keys each time. Without --key, --keys-file and --sample, all keys are audited.
A null value counts as a value: the key was deleted. The topic is read up to its end at the start of the command: the high watermark, or
with --isolation-level read_committed, the default, the last stable offset. With --unseen, and if the latest value is the one with the
largest offset, only records that some group has not passed are read, and older delivered values are not shown. The broker only
answers fetches.
Compaction may have removed an older value that was delivered: a key without a delivered value (NONE-DELIVERED in the summary) has
none among the records that the log still holds.

A topic with more keys than fit into --memory is read several times, a part of the keys each time.
"""

MEMORY_BYTES = 256 * 1024 * 1024
MEMORY_BYTES_MIN = 8 * 1024 * 1024
KEYS_FILE_BYTES_MAX = 256 * 1024 * 1024
TIMEOUT_MS = 15_000
TABLE_ROWS = 1000  # with one header
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COLUMNS = (
    Column("partition", "PARTITION"), Column("key_text", "KEY"), Column("offset", "OFFSET"), Column("timestamp", "TIMESTAMP"),
    Column("version", "VERSION"), Column("deleted", "DELETED"), Column("group", "GROUP"), Column("delivered_offset", "DELIVERED-OFFSET"),
    Column("delivered_timestamp", "DELIVERED-TIMESTAMP"), Column("delivered_version", "DELIVERED-VERSION"), Column("unseen", "UNSEEN"),
)  # fmt: skip
_SUMMARY = (
    Column("group", "GROUP"), Column("keys", "KEYS"), Column("unseen", "UNSEEN"), Column("never_delivered", "NONE-DELIVERED"),
    Column("oldest_unseen_ms", "OLDEST-UNSEEN-MS"),
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    audit = subparsers.add_parser("audit", help="compare what was written with what was delivered, by key", description=DESCRIPTION)
    kinds = audit.add_subparsers(title="audits", metavar="KIND", dest="kind", required=True)
    parser = kinds.add_parser("keys", help="the latest value of each key, written and delivered", description=DESCRIPTION)
    add_client(parser, required=False)
    directory_help = "read this log directory (or several, comma-separated) instead of asking a broker"
    parser.add_argument("--log-dir", metavar="DIR", help=directory_help)
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic")
    group_help = "a consumer group; can be specified several times (default: all with committed offsets for the topic)"
    parser.add_argument("--group", action="append", metavar="NAME", help=group_help)
    parser.add_argument("--no-groups", action="store_true", help="leave out the groups")
    parser.add_argument("--key", action="append", default=[], metavar="KEY", help="only this key; can be specified several times")
    parser.add_argument("--keys-file", metavar="FILE", help="only the keys in this file, one per line (- is standard input)")
    encoding_help = "the encoding of --key and --keys-file: text (UTF-8, default), hex or base64"
    parser.add_argument("--key-encoding", choices=tuple(_DECODERS), default="text", help=encoding_help)
    parser.add_argument("--sample", type=_sample, metavar="M/N", help="only this part of all keys, such as 1/1000")
    parser.add_argument("--unseen", action="store_true", help="only keys whose latest value a group has not seen")
    strategy_help = "which value of a key is the latest: the one with the largest offset, timestamp or version (default: the topic's)"
    parser.add_argument("--compaction-strategy", choices=[each.value for each in Strategy], help=strategy_help)
    header_help = "the record header that holds versions of 8 bytes (KIP-280; default: the topic's compaction.strategy.header)"
    parser.add_argument("--version-header", metavar="NAME", help=header_help)
    levels = ("read_committed", "read_uncommitted")
    isolation_help = "leave out the records of open and aborted transactions (default), or count them"
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help=isolation_help)
    parser.add_argument("--summary", action="store_true", help="print only the summary of each group")
    parser.add_argument("--output", metavar="FILE", help="write the keys to FILE.arrow or FILE.parquet (needs pyarrow)")
    memory_help = "memory for the table of keys, such as 512m (default: 256m); the process needs about 100 MB more"
    parser.add_argument("--memory", type=_size, default=MEMORY_BYTES, metavar="BYTES", help=memory_help)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit, and print the result; CommandFailed or ClientError."""
    from txbroker.cli.audit.audit import Audit, Question

    selection = _selection(arguments)
    _check(arguments)
    out = results(arguments)
    progress = Progress(sys.stderr if sys.stderr.isatty() else None, time.monotonic)
    with ExitStack() as stack:
        file = None
        if arguments.output:
            from txbroker.cli.audit.output_files import AnswerFile

            file = stack.enter_context(AnswerFile(arguments.output, arguments.topic))
        source = _source(arguments)
        stack.callback(source.close)
        committed = {} if arguments.no_groups else _committed(arguments)
        if arguments.unseen and not committed:
            raise CommandFailed(f"no group has committed offsets for {arguments.topic}; leave out --unseen, which is about groups")
        order, header = _order(arguments, source)
        audit = Audit(source, Question(selection, committed, arguments.unseen, header, arguments.memory, order), progress.add)
        keys = _Keys(arguments.topic, out)
        # The end is fixed after the committed offsets were read, so that no group is ahead of it.
        for page in _watched(audit.pages(source.bounds()), progress):
            if file is not None:
                file.add(page)
            elif not arguments.summary:
                keys.add(page)
        keys.finish()
    _finish(out, arguments, audit.summary)
    return DONE


def _order(arguments: argparse.Namespace, source: Any) -> tuple[CompactionOrder, str | None]:
    """Which record of a key is the latest, and the header with versions, if any."""
    chosen: str | None = arguments.compaction_strategy
    needs_header = chosen == Strategy.HEADER.value and arguments.version_header is None
    configured = source.order() if chosen is None or needs_header else CompactionOrder()
    header = arguments.version_header or configured.header
    order = CompactionOrder.of_topic(chosen or configured.strategy.value, header)
    if chosen == Strategy.HEADER.value and not header:
        raise BadUsage("--compaction-strategy header needs --version-header, since the topic has no compaction.strategy.header")
    return order, header if arguments.version_header or order.strategy is Strategy.HEADER else None


def _check(arguments: argparse.Namespace) -> None:
    if (arguments.bootstrap_server is None) == (arguments.log_dir is None):
        raise BadUsage("specify exactly one of --bootstrap-server and --log-dir")
    if arguments.no_groups and (arguments.group or arguments.unseen):
        raise BadUsage("--no-groups cannot be combined with --group or --unseen")
    if arguments.output:
        from txbroker.cli.audit.output_files import check_name

        check_name(arguments.output)


def _watched(pages: Iterator[Page], progress: Progress) -> Iterator[Page]:
    try:
        yield from pages
    finally:
        progress.finish()


# --- which keys, which groups ---


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_DECODERS: Mapping[str, Callable[[str], bytes]] = {
    "text": _text,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def _selection(arguments: argparse.Namespace) -> Selection:
    from txbroker.cli.audit.audit import Selection
    from txbroker.cli.audit.latest_versions import HASH_END

    named = bool(arguments.key or arguments.keys_file)
    if arguments.sample is not None:
        if named:
            raise BadUsage("--sample cannot be combined with --key or --keys-file")
        part, of = arguments.sample
        return Selection(HASH_END * part // of)
    if not named:
        return Selection()
    lines = list(arguments.key)
    if arguments.keys_file:
        content = sys.stdin.buffer.read(KEYS_FILE_BYTES_MAX) if arguments.keys_file == "-" else read_bytes(arguments.keys_file)
        lines += [line.removesuffix("\r") for line in content.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")]
    decode = _DECODERS[arguments.key_encoding]
    keys = []
    for line in lines:
        try:
            keys.append(decode(line))
        except (ValueError, binascii.Error):
            raise BadUsage(f"the key {line[:80]!r} is not {arguments.key_encoding}; see --key-encoding") from None
    return Selection(HASH_END, tuple(dict.fromkeys(keys)))


def _committed(arguments: argparse.Namespace) -> Mapping[str, Mapping[int, int]]:
    """The committed offsets of each requested group, by partition."""
    if arguments.log_dir is not None:
        from txbroker.cli.audit.directory_source import committed

        found = committed(_directories(arguments), arguments.topic)
    else:
        found = _committed_at_broker(arguments)
    for group in arguments.group or ():
        if group not in found:
            advice = f"see `txbroker groups --describe --group {group}`"
            raise CommandFailed(f"group {group} has no committed offset for {arguments.topic}; {advice}")
    return {group: found[group] for group in arguments.group or sorted(found)}


def _committed_at_broker(arguments: argparse.Namespace) -> dict[str, dict[int, int]]:
    from txbroker.cli.group_requests import committed_offsets, list_groups

    with clients.administering(arguments) as admin:
        names = arguments.group or [str(row["group"]) for row in list_groups(admin, TIMEOUT_MS)]
        offsets = committed_offsets(admin, names, TIMEOUT_MS)
    return {group: mine for group, found in offsets.items() if (mine := _of_topic(found, arguments.topic))}


def _of_topic(offsets: Mapping[TopicPartition, Any], topic: str) -> dict[int, int]:
    return {partition.partition: offset.offset for partition, offset in offsets.items() if partition.topic == topic}


def _source(arguments: argparse.Namespace) -> Any:
    committed_only = arguments.isolation_level == "read_committed"
    if arguments.log_dir is not None:
        from txbroker.cli.audit.directory_source import DirectoryTopic

        return DirectoryTopic(_directories(arguments), arguments.topic, committed_only)
    from txbroker.cli.audit.broker_source import BrokerTopic

    security = security_of(clients.read_properties(arguments.command_config))
    return BrokerTopic(addresses(arguments.bootstrap_server), arguments.topic, committed_only, security)


def _directories(arguments: argparse.Namespace) -> list[str]:
    return [each.strip() for each in arguments.log_dir.split(",")]


def _sample(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or not 0 < int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"must be a fraction such as 1/1000, not {text!r}")
    return int(found[1]), int(found[2])


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})([kmg]?)b?", text.lower())
    size = int(found[1]) * _SIZES[found[2]] if found else 0
    if size < MEMORY_BYTES_MIN:
        raise argparse.ArgumentTypeError(f"must be a size of at least {size_text(MEMORY_BYTES_MIN)}, such as 512m, not {text!r}")
    return size


# --- output ---


class _Keys:
    """Prints keys: each at once as JSON, or in tables of TABLE_ROWS rows."""

    def __init__(self, topic: str, out: Results) -> None:
        self._topic = topic
        self._out = out
        self._rows: list[Row] = []

    def add(self, page: Page) -> None:
        for at in range(len(page.latest)):
            row = _key_row(page, self._topic, at)
            if self._out.as_json:
                self._out.json(row)
                continue
            self._rows += _flat(row)
            if len(self._rows) >= TABLE_ROWS:
                self.finish()

    def finish(self) -> None:
        if self._rows:
            self._out.rows(_COLUMNS, self._rows)
            self._rows = []


def _key_row(page: Page, topic: str, at: int) -> dict[str, Any]:
    index = int(page.latest[at])
    groups = {
        group: {**_value(page.rows, int(given.row[at])), "unseen": bool(given.unseen[at])} for group, given in page.delivered.items()
    }
    key = json_value(page.rows.key(index))
    return {"topic": topic, "partition": page.partition, "key": key, **_value(page.rows, index), "groups": groups}


def _value(rows: Rows, index: int) -> Row:
    from txbroker.cli.audit.latest_versions import DELETED, VERSIONED

    if index < 0:
        return {"offset": None, "timestamp": None, "version": None, "deleted": None}
    timestamp, flags = int(rows.timestamp[index]), int(rows.flags[index])
    return {
        "offset": int(rows.offset[index]),
        "timestamp": timestamp if timestamp >= 0 else None,
        "version": int(rows.version[index]) if flags & VERSIONED else None,
        "deleted": bool(flags & DELETED),
    }


def _flat(row: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each group."""
    key = row["key"]
    text = key if isinstance(key, str) else f"base64:{key['base64']}"
    groups: dict[str | None, dict[str, Any]] = row["groups"] or {None: {}}
    for group, given in groups.items():
        delivered = {f"delivered_{name}": value for name, value in given.items() if name != "unseen"}
        yield {**row, "key_text": text, "group": group, **delivered, "unseen": given.get("unseen")}


def _finish(out: Results, arguments: argparse.Namespace, summary: Summary) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "group": name,
            "keys": summary.keys,
            "unseen": group.unseen,
            "never_delivered": None if arguments.unseen else group.never,
            "oldest_unseen_ms": None if group.oldest_ms is None else max(now_ms - group.oldest_ms, 0),
        }
        for name, group in summary.groups.items()
    ]
    for key in summary.missing:
        if not arguments.unseen:
            shown = json_value(key)
            warn(f"key {shown if isinstance(shown, str) else key.hex()} is not in {arguments.topic}: it was never written, or was deleted")
    if not out.as_json and rows and not (arguments.summary or arguments.output):
        out.line("")
    out.rows(_SUMMARY, rows)
    keyless = f", {summary.keyless:,} of them without a key" if summary.keyless else ""
    passes = f", in up to {summary.passes} passes per partition" if summary.passes > 1 else ""
    totals = {"topic": arguments.topic, "keys": summary.keys, "records": summary.records, "records_without_key": summary.keyless}
    sentence = f"{amount(summary.keys, 'key')} in {amount(summary.records, 'record')}{keyless}{passes}"
    if arguments.output:
        sentence += f"; written to {arguments.output}"
    out.done(sentence, **totals)
