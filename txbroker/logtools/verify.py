"""`log verify`: checks all files that paths name. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from txbroker.errors import CorruptRecords, StorageError
from txbroker.log import file_names, meta_properties
from txbroker.log.checkpoints import CLEANER_OFFSETS, MalformedCheckpoint, parse_offsets
from txbroker.log.disk import Disk
from txbroker.log.leader_epochs import parse_epochs
from txbroker.log.partition_metadata import read_topic_id
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.directory_check import CHECKPOINTS, Checkpoints, check_directory
from txbroker.logtools.findings import Findings
from txbroker.logtools.kraft_snapshot import check_metadata_snapshot
from txbroker.logtools.log_paths import NoLogDirectory, PartitionPlace, Survey, look_at
from txbroker.logtools.partition_check import PartitionCheck, PartitionReport
from txbroker.logtools.segment_check import Advance
from txbroker.names import TopicPartition


@dataclass(slots=True)
class Verified:
    """The result; `partitions` in the order of the survey."""

    partitions: list[PartitionReport] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)


def verify(disk: Disk, found: Survey, advance: Advance) -> Verified:
    """Check all that a survey found. StorageError when the disk cannot be read."""
    verified = Verified()
    findings = verified.findings
    findings.extend(found.findings.kept)
    checkpoints = []
    for data in found.directories:
        check_directory(data, findings)
        checkpoints.append((data, Checkpoints(disk, data)))
    for place in found.partitions:
        report = check_partition(disk, place, advance)
        verified.partitions.append(report)
        findings.extend(report.findings.kept)
        findings.left_out += report.findings.left_out
    for data, known in checkpoints:
        ends = {
            place.topic_partition: report.end_offset
            for place, report in zip(found.partitions, verified.partitions, strict=True)
            if place.data is data and not report.unread and (report.segments or not place.live)
        }
        known.check(ends, findings)
        if data.clean and not data.live:
            known.check_directories(disk, findings)
    for path in found.files:
        verify_file(disk, path, findings, advance)
    return verified


def check_partition(disk: Disk, place: PartitionPlace, advance: Advance) -> PartitionReport:
    """Check one partition. If it cannot be read, that is a fault of this partition, and the others are checked."""
    try:
        return PartitionCheck(
            disk,
            place.path,
            place.topic_partition,
            live=place.live,
            clean=place.clean,
            advance=advance,
            cleaned=place.data is not None and place.topic_partition in Checkpoints(disk, place.data).offsets.get(CLEANER_OFFSETS, {}),
        ).run()
    except StorageError as error:
        report = PartitionReport(place.path, place.topic_partition, unread=True)
        report.findings.fault(place.path, f"it cannot be checked: {error}")
        return report


def verify_file(disk: Disk, path: str, findings: Findings, advance: Advance) -> None:
    """Check one file; an index is compared with its log file. NoLogDirectory for a file that does not belong to a log directory."""
    directory, _, name = path.rpartition("/")
    parsed = file_names.parse_name(name)
    if parsed is not None and not parsed[2] and parsed[1] in (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT):
        # The whole partition is checked, because a file depends on those before it.
        report = PartitionCheck(
            disk,
            directory,
            TopicPartition(directory.rpartition("/")[2], 0),
            live=look_at(disk, directory.rpartition("/")[0]).live,
            clean=False,
            advance=advance,
        ).run()
        findings.extend(finding for finding in report.findings.kept if finding.path == path)
        return
    if name.endswith(".checkpoint"):
        check_metadata_snapshot(disk, path, findings, advance)
        return
    try:
        content = read_small(disk, path) or b""
        if name == file_names.LEADER_EPOCHS:
            parse_epochs(content)
        elif name == file_names.PARTITION_METADATA:
            read_topic_id(content)
        elif name in CHECKPOINTS:
            parse_offsets(content)
        elif name == meta_properties.FILE_NAME:
            problem = look_at(disk, directory).problem
            if problem:
                findings.fault(path, problem)
        else:
            raise NoLogDirectory(f"{path} is not a file of a log directory that can be verified")
    except (CorruptRecords, MalformedCheckpoint, ValueError) as error:
        findings.fault(path, str(error))
