"""One cleaning of one partition, as plain values: what a worker is told, and what it reports.

They cross a pipe between processes as one JSON object a line (`to_json`, `job_from_json`, `event_from_json`). The owner of the log makes
the job; a worker reads the segments, writes `.cleaned` files beside them and changes nothing else; the owner swaps them in.
Offsets are exclusive where they are called end; sizes are bytes; times are milliseconds of wall clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple


class Strategy(Enum):
    """Which record of a key stays (KIP-280): the last, the one with the largest timestamp, or the largest version in a header."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


class SegmentSpan(NamedTuple):
    """A closed segment: its offsets are [base_offset, next_offset), where the next one begins.

    `clean_end` is asked for only when a job names what to rewrite: how far the map of keys reached when the segment was rewritten last.
    """

    base_offset: int
    next_offset: int
    size: int
    modified_ms: int
    clean_end: int = 0


class LastRecord(NamedTuple):
    """The last record of a producer that is still active; `data_offset` is -1 when that is a transaction marker."""

    producer_id: int
    producer_epoch: int
    data_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningSettings:
    """The topic's settings and the worker's share of the broker's."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """Clean [first_dirty_offset, first_uncleanable_offset) of a log, and what is before it accordingly.

    `segments`: the closed ones from the log's first up to the last that begins below `first_uncleanable_offset`. `rewrite`: base offsets
    of the clean segments to rewrite (the generational schedule); None: all. A segment is clean when its `clean_end` is at or above its
    `next_offset`; others are always rewritten, and `first_dirty_offset` is not above the `clean_end` of any that is. Tombstones and
    markers stay while what they end may be left in a segment that is not rewritten. `dry`: report records that would go, write nothing.
    """

    directory: str
    topic: str
    partition: int
    segments: tuple[SegmentSpan, ...]
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: tuple[LastRecord, ...]
    now_ms: int
    seed: int
    settings: CleaningSettings
    rewrite: tuple[int, ...] | None = None
    dry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The map of keys covers [first_dirty_offset, end_offset).

    It ends where it is full, or before the first record whose key found no place: `missed_keys` of those wait for the next pass.
    """

    end_offset: int
    keys: int
    missed_keys: int
    records: int
    bytes_read: int
    invalid_headers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Bytes that are read of those that will be."""

    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentYield:
    """What one old segment lost. `obsolete`: records with a later one of their key; `deleted`: tombstones and markers past their time."""

    base_offset: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    obsolete: int
    deleted: int
    aborted: int
    invalid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCleaned:
    """`old_base_offsets` become one segment at `new_base_offset`, whose `.cleaned` files are complete and synced.

    `size` 0: nothing is left of them, and the files are those of an empty segment. There is a `.txnindex.cleaned` only where aborted
    transactions are left.
    """

    old_base_offsets: tuple[int, ...]
    new_base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    yields: tuple[SegmentYield, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removable:
    """Of a dry run: a record that would go. `reason`: obsolete, deleted, aborted, invalid; `kept_offset`: the record that stays, or -1."""

    offset: int
    timestamp: int
    key: bytes | None
    size: int
    reason: str
    kept_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All groups are reported; the log is clean up to `end_offset`."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    seconds: float


class FailureKind(Enum):
    """What is to be done about a failure."""

    CORRUPT = "corrupt"  # the partition is put aside
    STORAGE = "storage"  # the disk failed
    RESOURCES = "resources"  # no memory or descriptors now: again later
    STALE = "stale"  # a file is gone: deleted, truncated or moved meanwhile
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job ended early; its unreported `.cleaned` files are removed."""

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
    raise TypeError(f"{type(value).__name__} is no part of a cleaning")


def to_json(message: CleaningJob | Event) -> str:
    """One line, without the line's end."""
    # Not `asdict`, which copies deeply: of a hundred thousand producers, in the reactor's thread.
    return json.dumps({"message": type(message).__name__, **_fields(message)}, default=_plain)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def job_from_json(line: str) -> CleaningJob:
    """The other way; from our own process, and so trusted."""
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
    """The other way."""
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
