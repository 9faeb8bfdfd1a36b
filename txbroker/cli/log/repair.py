"""`txbroker log repair`: repairs the faults that `verify` finds, with backups."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from txbroker.cli.log.tool_arguments import add_paths, find_logs, finishing, progress, shorten
from txbroker.cli.results import Column, Results, results
from txbroker.console.failures import DONE, FAILED, CommandFailed, warn
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.log.disk import Disk
    from txbroker.logtools.log_paths import Survey
    from txbroker.logtools.repair_plan import Plan, Step
    from txbroker.logtools.verify import Verified

DESCRIPTION = """\
Repair the faults that txbroker log verify finds: truncate logs after their last valid batch, remove damaged batches, rebuild indexes,
producer snapshots and leader epochs, and correct checkpoints. No broker may be running on the log directory.

  txbroker log repair data                 # prints the plan, and changes nothing
  txbroker log repair data --yes

Every removed byte is kept in a backup beside the file: NAME.cut-at-POSITION for a truncated end, NAME.taken-out-at-POSITION for bytes from
the middle, NAME.set-aside for a whole file. Brokers ignore backups; delete them when you no longer need them.

Consumers cannot read the records of a removed batch. If other brokers have replicas of the partition, delete its directory instead of
repairing it: the broker then fetches the partition from them.

Exit status: 0 if no fault remains, 1 if a fault remains, 2 if a path is not a log directory.
"""

COLUMNS = (
    Column("file", "FILE"),
    Column("position", "POSITION"),
    Column("reason", "REASON"),
    Column("repair", "REPAIR"),
)


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("repair", help="repair the faults that verify finds, with backups", description=DESCRIPTION)
    add_paths(parser, files=False)
    parser.add_argument("--yes", action="store_true", help="execute the plan; without this flag it is only printed")
    parser.add_argument("--json", action="store_true", help="print the plan and the result as JSON, one object per line")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, or execute it; FAILED if faults remain."""
    from txbroker.errors import CorruptRecords, StorageError
    from txbroker.log.os_disk import OsDisk
    from txbroker.logtools.repair import Refused, carry_out, lock_all
    from txbroker.logtools.repair_plan import directories_of, make_plan

    logging.getLogger("txbroker").addHandler(logging.NullHandler())  # this command prints the same facts
    disk, printed = OsDisk(), results(arguments)
    found = find_logs(disk, arguments, files=False)
    try:
        locks = lock_all(disk, directories_of(found)) if arguments.yes else []
        try:
            plan = make_plan(found, _verify(disk, found))
            if not arguments.yes:
                return _show(printed, arguments, plan)
            carry_out(disk, plan, lambda sentence: printed.done(sentence, done=sentence))
            verified = _verify(disk, find_logs(disk, arguments, files=False))
        finally:
            for lock in locks:
                lock.release()
    except Refused as refused:
        raise CommandFailed(str(refused)) from None
    except (StorageError, CorruptRecords) as error:
        raise CommandFailed(f"{error}; check free space and permissions, then run the repair again") from None
    return _finish(printed, plan, verified)


def _verify(disk: Disk, found: Survey) -> Verified:
    from txbroker.logtools.verify import verify

    with finishing(progress(found.size)) as shown:
        return verify(disk, found, shown.add)


def _show(printed: Results, arguments: argparse.Namespace, plan: Plan) -> int:
    def row(step: Step) -> dict[str, Any]:
        file = shorten(step.path, arguments.paths)
        return {"file": file, "position": step.start, "end": step.end, "reason": step.reason, "repair": step.remedy.value}

    if plan.steps:
        printed.rows(COLUMNS, [row(step) for step in plan.steps])
    _warn_of_unrepaired(plan)
    count = len(plan.steps)
    planned = f"{amount(count, 'step')} planned; specify --yes to execute {'it' if count == 1 else 'them'}"
    printed.done(planned if count else "there is nothing to repair", steps=count)
    return FAILED if count or plan.refused or plan.unrepairable else DONE


def _warn_of_unrepaired(plan: Plan) -> None:
    for path, reason in plan.refused:
        warn(f"{path} is not repaired: {reason}")
    for finding in plan.unrepairable:
        warn(f"{finding.path} cannot be repaired: {finding.problem}")


def _finish(printed: Results, plan: Plan, verified: Verified) -> int:
    _warn_of_unrepaired(plan)
    faults = verified.findings.faults
    executed = f"{amount(len(plan.steps), 'step')} executed"
    remain = f"{amount(faults, 'fault')} {'remains' if faults == 1 else 'remain'}; see `txbroker log verify`"
    printed.done(
        f"{executed}; {remain}" if faults else f"{executed}; no fault remains",
        steps=len(plan.steps),
        faults=faults,
    )
    return FAILED if faults else DONE
