"""The job of one pass over one partition, and the events that a worker reports. Plain values.

They cross a pipe between processes as JSON, one object a line (`to_json`, `job_from_json`, `event_from_json`). A log may have hundreds of
thousands of producers: they are sent before their job, some in each line (`producer_lines`). The owner of the log makes the job. The
worker reads segments and writes `.cleaned` files beside them; the owner swaps these in.
An offset that is called end is exclusive. Sizes are bytes, times are milliseconds of wall clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from txbroker.lazy_dataclass import lazy_dataclass

PRODUCERS_PER_LINE = 1000  # about a millisecond


class Strategy(Enum):
    """Which record of a key stays (KIP-280): the last one, the one with the largest timestamp, or with the largest version in a header."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


class SegmentSpan(NamedTuple):
    """A closed segment with the offsets [base_offset, next_offset); the next segment begins at `next_offset`.

    `clean_end`: the end of the map when the segment was last rewritten. It is used only in jobs with `rewrite`.
    """

    base_offset: int
    next_offset: int
    size: int
    modified_ms: int
    clean_end: int = 0


class LastRecord(NamedTuple):
    """The end of a batch that an active producer may send again, or of its last one; -1 if only a transaction marker is known."""

    producer_id: int
    producer_epoch: int
    data_offset: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class CleaningSettings:
    """The topic's settings, and the worker's share of the broker's memory and bandwidth."""

    strategy: Strategy = Strategy.OFFSET
    header: str = ""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    max_message_bytes: int
    map_bytes: int
    load_factor: float
    io_buffer_bytes: int
    io_bytes_per_second: float


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """Clean the offsets [first_dirty_offset, first_uncleanable_offset) of a log, and remove what they make obsolete before them.

    `segments`: all closed segments that begin below `first_uncleanable_offset`. `rewrite`: base offsets of the clean segments to rewrite
    (the generational schedule); None: all. A segment is clean when its `clean_end` is at or above its `next_offset`; others are always
    rewritten. `first_dirty_offset` is at or below the `clean_end` of each segment that is rewritten. Tombstones and markers stay while
    the records that they delete or end may be in a segment that is not rewritten. `producers`: empty as long as a broker has the job;
    the worker adds them. `dry`: report removable records and write nothing.
    """

    directory: str
    topic: str
    partition: int
    segments: tuple[SegmentSpan, ...]
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: tuple[LastRecord, ...] = ()
    now_ms: int
    seed: int
    settings: CleaningSettings
    rewrite: tuple[int, ...] | None = None
    dry: bool = False


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The map of keys is complete. It covers [first_dirty_offset, end_offset).

    It ends where it is full, or before the first record whose key found no place in it: the next pass cleans those `missed_keys`.
    """

    end_offset: int
    keys: int
    missed_keys: int
    records: int
    bytes_read: int
    invalid_headers: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Bytes read, and bytes that the pass reads in all."""

    bytes_done: int
    bytes_total: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SegmentYield:
    """What was removed from one old segment. `obsolete`: replaced records; `deleted`: tombstones and markers past their delete horizon."""

    base_offset: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    obsolete: int
    deleted: int
    aborted: int
    invalid: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class GroupCleaned:
    """The segments `old_base_offsets` become one at `new_base_offset`. Its `.cleaned` files are complete and synced.

    `size` 0: no record is left, and the files are those of an empty segment. There is a `.txnindex.cleaned` only with aborted transactions.
    """

    old_base_offsets: tuple[int, ...]
    new_base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    yields: tuple[SegmentYield, ...]


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Removable:
    """A record that a dry run would remove. `reason`: obsolete, deleted, aborted or invalid; `kept_offset`: which record stays, or -1."""

    offset: int
    timestamp: int
    key: bytes | None
    size: int
    reason: str
    kept_offset: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a successful job: all groups are reported, and the log is clean up to `end_offset`."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    seconds: float


class FailureKind(Enum):
    """Kinds of failures, by how the broker handles them."""

    CORRUPT = "corrupt"  # the partition becomes uncleanable
    STORAGE = "storage"  # the disk failed
    RESOURCES = "resources"  # not enough memory, descriptors or disk space: retry later
    STALE = "stale"  # a file was deleted, truncated or moved during the job
    STOPPED = "stopped"


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The end of a job that failed. Its `.cleaned` files that were not reported are removed."""

    kind: FailureKind
    reason: str


Event = Mapped | Progress | GroupCleaned | Removable | Done | Failed
_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Mapped, Progress, GroupCleaned, Removable, Done, Failed)}


def _plain(value: Any) -> Any:
    """Enums by their values, bytes as hexadecimal digits."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return _fields(value)
    raise TypeError(f"{type(value).__name__} is not a part of a job or an event")


def to_json(message: CleaningJob | Event) -> str:
    """One line without its end."""
    return json.dumps({"message": type(message).__name__, **_fields(message)}, default=_plain)


def producer_lines(producers: Iterator[LastRecord]) -> Iterator[str]:
    """The lines, without their ends, that come before the line of a job. Each is made when it is asked for."""
    while some := list(islice(producers, PRODUCERS_PER_LINE)):
        yield json.dumps(some)


def producers_from_json(lines: Iterable[str]) -> tuple[LastRecord, ...]:
    """The producers in these lines."""
    return tuple(LastRecord(*last) for line in lines for last in json.loads(line))


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def job_from_json(line: str) -> CleaningJob:
    """The job in a line, which may have producers of its own. It comes from the broker's own process and is trusted."""
    content = json.loads(line)
    del content["message"]
    settings = content.pop("settings")
    settings["strategy"] = Strategy(settings["strategy"])
    content["segments"] = tuple(SegmentSpan(*span) for span in content["segments"])
    content["producers"] = tuple(LastRecord(*last) for last in content["producers"])
    if content["rewrite"] is not None:
        content["rewrite"] = tuple(content["rewrite"])
    return CleaningJob(settings=CleaningSettings(**settings), **content)


def event_from_json(line: str) -> Event:
    """The event in a line; ValueError, KeyError or TypeError when it is not one."""
    content = json.loads(line)
    kind = _EVENTS[content.pop("message")]
    if kind is GroupCleaned:
        content["old_base_offsets"] = tuple(content["old_base_offsets"])
        content["yields"] = tuple(SegmentYield(**one) for one in content["yields"])
    elif kind is Removable and content["key"] is not None:
        content["key"] = bytes.fromhex(content["key"])
    elif kind is Failed:
        content["kind"] = FailureKind(content["kind"])
    made: Event = kind(**content)
    return made
