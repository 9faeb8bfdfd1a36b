"""`txbroker log-dirs`: the log directories of brokers, and the partitions in them (Kafka's kafka-log-dirs)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client, numbers
from txbroker.cli.results import Column, Results, Row, results
from txbroker.console.failures import DONE, FAILED, CommandFailed, no_topic, warn
from txbroker.console.texts import size_text
from txbroker.errors import ErrorCode, error_name

DESCRIPTION = """\
Describe the log directories of brokers: the partitions in them, their sizes, and moves between directories.

  txbroker log-dirs --bootstrap-server 127.0.0.1:9092 --describe
  txbroker log-dirs --bootstrap-server 127.0.0.1:9092 --describe --broker-list 1,2 --topic-list hello,orders
"""

COLUMNS = (
    Column("broker", "BROKER"), Column("log_dir", "LOG-DIR"), Column("partition", "PARTITION"), Column("size", "SIZE"),
    Column("offset_lag", "OFFSET-LAG"), Column("future", "FUTURE"),
)  # fmt: skip
NO_SIZE = -1


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("log-dirs", help="describe log directories", description=DESCRIPTION)
    add_client(parser)
    parser.add_argument("--describe", action="store_true", required=True, help="describe the log directories")
    parser.add_argument("--broker-list", type=numbers, metavar="ID,ID...", help="only these brokers (default: all)")
    parser.add_argument("--topic-list", type=names, metavar="NAME,NAME...", help="only partitions of these topics (default: all)")
    parser.set_defaults(command=run)


def names(text: str) -> list[str]:
    """The type of --topic-list."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise argparse.ArgumentTypeError(f"must be comma-separated names, not {text!r}")
    return parts


def run(arguments: argparse.Namespace) -> int:
    """Describe the directories; 1 if one of them is offline."""
    shown = results(arguments)
    with clients.administering(arguments) as admin:
        brokers = _brokers(admin, arguments.broker_list)
        _check_topics(admin, arguments.topic_list)
        found = admin.describe_log_dirs(arguments.topic_list, brokers)
    rows = [_directory(broker["broker"], directory) for broker in found for directory in broker["log_dirs"]]
    if shown.as_json:
        for row in rows:
            shown.json(row)
    elif shown.width is None:
        for line in plain(brokers, rows):
            shown.line(line)
    else:
        _table(shown, rows)
    broken = [row for row in rows if row["error"] is not None]
    for row in broken:
        place = f"log directory {row['log_dir']} of broker {row['broker']}"
        warn(f"{place} is offline ({row['error']}); see the log of the broker, and check the disk")
    return FAILED if broken else DONE


def _brokers(admin: Any, wanted: list[int] | None) -> list[int]:
    known = sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])
    missing = sorted(set(wanted or ()) - set(known))
    if missing:
        there = ",".join(map(str, known))
        raise CommandFailed(f"there is no broker {','.join(map(str, missing))}; the brokers are {there}")
    return known if wanted is None else wanted


def _check_topics(admin: Any, wanted: list[str] | None) -> None:
    """CommandFailed for a missing topic: the broker would not report it."""
    if wanted:
        for topic in admin.describe_topics(wanted):
            if topic["error_code"] != ErrorCode.NONE:
                raise no_topic(topic["name"])


def _directory(broker: int, directory: Mapping[str, Any]) -> Row:
    code = directory["error_code"]
    total, usable = (directory.get(key, NO_SIZE) for key in ("total_bytes", "usable_bytes"))
    partitions = [
        {
            "topic": topic["name"],
            "partition": partition["partition_index"],
            "size": partition["partition_size"],
            "offset_lag": partition["offset_lag"],
            "future": partition["is_future_key"],
        }
        for topic in directory["topics"]
        for partition in topic["partitions"]
    ]
    return {
        "broker": broker,
        "log_dir": directory["log_dir"],
        "error": None if code == ErrorCode.NONE else error_name(code),
        "total_bytes": None if total == NO_SIZE else total,
        "usable_bytes": None if usable == NO_SIZE else usable,
        "partitions": sorted(partitions, key=lambda row: (row["topic"], row["partition"])),
    }


def _table(shown: Results, rows: Iterable[Row]) -> None:
    cells = []
    for row in rows:
        place = {"broker": row["broker"], "log_dir": row["log_dir"]}
        for partition in row["partitions"] or [None]:
            name = f"{partition['topic']}-{partition['partition']}" if partition else None
            sizes = {**partition, "size": size_text(partition["size"])} if partition else {}
            cells.append({**sizes, **place, "partition": name})
    shown.rows(COLUMNS, cells)


def plain(brokers: Sequence[int], rows: Iterable[Row]) -> list[str]:
    """The lines of Kafka's tool, of which the last is a JSON document (class LogDirsCommand)."""
    document = {"brokers": [{"broker": broker, "logDirs": [_kafka(row) for row in rows if row["broker"] == broker]} for broker in brokers]}
    return [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {','.join(map(str, brokers))}",
        json.dumps({**document, "version": 1}, separators=(",", ":")),
    ]


def _kafka(row: Row) -> Row:
    partitions = [
        {
            "partition": f"{partition['topic']}-{partition['partition']}",
            "size": partition["size"],
            "offsetLag": partition["offset_lag"],
            "isFuture": partition["future"],
        }
        for partition in row["partitions"]
    ]
    return {"partitions": partitions, "error": row["error"], "logDir": row["log_dir"]}
