"""Checks the files of a data directory: meta.properties, and the checkpoints against the ends of its logs."""

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
from txbroker.names import TopicPartition, partition_directory

CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_MEANINGS = {
    RECOVERY_POINTS: "recovery point",
    LOG_START_OFFSETS: "start offset",
    HIGH_WATERMARKS: "high watermark",
    CLEANER_OFFSETS: "cleaner offset",
}


class Checkpoints:
    """The four offset checkpoints of a directory. They must be read before its logs, which may grow meanwhile."""

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
        """Compare them with the log end offsets. `ends`: of the logs that were read."""
        for name, problem in self.problems.items():
            findings.fault(f"{self._data.path}/{name}", problem, Remedy.REWRITE_CHECKPOINT)
        for name, offsets in self.offsets.items():
            for topic_partition, offset in offsets.items():
                end = ends.get(topic_partition)
                if end is not None and offset > end:
                    problem = f"{topic_partition}: the {_MEANINGS[name]} {offset} is above the log end offset {end}"
                    if name in (RECOVERY_POINTS, HIGH_WATERMARKS):
                        problem += f": the records from offset {end} to {offset - 1} are missing"
                    findings.fault(f"{self._data.path}/{name}", problem, Remedy.REWRITE_CHECKPOINT)

    def check_directories(self, disk: Disk, findings: Findings) -> None:
        """After a clean shutdown every log that has a recovery point has a directory."""
        for topic_partition, offset in self.offsets.get(RECOVERY_POINTS, {}).items():
            path = f"{self._data.path}/{partition_directory(topic_partition)}"
            if offset and not disk.is_directory(path):
                findings.fault(path, f"it is missing: {RECOVERY_POINTS} says that the log had records up to offset {offset - 1}")


def check_directory(data: DataDirectory, findings: Findings) -> None:
    """Check meta.properties, and note who uses the directory."""
    path = f"{data.path}/{meta_properties.FILE_NAME}"
    if data.problem:
        findings.fault(path, data.problem)
    if data.live:
        findings.note(data.path, "a broker is running on it: files that it is writing may look incomplete")
    elif not data.clean:
        findings.note(data.path, "the last broker did not shut down cleanly: the next start recovers its logs")
    if data.kraft:
        findings.note(data.path, f"it belongs to a KRaft node ({data.identity}); the tools only read it")


def readable_offsets(content: bytes) -> dict[TopicPartition, int]:
    """The valid lines of a damaged offset checkpoint."""
    found: dict[TopicPartition, int] = {}
    for line in content.decode("utf-8", "replace").splitlines()[2:]:
        try:
            found.update(parse_offsets(f"0\n1\n{line}\n".encode()))
        except MalformedCheckpoint:
            continue
    return found
