"""The plan of a repair: its steps, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from txbroker.log.file_names import LOG, TXN_INDEX, file_path
from txbroker.logtools.findings import Finding, Remedy, Severity
from txbroker.logtools.log_paths import DataDirectory, PartitionPlace, Survey
from txbroker.logtools.partition_check import PartitionReport
from txbroker.logtools.segment_check import SegmentFacts
from txbroker.logtools.verify import Verified
from txbroker.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `start`, `end`: the bytes to remove from the file."""

    path: str
    remedy: Remedy
    reason: str
    start: int | None = None
    end: int | None = None


@dataclass(slots=True)
class PartitionPlan:
    """The steps in one partition."""

    place: PartitionPlace
    report: PartitionReport
    steps: list[Step] = field(default_factory=list)

    @property
    def damaged(self) -> list[SegmentFacts]:
        """Segments whose log files change."""
        return [segment for segment in self.report.segments if segment.damages]

    def paths(self, remedy: Remedy) -> list[str]:
        """The files with steps of this kind, each once."""
        return list(dict.fromkeys(step.path for step in self.steps if step.remedy is remedy))


@dataclass(slots=True)
class Plan:
    """All steps.

    `refused`: partitions that cannot be repaired now, with the reason. `unrepairable`: faults that a repair cannot repair.
    """

    partitions: list[PartitionPlan] = field(default_factory=list)
    checkpoints: dict[str, list[Step]] = field(default_factory=dict)  # by path
    ends: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)  # of all logs, by data directory and partition
    refused: list[tuple[str, str]] = field(default_factory=list)
    unrepairable: list[Finding] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """Every step."""
        found = [step for plan in self.partitions for step in plan.steps]
        return found + [step for steps in self.checkpoints.values() for step in steps]


UNFINISHED_SWAP = "it has .swap files: start a broker on the directory once, which swaps them in, then repair it"


def make_plan(found: Survey, verified: Verified) -> Plan:
    """The steps that repair the findings."""
    plan = Plan()
    for place, report in zip(found.partitions, verified.partitions, strict=True):
        if place.data is not None:
            plan.ends[place.data.path, place.topic_partition] = report.end_offset
        repaired = PartitionPlan(place, report, _partition_steps(report))
        if repaired.steps and report.swaps:
            plan.refused.append((place.path, UNFINISHED_SWAP))
        elif repaired.steps:
            plan.partitions.append(repaired)
    for finding in verified.findings.kept:
        if finding.remedy is Remedy.REWRITE_CHECKPOINT:
            plan.checkpoints.setdefault(finding.path, []).append(Step(finding.path, finding.remedy, finding.problem))
    plan.unrepairable = [finding for finding in verified.findings.kept if finding.remedy is None and finding.severity is Severity.FAULT]
    return plan


def directories_of(found: Survey) -> list[DataDirectory]:
    """The data directories of all partitions, each once."""
    by_path = {data.path: data for data in found.directories}
    by_path.update({place.data.path: place.data for place in found.partitions if place.data is not None})
    return list(by_path.values())


def _partition_steps(report: PartitionReport) -> list[Step]:
    steps: list[Step] = []
    for segment in report.segments:
        path = file_path(report.directory, segment.base_offset, LOG)
        for damage in segment.damages:
            remedy = Remedy.CUT if damage.end == segment.size else Remedy.TAKE_OUT
            steps.append(Step(path, remedy, damage.problem, damage.start, damage.end))
        if segment.damages:
            reason = "the log file changes"
            steps.append(Step(path, Remedy.REBUILD_INDEXES, reason))
            steps.append(Step(file_path(report.directory, segment.base_offset, TXN_INDEX), Remedy.REBUILD_TXN_INDEX, reason))
    for finding in report.findings.kept:
        if finding.remedy not in (None, Remedy.CUT, Remedy.TAKE_OUT):
            steps.append(Step(finding.path, finding.remedy, finding.problem))
    return steps
