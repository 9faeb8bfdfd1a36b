"""`txbroker log verify`: checks every file of a log directory and reports the faults."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from txbroker.cli.log.tool_arguments import add_paths, find_logs, finishing, progress, shorten
from txbroker.cli.results import Column, Row, results
from txbroker.console.failures import DONE, FAILED, BadUsage, CommandFailed
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.logtools.findings import Finding
    from txbroker.logtools.verify import Verified

DESCRIPTION = """\
Check the files of a log directory: CRCs, batches, records and offsets, offset, time and transaction indexes, producer snapshots, leader
epochs, topic ids, checkpoints, and unknown or temporary files. Nothing is changed.

  txbroker log verify data
  txbroker log verify data --topic orders --partition 3
  txbroker log verify data/orders-3/00000000000000000000.index

The output has faults, with the steps of txbroker log repair, and notes, which are information. The broker may be running: files that it is
writing are not reported as faults.

Exit status: 0 if there is no fault, 1 if there is one, 2 if a path does not exist or is not a log directory.
"""

COLUMNS = (
    Column("kind", "KIND"),
    Column("file", "FILE"),
    Column("position", "POSITION"),
    Column("problem", "PROBLEM"),
    Column("repair", "REPAIR"),
)


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("verify", help="check every file and report the faults", description=DESCRIPTION)
    add_paths(parser, files=True)
    parser.add_argument("--json", action="store_true", help="print findings as JSON, one object per line, and a summary at the end")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the paths; FAILED if there is a fault."""
    from txbroker.errors import StorageError
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.log_paths import NoLogDirectory
    from txbroker.logtools.verify import verify

    disk = OsDisk()
    found = find_logs(disk, arguments, files=True)
    try:
        with finishing(progress(found.size)) as shown:
            verified = verify(disk, found, shown.add)
    except StorageError as error:
        raise CommandFailed(f"{error}; run this command as a user with read permission") from None
    except NoLogDirectory as error:
        raise BadUsage(str(error)) from None
    report(arguments, verified)
    return FAILED if verified.findings.faults else DONE


def report(arguments: argparse.Namespace, verified: Verified) -> None:
    """Print findings and a summary."""
    printed = results(arguments)
    rows = [_row(arguments, finding) for finding in verified.findings.kept]
    if rows:
        printed.rows(COLUMNS, rows)
    summary = _summary(verified)
    printed.done(_sentence(summary), **summary)


def _row(arguments: argparse.Namespace, finding: Finding) -> Row:
    return {
        "kind": finding.severity.value,
        "file": shorten(finding.path, arguments.paths),
        "position": finding.start,
        "end": finding.end,
        "problem": finding.problem,
        "repair": None if finding.remedy is None else finding.remedy.value,
    }


def _summary(verified: Verified) -> dict[str, Any]:
    partitions = verified.partitions
    return {
        "partitions": len(partitions),
        "segments": sum(len(report.segments) for report in partitions),
        "bytes": sum(report.size for report in partitions),
        "batches": sum(report.batches for report in partitions),
        "records": sum(report.records for report in partitions),
        "faults": verified.findings.faults,
        "left_out": verified.findings.left_out,
    }


def _sentence(summary: dict[str, Any]) -> str:
    def count(key: str, what: str) -> str:
        return amount(summary[key], what)

    content = f"{count('records', 'record')} in {count('batches', 'batch')}, {count('bytes', 'byte')}"
    checked = f"{count('partitions', 'partition')}, {count('segments', 'segment')}, {content}"
    left_out = f" ({count('left_out', 'finding')} not shown)" if summary["left_out"] else ""
    return f"{checked}: {count('faults', 'fault')}{left_out}" if summary["faults"] else f"{checked}: no fault"
