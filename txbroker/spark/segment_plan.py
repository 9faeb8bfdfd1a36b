"""The options of the format `txbroker-segments`, which `segment_source.py` describes, and its tasks: one for each segment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from txbroker.console.failures import CommandFailed
from txbroker.errors import StorageError
from txbroker.log.checkpoints import LOG_START_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.disk import Disk
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.log_paths import NoLogDirectory, PartitionPlace, survey
from txbroker.logtools.partition_files import find_files
from txbroker.names import TopicPartition
from txbroker.spark.segment_rows import COLUMNS, SegmentFile, Wanted
from txbroker.wire.records import INT64_MAX

FORMAT = "txbroker-segments"
OPTIONS = ("path", "topic", "partition", "startingOffset", "endingOffset", "offsets", "startingTimestamp", "endingTimestamp", "columns",
           "isolationLevel", "controlRecords", "damage")  # fmt: skip
_DAMAGE = {"fail": False, "report": True}
_LEVELS = {"read_committed": True, "read_uncommitted": False}
_TRUTH = {"true": True, "false": False}
T = TypeVar("T")
Ranges = Mapping[str, Mapping[str, Sequence[int]]]


def replicas(text: str) -> list[tuple[str, str]]:
    """The names and directories in the option `path`, and in --log-dir."""
    found = []
    for one in text.split(","):
        name, equals, path = one.strip().partition("=")
        if not equals:
            name, path = path or name, name
        if not path.startswith("/") or not name:
            what = "specify absolute paths, comma-separated, each after NAME= if it has a name"
            raise CommandFailed(f"{one.strip()!r} is no log directory: {what}")
        found.append((name, path.rstrip("/") or "/"))
    return found


@dataclass(frozen=True)
class SegmentOptions:
    """The options, checked; CommandFailed."""

    replicas: Sequence[tuple[str, str]]
    topics: Sequence[str]
    partition: int | None
    ranges: Ranges | None
    wanted: Wanted

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SegmentOptions:
        options = {name.lower(): value for name, value in given.items()}
        unknown = sorted(options.keys() - {name.lower() for name in OPTIONS})
        if unknown:
            raise CommandFailed(f"the format {FORMAT} has no option {unknown[0]}; it has {', '.join(OPTIONS)}")
        if not options.get("path"):
            raise CommandFailed(f"the format {FORMAT} needs the option path: the log directories, comma-separated")
        columns = [name.strip() for name in options["columns"].split(",")] if options.get("columns") else list(COLUMNS)
        strange = [name for name in columns if name not in COLUMNS]
        if strange:
            raise CommandFailed(f"there is no column {strange[0]!r}; there are {', '.join(COLUMNS)}")
        wanted = Wanted(
            columns=columns,
            start=_number(options, "startingOffset") or 0,
            end=INT64_MAX if (end := _number(options, "endingOffset")) is None else end,
            time_start=_number(options, "startingTimestamp"),
            time_end=_number(options, "endingTimestamp"),
            committed_only=_choice(options, "isolationLevel", _LEVELS, "read_committed"),
            control=_choice(options, "controlRecords", _TRUTH, "false"),
            report_damage=_choice(options, "damage", _DAMAGE, "fail"),
        )
        topics = [name.strip() for name in options.get("topic", "").split(",") if name.strip()]
        return cls(replicas(options["path"]), topics, _number(options, "partition"), _ranges(options.get("offsets")), wanted)

    def range_of(self, known: TopicPartition, log_start: int) -> tuple[int, int]:
        """The offsets [start, end) to read of a partition."""
        start, end = max(self.wanted.start, log_start), self.wanted.end
        if self.ranges is None:
            return start, end
        first, last = self.ranges.get(known.topic, {}).get(str(known.partition), (0, 0))
        return max(self.wanted.start, first), min(end, last)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CommandFailed(f"{name} is {text!r}; it must be a whole number") from None


def _choice(options: Mapping[str, str], name: str, choices: Mapping[str, T], default: str) -> T:
    text = options.get(name.lower(), default).lower()
    if text not in choices:
        raise CommandFailed(f"{name} is {text!r}; it must be {' or '.join(choices)}")
    return choices[text]


def _ranges(text: str | None) -> Ranges | None:
    if text is None:
        return None
    try:
        found: Ranges = json.loads(text)
        if all(len(one) == 2 and all(type(offset) is int for offset in one) for topic in found.values() for one in topic.values()):
            return found
    except (ValueError, TypeError, AttributeError):
        pass
    raise CommandFailed('offsets must be JSON such as {"orders": {"0": [5, 20]}}')


class Task(NamedTuple):
    """What one task reads."""

    segment: SegmentFile
    wanted: Wanted


def plan(disk: Disk, options: SegmentOptions) -> list[Task]:
    """The tasks, in the order of replica, topic, partition and offset; CommandFailed."""
    tasks: list[Task] = []
    for replica, path in options.replicas:
        try:
            for place in sorted(survey(disk, [path]).partitions, key=lambda place: place.topic_partition):
                if options.topics and place.topic_partition.topic not in options.topics:
                    continue
                if options.partition in (None, place.topic_partition.partition):
                    tasks += _of_place(disk, replica, place, options)
        except NoLogDirectory as error:
            raise CommandFailed(str(error)) from None
        except StorageError as error:
            raise CommandFailed(f"{error}; correct the option path, or mount the directory on the driver and all executors") from None
    return tasks


def _of_place(disk: Disk, replica: str, place: PartitionPlace, options: SegmentOptions) -> list[Task]:
    known = place.topic_partition
    start, end = options.range_of(known, log_start_offset(disk, place))
    if start >= end:
        return []
    wanted = options.wanted._replace(start=start, end=end)
    bases = find_files(disk, place.path).logs
    found = []
    for base, limit in zip(bases, [*bases[1:], None], strict=True):
        if base < end and (limit is None or limit > start):
            segment = SegmentFile(replica, place.path, known.topic, known.partition, base, limit, place.live)
            found.append(Task(segment, wanted))
    return found


def log_start_offset(disk: Disk, place: PartitionPlace) -> int:
    """The log start offset in the checkpoint of a partition's data directory, 0 without one. A running broker may be ahead of it."""
    if place.data is None:
        return 0
    path = f"{place.data.path}/{LOG_START_OFFSETS}"
    try:
        content = read_small(disk, path, SIZE_MAX)
        return parse_offsets(content or b"").get(place.topic_partition, 0)
    except (MalformedCheckpoint, StorageError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}; specify startingOffset, or see `txbroker log verify`") from None
