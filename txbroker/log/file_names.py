"""The names of the files in a partition's directory (Kafka's LogFileUtils).

A segment's files are named by its base offset in 20 digits, a `.snapshot` by its offset. A further suffix marks files that a crash may
leave: `.deleted` waits to be removed, `.cleaned` was being written by the log cleaner, `.swap` is complete and replaces older
segments.
"""

from __future__ import annotations

import re

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
INDEX_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.[a-z]+)?)")


def parent_of(path: str) -> str:
    """The directory that has the name of a file or directory: what a sync must make durable for the name to be."""
    return path.rpartition("/")[0] or "/"


def file_path(directory: str, offset: int, suffix: str) -> str:
    """The path of one of a segment's files, or of a snapshot."""
    return f"{directory}/{offset:020d}{suffix}"


def parse_name(name: str) -> tuple[int, str, str] | None:
    """A name as (offset, suffix, mark); None for other files. The mark is "" for files in use."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None
    offset = int(match.group(1))
    return (offset, match.group(2), match.group(3)) if offset < 2**63 else None
