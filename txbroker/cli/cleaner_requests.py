"""Requests of `txbroker log-cleaner`: the status of the cleaner, and operations on topics, as requests for configurations."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.cleaner_outcome import outcome, sentences
from txbroker.cli.partition_flags import partitions_of, some, with_leaders
from txbroker.cli.results import Column, Results, Row
from txbroker.console.failures import CommandFailed, broker_error, no_topic, warn
from txbroker.console.texts import duration, moment, size_text
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition, amount

TOPIC = 2  # of ConfigResource.Type
SET = 0
STATUS = "txbroker.cleaner"
KEYS_AT_ONCE = 500
# A request that takes longer is sent again, which joins the operation, after its progress is shown.
ASK_AGAIN_MS = 10_000
# Without --wait: time in which the broker refuses an operation if it does.
BEGIN_MS = 2_000

COLUMNS = (
    Column("partition", "PARTITION"), Column("state", "STATE"), Column("dirty", "DIRTY"), Column("last", "LAST-RUN"),
    Column("removed", "REMOVED"), Column("next", "NEXT-RUN"), Column("expected", "TAKES"), Column("why", "WHY-NOT-NOW"),
)  # fmt: skip


class Wanted(NamedTuple):
    """An operation on a topic."""

    topic: str
    key: str
    value: str


class Unanswered(Exception):
    """The response did not arrive in time; the operation continues."""


def describe(admin: Any, shown: Results, topic: str | None) -> None:
    """The status of all partitions of a topic, or of all compacted topics; on a terminal, internal topics only if `topic` names them."""
    found = {topic: False} if topic is not None else {each["name"]: bool(each["is_internal"]) for each in admin.describe_topics()}
    compacted = [name for name in sorted(found) if topic is not None or "compact" in _policy(admin, name)]
    omitted = [name for name in compacted if found[name] and shown.width is not None and not shown.as_json]
    rows = [row for name in compacted if name not in omitted for row in status(admin, name)]
    shown.rows(COLUMNS, rows if shown.as_json else [_cells(row) for row in rows])
    for name in omitted:
        shown.line(f"The internal topic {name} is not shown; use --topic {name} to see it.")


def status(admin: Any, topic: str) -> list[Row]:
    """The status of the partitions of a topic, from their leaders; CommandFailed."""
    described = admin.describe_topics([topic])
    if any(found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for found in described):
        raise no_topic(topic)
    leaders = partitions_of(described)
    return _states(admin, topic, leaders, with_leaders(leaders))


def _states(admin: Any, topic: str, leaders: Mapping[TopicPartition, int], led: Sequence[TopicPartition]) -> list[Row]:
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in led:
        by_leader[leaders[partition]].append(partition)
    found = {key: text for leader, partitions in by_leader.items() for key, text in _leader_status(admin, topic, leader, partitions)}
    if by_leader and not found:
        raise CommandFailed(f"the broker does not report the status of the cleaner for {topic}; this needs txbroker as the broker")
    without = [each for each in leaders if leaders[each] >= 0 and f"{STATUS}.{each.partition}" not in found]
    if without:
        warn(f"no status of {some(without)}: the log is in an offline directory; see `txbroker log-dirs --describe`")
    rows = [(partition, json.loads(text)) for partition in leaders if (text := found.get(f"{STATUS}.{partition.partition}"))]
    return [{"topic": topic, "partition": partition.partition, **state} for partition, state in rows]


def _leader_status(admin: Any, topic: str, leader: int, partitions: Sequence[TopicPartition]) -> Iterator[tuple[str, str]]:
    for at in range(0, len(partitions), KEYS_AT_ONCE):
        keys = [f"{STATUS}.{partition.partition}" for partition in partitions[at : at + KEYS_AT_ONCE]]
        yield from _described(admin, topic, keys, leader).items()


def _policy(admin: Any, topic: str) -> str:
    return _described(admin, topic, ["cleanup.policy"], None).get("cleanup.policy", "")


def _described(admin: Any, topic: str, keys: Sequence[str], node_id: int | None) -> dict[str, str]:
    from kafka.protocol.admin import DescribeConfigsRequest

    (found,) = clients.send(admin, DescribeConfigsRequest(resources=[(TOPIC, topic, list(keys))], min_version=1), node_id).results
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {}  # deleted meanwhile
    if found.error_code != ErrorCode.NONE:
        raise broker_error(f"topic {topic} cannot be described", found.error_code, found.error_message)
    return {config.name: config.value for config in found.configs if config.value is not None}


def _cells(row: Row) -> Row:
    last = row.get("last")
    removed = None if last is None else f"{amount(last['records_removed'], 'record')}, {size_text(last['bytes_freed'])}"
    return {
        "partition": f"{row['topic']}-{row['partition']}",
        "state": _state(row),
        "dirty": f"{row['dirty_ratio']:.2f}",
        "last": None if row["last_ms"] is None else moment(row["last_ms"]),
        "removed": removed,
        "next": None if row["next_run_ms"] is None else moment(row["next_run_ms"]),
        "expected": None if row["expected_s"] is None else duration(round(row["expected_s"] * 1000)),
        "why": row["why_not_now"],
    }


def _state(row: Mapping[str, Any]) -> str:
    if row["progress"] is None or not row["progress"][1]:
        return str(row["state"])
    done, total = row["progress"]
    return f"{row['state']} {100 * done // total} %"


def perform(arguments: argparse.Namespace, shown: Results, wanted: Wanted, *, wait: bool) -> None:
    """Have the leaders of the topic's partitions perform the operation; CommandFailed."""
    with clients.administering(arguments) as admin:
        described = admin.describe_topics([wanted.topic])
        if any(found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for found in described):
            raise no_topic(wanted.topic)
        leaders = partitions_of(described)
        led = with_leaders(leaders)
        nodes = sorted({leaders[partition] for partition in led})
        for node in nodes:
            _alter(admin, wanted, node, validate_only=True)
        compacting = wanted.key == "txbroker.compact"
        before = {row["partition"]: row for row in _states(admin, wanted.topic, leaders, led)} if compacting else {}
    what = "compacted" if compacting else "expired"
    for node in nodes:
        while True:
            try:
                _request(arguments, wanted, node, ASK_AGAIN_MS if wait else BEGIN_MS)
                break
            except Unanswered:
                if not wait:
                    begun = f"Topic {wanted.topic} is being {what}; see `txbroker log-cleaner --describe --topic {wanted.topic}`."
                    shown.done(begun, topic=wanted.topic, operation=wanted.key, value=wanted.value, done=False)
                    return
                _show_progress(arguments, wanted.topic)
                wanted = wanted._replace(value="now")  # the active segments are closed already
    row = {"topic": wanted.topic, "operation": wanted.key, "value": wanted.value, "done": True}
    if not compacting:
        shown.done(f"The expired records of topic {wanted.topic} are deleted.", **row)
        return
    with clients.administering(arguments) as admin:
        partitions = outcome(before, _states(admin, wanted.topic, leaders, led))
    shown.either({**row, "partitions": partitions}, lambda: sentences(wanted.topic, partitions))


def _request(arguments: argparse.Namespace, wanted: Wanted, node: int, timeout_ms: int) -> None:
    """One request on its own connection; Unanswered."""
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError

    properties = clients.read_properties(arguments.command_config)
    flags = {"request_timeout_ms": timeout_ms}
    with clients.connected("KafkaAdminClient", arguments.bootstrap_server, properties, flags=flags, notices=False) as admin:
        try:
            _alter(admin, wanted, node, validate_only=False)
        except (RequestTimedOutError, KafkaTimeoutError, KafkaConnectionError):
            raise Unanswered from None


def _alter(admin: Any, wanted: Wanted, node: int, *, validate_only: bool) -> None:
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    resources = [(TOPIC, wanted.topic, [(wanted.key, SET, wanted.value)])]
    (answer,) = clients.send(admin, IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only), node).responses
    if answer.error_code != ErrorCode.NONE:
        done = "compacted" if wanted.key == "txbroker.compact" else "expired"
        raise broker_error(f"topic {wanted.topic} was not {done}", answer.error_code, answer.error_message)


def _show_progress(arguments: argparse.Namespace, topic: str) -> None:
    """Print the progress on a terminal."""
    if not sys.stderr.isatty():
        return
    with clients.administering(arguments) as admin:
        under_way = [f"{topic}-{row['partition']}: {_state(row)}" for row in status(admin, topic) if row["progress"] is not None]
    if under_way:
        print("; ".join(under_way), file=sys.stderr)
