"""A data directory's own files: meta.properties, and the checkpoints against the ends of its logs."""

from __future__ import annotations

from collections.abc import Mapping

from txbroker.errors import CorruptRecords
from txbroker.log import meta_properties
from txbroker.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    parse_offsets,
)
from txbroker.log.disk import Disk
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.findings import Findings, Remedy
from txbroker.logtools.log_paths import DataDirectory
from txbroker.names import TopicPartition

CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_MEANINGS = {
    RECOVERY_POINTS: "recovery point",
    LOG_START_OFFSETS: "start offset",
    HIGH_WATERMARKS: "high watermark",
    CLEANER_OFFSETS: "cleaner offset",
}


class Checkpoints:
    """The four offset checkpoints of a directory, read before its logs are: those grow while one looks."""

    def __init__(self, disk: Disk, data: DataDirectory) -> None:
        self._data = data
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        self.problems: dict[str, str] = {}
        for name in CHECKPOINTS:
            try:
                self.offsets[name] = parse_offsets(read_small(disk, f"{data.path}/{name}") or b"")
            except (CorruptRecords, MalformedCheckpoint) as error:
                self.problems[name] = str(error)

    def check(self, ends: Mapping[TopicPartition, int], findings: Findings) -> None:
        """Compare with the end offsets of the logs that were looked at."""
        for name, problem in self.problems.items():
            findings.fault(f"{self._data.path}/{name}", problem, Remedy.REWRITE_CHECKPOINT)
        for name, offsets in self.offsets.items():
            for topic_partition, offset in offsets.items():
                end = ends.get(topic_partition)
                if end is not None and offset > end:
                    problem = f"{topic_partition}: the {_MEANINGS[name]} {offset} is beyond the log's end {end}"
                    findings.fault(f"{self._data.path}/{name}", problem, Remedy.REWRITE_CHECKPOINT)


def check_directory(data: DataDirectory, findings: Findings) -> None:
    """Its identity, and what to know of it."""
    path = f"{data.path}/{meta_properties.FILE_NAME}"
    if data.problem:
        findings.fault(path, data.problem)
    if data.live:
        findings.note(data.path, "a broker holds its lock: what it writes while one looks may seem unfinished")
    elif not data.clean:
        findings.note(data.path, "it was not closed by a clean stop of a broker: the next start reads what may not have reached the disk")
    if data.kraft:
        findings.note(data.path, f"it is of a KRaft node ({data.identity}), and is only read")


def readable_offsets(content: bytes) -> dict[TopicPartition, int]:
    """The lines of a damaged offset checkpoint that can be read."""
    found: dict[TopicPartition, int] = {}
    for line in content.decode("utf-8", "replace").splitlines()[2:]:
        try:
            found.update(parse_offsets(f"0\n1\n{line}\n".encode()))
        except MalformedCheckpoint:
            continue
    return found
