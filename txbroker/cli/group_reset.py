"""`txbroker groups --reset-offsets`: new committed offsets of groups (Kafka's command --reset-offsets)."""

from __future__ import annotations

import argparse
import csv
import io
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from txbroker.cli.group_requests import Group, commit_offsets, committed_offsets, describe_groups
from txbroker.cli.partition_flags import EARLIEST, LATEST, UNKNOWN_OFFSET, list_offsets, partitions_of, warn_of_refused
from txbroker.cli.results import Column, Results, Row
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed, broker_error, no_topic, warn
from txbroker.console.input_files import read_text
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

RESETTABLE = ("Empty", "Dead")
COLUMNS = (
    Column("group", "GROUP", 15), Column("topic", "TOPIC", 15), Column("partition", "PARTITION", 10), Column("new_offset", "NEW-OFFSET"),
)  # fmt: skip

_DURATION = re.compile(r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.I)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LARGEST = 10**12  # seconds: more than any log spans, and its milliseconds fit into 64 bits

Offsets = Mapping[TopicPartition, int]


def duration_ms(text: str) -> int:
    """The type of --by-duration: days, hours, minutes and seconds of ISO 8601, as in Java's Duration (P7D, PT1H30M)."""
    found = _DURATION.fullmatch(text)
    parts = {unit: float(number) for unit, number in found.groupdict().items() if number} if found else {}
    if not parts or sum(number * _SECONDS[unit] for unit, number in parts.items()) > _LARGEST:
        raise argparse.ArgumentTypeError(f"must be a duration like P7D, PT12H or P1DT2H30M5S, not {text!r}")
    return int(1000 * sum(number * _SECONDS[unit] for unit, number in parts.items()))


def datetime_ms(text: str) -> int:
    """The type of --to-datetime: milliseconds since 1970 of a date and time of ISO 8601, in UTC unless it has a zone."""
    try:
        if "T" not in text.upper():
            raise ValueError(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a date and time like 2026-01-31T18:00:00.000, with Z or +01:00, not {text!r}") from None
    try:
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(f"must be a date and time after 1970, not {text!r}") from None


def topic_partitions(specs: Sequence[str], topics: Callable[[list[str]], Iterable[Mapping[str, Any]]]) -> list[TopicPartition]:
    """The partitions of --topic flags: `topic`, or `topic:0,1`. BadUsage; CommandFailed if one does not exist."""
    wanted: dict[str, list[int] | None] = {}
    for spec in specs:
        name, colon, numbers = spec.partition(":")
        parts = [part.strip() for part in numbers.split(",")]
        if not name or (colon and not all(part.isascii() and part.isdecimal() for part in parts)):
            raise BadUsage(f"--topic is {spec!r}; it must be a topic, or a topic with partitions like topic:0,1")
        wanted[name] = [*(wanted.get(name) or []), *map(int, parts)] if colon else None
    there = _partitions(topics, sorted(wanted))
    chosen = [partition for partition in there if (numbers_ := wanted[partition.topic]) is None or partition.partition in numbers_]
    missing = sorted({TopicPartition(name, number) for name, numbers_ in wanted.items() for number in numbers_ or ()} - set(chosen))
    if missing:
        raise CommandFailed(f"there is no partition {', '.join(map(str, missing))}; see `txbroker topics --describe`")
    return chosen


def _partitions(topics: Callable[[list[str]], Iterable[Mapping[str, Any]]], names: list[str]) -> list[TopicPartition]:
    described = list(topics(names))
    for topic in described:
        if topic["error_code"] != ErrorCode.NONE:
            raise no_topic(topic["name"])
    return list(partitions_of(described))


def read_plan(text: str, path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """The offsets of a file in the format of --export: topic,partition,offset for a single group, or group,topic,partition,offset."""
    plan: dict[str, dict[TopicPartition, int]] = {}
    for number, fields in enumerate(csv.reader(io.StringIO(text)), 1):
        if not fields:
            continue
        try:
            group = fields[-4] if len(fields) == 4 else groups[0] if len(groups) == 1 and len(fields) == 3 else None
            topic, partition, offset = fields[-3], int(fields[-2]), int(fields[-1])
        except (ValueError, IndexError):
            group = None
        if group is None or partition < 0 or offset < 0:
            raise CommandFailed(f"line {number} of {path} is neither topic,partition,offset nor group,topic,partition,offset")
        if group not in groups:
            raise CommandFailed(f"line {number} of {path} is for group {group}; specify it with --group, or remove the line")
        plan.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    if not plan:
        raise CommandFailed(f"{path} has no offsets; create it with --export")
    return plan


def clamp(wanted: Offsets, first: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Offsets within the logs, with a warning for each one that was not."""
    found = {}
    for partition, offset in wanted.items():
        found[partition] = max(min(offset, end[partition]), first[partition])
        if found[partition] != offset:
            than = "higher than the latest" if offset > end[partition] else "lower than the earliest"
            warn(f"New offset ({offset}) is {than} offset for topic partition {partition}. Value will be set to {found[partition]}.")
    return found


class Resetter:
    """Computes new offsets by the flags."""

    def __init__(self, admin: Any, arguments: argparse.Namespace) -> None:
        self._admin = admin
        self._arguments = arguments

    def plan(self, groups: Sequence[Group]) -> dict[str, dict[TopicPartition, int]]:
        """New offsets by group; CommandFailed."""
        arguments = self._arguments
        names = [group.name for group in groups]
        if arguments.from_file:
            plan = read_plan(read_text(arguments.from_file), arguments.from_file, names)
            _partitions(self._admin.describe_topics, sorted({partition.topic for offsets in plan.values() for partition in offsets}))
            return {name: self._inside(offsets) for name, offsets in plan.items()}
        committed = committed_offsets(self._admin, names, arguments.timeout)
        chosen = None if arguments.all_topics else topic_partitions(arguments.topic, self._admin.describe_topics)
        return {name: self._offsets(list(committed[name]) if chosen is None else chosen, committed[name]) for name in names}

    def _offsets(self, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        arguments = self._arguments
        if arguments.to_earliest:
            return self._at(partitions, EARLIEST)
        if arguments.to_latest:
            return self._at(partitions, LATEST)
        if arguments.to_offset is not None:
            return self._inside(dict.fromkeys(partitions, arguments.to_offset))
        if arguments.shift_by is not None:
            for partition in partitions:
                if partition not in committed:
                    raise CommandFailed(f"there is no committed offset of partition {partition} to shift; use --to-offset or another flag")
            return self._inside({partition: committed[partition].offset + arguments.shift_by for partition in partitions})
        if arguments.to_datetime is not None:
            return self._since(partitions, arguments.to_datetime)
        if arguments.by_duration is not None:
            return self._since(partitions, max(int(time.time() * 1000) - arguments.by_duration, 0))
        ends = self._at([partition for partition in partitions if partition not in committed], LATEST)
        return {partition: committed[partition].offset if partition in committed else ends[partition] for partition in partitions}

    def _at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return {partition: found.offset for partition, found in sorted(list_offsets(self._admin, partitions, timestamp).items())}

    def _inside(self, wanted: Offsets) -> dict[TopicPartition, int]:
        partitions = list(wanted)
        return clamp(wanted, self._at(partitions, EARLIEST), self._at(partitions, LATEST))

    def _since(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        found = self._at(partitions, timestamp_ms)
        later = [partition for partition, offset in found.items() if offset == UNKNOWN_OFFSET]
        for partition in later:
            warn(f"Partition {partition.partition} of topic {partition.topic} has no record since then. Falling back to its latest offset.")
        return {**found, **self._at(later, LATEST)}


def reset(admin: Any, names: Sequence[str], arguments: argparse.Namespace, shown: Results) -> int:
    """Print new offsets, and commit them with --execute. FAILED if a group is in use, or a commit is refused."""
    status = DONE
    groups = []
    for group in describe_groups(admin, names, arguments.timeout):
        if group.missing or group.state in RESETTABLE:
            groups.append(group)
            continue
        if group.error is not None:
            raise broker_error(f"group {group.name} cannot be described", *group.error)
        status = FAILED
        warn(f"Assignments can only be reset if the group '{group.name}' is inactive, but the current state is {group.state}; "
             "stop its members first")  # fmt: skip
    if not groups:
        return status
    plan = Resetter(admin, arguments).plan(groups)
    if arguments.execute:
        refused = {group: _commit(admin, group, offsets) for group, offsets in plan.items()}
        plan = {group: {partition: offset for partition, offset in offsets.items() if partition not in refused[group]}
                for group, offsets in plan.items()}  # fmt: skip
        status = FAILED if any(refused.values()) else status
    elif not arguments.dry_run:
        warn("WARN: No action will be performed as the --execute option is missing; use --dry-run to hide this warning.")
    rows = [
        {"group": group, "topic": partition.topic, "partition": partition.partition, "new_offset": offset}
        for group, offsets in plan.items()
        for partition, offset in sorted(offsets.items())
    ]
    _show(shown, rows, arguments, len(names) == 1)
    return status


def _commit(admin: Any, group: str, offsets: Offsets) -> set[TopicPartition]:
    """Commit; the partitions that are refused, after warnings about them."""
    refused = commit_offsets(admin, group, offsets)
    warn_of_refused(f"the offset of group {group} was not set for {{}}", refused)
    return set(refused)


def _show(shown: Results, rows: Sequence[Row], arguments: argparse.Namespace, single: bool) -> None:
    if arguments.export:
        writer = csv.writer(_Lines(shown), lineterminator="")
        for row in rows:
            writer.writerow([row[key] for key in ("group", "topic", "partition", "new_offset") if not (single and key == "group")])
        return
    if not shown.as_json:
        shown.line("")
    shown.rows(COLUMNS, [{**row, "executed": bool(arguments.execute)} for row in rows])


class _Lines:
    """The file of a csv writer; prints each row."""

    def __init__(self, shown: Results) -> None:
        self._shown = shown

    def write(self, text: str) -> None:
        """Print a row."""
        self._shown.line(text)
