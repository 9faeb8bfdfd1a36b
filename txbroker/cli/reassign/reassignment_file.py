"""The JSON files of `txbroker reassign-partitions`, in the formats of Kafka's class ReassignPartitionsCommand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed
from txbroker.console.input_files import read_json
from txbroker.names import TopicPartition

ANY = "any"  # a log directory that the broker chooses
PARTITIONS_FORMAT = '{"partitions": [{"topic": "hello", "partition": 0, "replicas": [1], "log_dirs": ["/data/2"]}], "version": 1}'
TOPICS_FORMAT = '{"topics": [{"topic": "hello"}], "version": 1}'


class Assignment(NamedTuple):
    """The brokers of a partition, and the log directory at each of them (ANY: whichever)."""

    replicas: Sequence[int]
    log_dirs: Sequence[str]


def read_assignments(path: str) -> dict[TopicPartition, Assignment]:
    """The value of --reassignment-json-file; CommandFailed."""
    content = read_json(path)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or content.get("version", 1) != 1:
        raise CommandFailed(f"{path}: Partition reassignment list cannot be empty; the format is {PARTITIONS_FORMAT}")
    found: dict[TopicPartition, Assignment] = {}
    for entry in entries:
        partition, assignment = _entry(entry, path)
        if partition in found:
            raise CommandFailed(f"{path}: Partition reassignment contains duplicate topic partitions: {partition}")
        found[partition] = assignment
    return found


def _entry(entry: Any, path: str) -> tuple[TopicPartition, Assignment]:
    fields = entry if isinstance(entry, dict) else {}
    topic, index, replicas = (fields.get(key) for key in ("topic", "partition", "replicas"))
    directories = fields.get("log_dirs")
    valid = isinstance(topic, str) and _is_number(index) and isinstance(replicas, list) and all(map(_is_number, replicas))
    if not valid or not (directories is None or (isinstance(directories, list) and all(isinstance(each, str) for each in directories))):
        raise CommandFailed(f"{path} has an invalid entry {str(entry)[:100]}; the format is {PARTITIONS_FORMAT}")
    partition = TopicPartition(str(topic), int(index or 0))
    replicas = list(replicas or ())
    if not replicas:
        raise CommandFailed(f"{path}: Partition replica list cannot be empty: {partition}")
    if len(set(replicas)) < len(replicas):
        raise CommandFailed(f"{path}: Partition replica lists may not contain duplicate entries: {partition}")
    directories = [ANY] * len(replicas) if directories is None else directories
    if len(directories) != len(replicas):
        raise CommandFailed(f"{path}: the list of log_dirs of {partition} must have as many entries as its list of replicas")
    return partition, Assignment(replicas, directories)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def read_topics(path: str) -> list[str]:
    """The value of --topics-to-move-json-file; CommandFailed."""
    content = read_json(path)
    entries = content.get("topics") if isinstance(content, dict) else None
    named = [entry.get("topic") if isinstance(entry, dict) else None for entry in entries] if isinstance(entries, list) else []
    names = [name for name in named if isinstance(name, str)]
    if not names or len(names) < len(named):
        raise CommandFailed(f"{path} has no list of topics; the format is {TOPICS_FORMAT}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise CommandFailed(f"{path}: List of topics to reassign contains duplicate entries: {','.join(repeated)}")
    return names


def as_json(assignments: Mapping[TopicPartition, Assignment]) -> str:
    """Assignments as the content of a file."""
    return json.dumps(document(assignments), separators=(",", ":"))


def document(assignments: Mapping[TopicPartition, Assignment]) -> dict[str, Any]:
    """The same as an object."""
    return {"version": 1, "partitions": [_plain(partition, assignments[partition]) for partition in sorted(assignments)]}


def _plain(partition: TopicPartition, assignment: Assignment) -> dict[str, Any]:
    lists: dict[str, Iterable[Any]] = {"replicas": list(assignment.replicas), "log_dirs": list(assignment.log_dirs)}
    return {"topic": partition.topic, "partition": partition.partition, **lists}
