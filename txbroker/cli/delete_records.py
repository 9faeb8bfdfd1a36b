"""`txbroker delete-records`: delete the records of partitions before an offset (Kafka's kafka-delete-records)."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import add_client
from txbroker.cli.partition_flags import partitions_of, warn_of_refused
from txbroker.cli.results import Column, Row, results
from txbroker.console.failures import DONE, FAILED, CommandFailed
from txbroker.console.input_files import read_json
from txbroker.errors import ErrorCode, error_name
from txbroker.names import TopicPartition

DESCRIPTION = """\
Delete the records of partitions before an offset, for all consumers. The offset -1 deletes all present records.

  txbroker delete-records --bootstrap-server 127.0.0.1:9092 --offset-json-file offsets.json

The file has this format: {"partitions": [{"topic": "hello", "partition": 0, "offset": 42}], "version": 1}
"""

TIMEOUT_MS = 30_000
SHAPE = '{"partitions": [{"topic": "hello", "partition": 0, "offset": 42}], "version": 1}'
_ADVICE: Mapping[int, str] = {
    ErrorCode.POLICY_VIOLATION: "cleanup.policy of the topic has no delete: add it with "
                                "`txbroker configs --alter --topic NAME --add-config cleanup.policy=[compact,delete]`",
    ErrorCode.OFFSET_OUT_OF_RANGE: "specify an offset up to the high watermark, which `txbroker get-offsets` shows, or -1",
}
COLUMNS = (Column("topic", "TOPIC"), Column("partition", "PARTITION"), Column("low_watermark", "LOW-WATERMARK"), Column("error", "ERROR"))


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("delete-records", help="delete records before an offset", description=DESCRIPTION)
    add_client(parser)
    parser.add_argument("--offset-json-file", required=True, metavar="FILE", help="partitions and offsets, see above")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Delete; 1 if a partition was refused."""
    wanted = read_offsets(arguments.offset_json_file)
    shown = results(arguments)
    if not shown.as_json:
        shown.line("Executing records delete operation")
    with clients.administering(arguments) as admin:
        rows = sorted(_delete(admin, wanted), key=lambda row: (row["topic"], row["partition"]))
    if not shown.as_json:
        shown.line("Records delete operation completed:")
    refused = [row for row in rows if row["error"] is not None]
    shown.rows(COLUMNS if refused else COLUMNS[:-1], rows, _plain)
    codes = ErrorCode.__members__
    failed = {TopicPartition(row["topic"], row["partition"]): codes.get(row["error"], ErrorCode.UNKNOWN_SERVER_ERROR) for row in refused}
    warn_of_refused("nothing was deleted from {}", failed, _ADVICE)
    return FAILED if refused else DONE


def _plain(row: Row) -> str:
    what = f"low_watermark: {row['low_watermark']}" if row["error"] is None else f"error: {row['error']}"
    return f"partition: {row['topic']}-{row['partition']}\t{what}"


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The partitions of an offset file; CommandFailed."""
    content = read_json(path)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or content.get("version", 1) != 1:
        raise CommandFailed(f"{path} has no partitions of version 1; the format is {SHAPE}")
    offsets: dict[TopicPartition, int] = {}
    for entry in entries:
        partition, offset = _entry(entry, path)
        if partition in offsets:
            raise CommandFailed(f"{path} has partition {partition} twice; remove one of the entries")
        offsets[partition] = offset
    return offsets


def _entry(entry: Any, path: str) -> tuple[TopicPartition, int]:
    topic, index, offset = (entry.get(key) if isinstance(entry, dict) else None for key in ("topic", "partition", "offset"))
    whole = [number for number in (index, offset) if isinstance(number, int) and not isinstance(number, bool)]
    if not isinstance(topic, str) or len(whole) != 2 or not 0 <= whole[0] < 2**31 or not -1 <= whole[1] < 2**63:
        raise CommandFailed(f"{path} has an invalid entry {str(entry)[:100]}; the format is {SHAPE}")
    return TopicPartition(topic, whole[0]), whole[1]


def _delete(admin: Any, wanted: Mapping[TopicPartition, int]) -> list[Row]:
    leaders = partitions_of(admin.describe_topics(sorted({partition.topic for partition in wanted})))
    rows: list[Row] = []
    by_leader: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for partition, offset in wanted.items():
        leader = leaders.get(partition)
        if leader is None or leader < 0:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leader is None else ErrorCode.LEADER_NOT_AVAILABLE
            rows.append(_row(partition, None, error))
        else:
            by_leader[leader][partition.topic].append((partition.partition, offset))
    for leader, topics in by_leader.items():
        rows += _delete_at(admin, leader, topics)
    return rows


def _delete_at(admin: Any, leader: int, topics: Mapping[str, list[tuple[int, int]]]) -> list[Row]:
    from kafka.protocol.admin import DeleteRecordsRequest

    response = clients.send(admin, DeleteRecordsRequest(topics=list(topics.items()), timeout_ms=TIMEOUT_MS), leader)
    return [
        _row(TopicPartition(topic.name, answer.partition_index), answer.low_watermark, answer.error_code)
        for topic in response.topics
        for answer in topic.partitions
    ]


def _row(partition: TopicPartition, low_watermark: int | None, code: int) -> Row:
    error = None if code == ErrorCode.NONE else error_name(code)
    found = None if error else low_watermark
    return {"topic": partition.topic, "partition": partition.partition, "low_watermark": found, "error": error}
