"""What `txbroker spark load` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.spark.dry_run import DryRun
    from txbroker.spark.load import LoadReport
    from txbroker.spark.load_check import CheckedRange


def lines(report: LoadReport) -> Sequence[str]:
    """The report for people: a line a partition, and the totals last."""
    found = [_partition(one) for one in report.checked]
    for one in report.expired:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): expired before it was loaded, skipped")
    for one in report.unchecked:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): loaded by an earlier run, cannot be checked any more")
    for one in report.waiting:
        found.append(f"{one.topic}-{one.partition} [{one.start}, {one.end}): in open transactions, not loaded yet")
    if report.group is not None and report.group.committed:
        found.append(f"group {report.group.group}: the offsets of {amount(report.group.committed, 'partition')} committed")
    if report.compacted:
        found.append(f"{amount(report.compacted, 'small file')} compacted")
    if not report.loaded:
        return [*found, "nothing new"]
    offsets = sum(one.size for one in report.loaded)
    return [*found, f"{amount(report.rows, 'row')} of {amount(offsets, 'offset')} in {amount(len(report.loaded), 'partition')} loaded"]


def _partition(one: CheckedRange) -> str:
    gaps = one.gaps
    counts = {"compacted": gaps.compacted, "aborted": gaps.aborted, "control": gaps.control, "expired": gaps.expired,
              "UNEXPLAINED": gaps.unexplained, "DOUBLED": one.doubled, "undecodable": one.undecodable}
    first = f" (first at {one.first_undecodable}: {one.decode_error})" if one.undecodable else ""
    where = f"{one.range.topic}-{one.range.partition} [{one.range.start}, {one.range.end})"
    return ", ".join([f"{where}: {amount(one.rows, 'row')}", *(f"{count:,} {name}" for name, count in counts.items() if count)]) + first


def _complaint(one: CheckedRange) -> str:
    """What is wrong with a partition, and what to look at."""
    name = f"{one.range.topic}-{one.range.partition}"
    if one.gaps.unexplained:
        return (f"{name}: {amount(one.gaps.unexplained, 'offset')} without a record and without a reason, the first is "
                f"{one.gaps.first_unexplained}; look at the broker's log and its files with `txbroker log verify`")
    if one.doubled:
        return f"{name}: {amount(one.doubled, 'row')} are doubled or outside of [{one.range.start}, {one.range.end})"
    found = f"{amount(one.rows, 'row')} and {amount(one.gaps.total, 'gap')}"
    return f"{name}: {found} are not {amount(one.range.size, 'offset')}; run the load again and report it"


def complaints(report: LoadReport) -> Sequence[str]:
    """What is wrong with the data, and what to look at."""
    found = [_complaint(one) for one in report.wrong]
    if report.too_many_bad:
        values = amount(report.undecodable, "value")
        found.append(f"{values} could not be decoded, more than --max-bad {report.bad_max}; all rows are loaded, and decode_error says why")
    return found


def faults(report: LoadReport) -> Sequence[str]:
    """What the load could not do besides."""
    return [f"the data is loaded, but {report.group.problem}"] if report.group is not None and report.group.problem else []


def planned_lines(planned: DryRun) -> Sequence[str]:
    """The plan for people: a line a partition, and the totals last."""
    found = []
    for one in planned.planned:
        where = f"{one.range.topic}-{one.range.partition} [{one.range.start}, {one.range.end})"
        found.append(f"{where}: {amount(one.range.size, 'offset')}, {amount(one.tasks, 'task')}, {_size(one.bytes)}")
    for gone in planned.expired:
        found.append(f"{gone.topic}-{gone.partition} [{gone.start}, {gone.end}): expired before it was loaded, would be skipped")
    table = f"the {'new ' if planned.new else ''}{planned.format} table {planned.table}"
    if not planned.planned:
        return [*found, f"nothing new for {table}"]
    sizes = [one.bytes for one in planned.planned]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    offsets, tasks = sum(one.range.size for one in planned.planned), sum(one.tasks for one in planned.planned)
    return [*found, f"a load into {table} would read {amount(offsets, 'offset')} in {amount(tasks, 'task')}, {_size(total)}; "
                    "nothing was written"]  # fmt: skip


def _size(count: int | None) -> str:
    return "of unknown size" if count is None else f"about {count / 1e6:,.1f} MB on the broker's disk"
