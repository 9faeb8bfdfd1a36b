"""`txbroker log repair`: mend what `verify` finds, and keep beside it what goes."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from txbroker.cli.failures import DONE, FAILED, CommandFailed, warn
from txbroker.cli.log.tool_arguments import add_places, finishing, look, progress, shorten
from txbroker.cli.results import Column, Results, results
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.log.disk import Disk
    from txbroker.logtools.log_paths import Survey
    from txbroker.logtools.repair_plan import Plan, Step
    from txbroker.logtools.verify import Verified

DESCRIPTION = """\
Mend a log directory that no broker has in use: cut a torn tail, take damaged batches out, make indexes, snapshots and leader epochs anew,
bring checkpoints in line.

  txbroker log repair data                 # shows what it would do, and changes nothing
  txbroker log repair data --yes

Nothing is lost: bytes that are cut are kept as NAME.cut-at-POSITION beside the file, those that are taken out of its middle as
NAME.taken-out-at-POSITION, whole files as NAME.set-aside. Brokers ignore them; remove them when nobody needs them any more. Records of
a damaged batch are gone for consumers: where other brokers have replicas of a partition, remove its directory instead, and it is copied.
Exit status: 0 when nothing is wrong (any more), 1 when something is left to do, 2 when a path is no log directory.
"""

COLUMNS = (
    Column("file", "FILE"),
    Column("position", "POSITION"),
    Column("reason", "REASON"),
    Column("repair", "REPAIR"),
)


def add_parser(tools: Any) -> None:
    """Add the tool."""
    parser = tools.add_parser("repair", help="mend what verify finds, and keep what goes", description=DESCRIPTION)
    add_places(parser, files=False)
    parser.add_argument("--yes", action="store_true", help="do it; without this the plan is shown")
    parser.add_argument("--json", action="store_true", help="print the plan, or what was done, as JSON, one object a line")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the plan, or carry it out."""
    from txbroker.errors import CorruptRecords, StorageError
    from txbroker.log.disk import OsDisk
    from txbroker.logtools.repair import Refused, carry_out, lock_all
    from txbroker.logtools.repair_plan import directories_of, make_plan

    logging.getLogger("txbroker").addHandler(logging.NullHandler())  # what the log says of it is said here
    disk, printed = OsDisk(), results(arguments)
    found = look(disk, arguments, files=False)
    try:
        held = lock_all(disk, directories_of(found)) if arguments.yes else []
        try:
            plan = make_plan(found, _verify(disk, found))
            if not arguments.yes:
                return _show(printed, arguments, plan)
            carry_out(disk, plan, lambda sentence: printed.done(sentence, done=sentence))
            again = _verify(disk, look(disk, arguments, files=False))
        finally:
            for lock in held:
                lock.release()
    except Refused as refused:
        raise CommandFailed(str(refused)) from None
    except (StorageError, CorruptRecords) as error:
        raise CommandFailed(f"{error}; see that the disk has room and that you may write there, then repair again") from None
    return _finish(printed, plan, again)


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
    _warn_of_rest(plan)
    count = len(plan.steps)
    steps = f"{amount(count, 'step')}; --yes takes {'it' if count == 1 else 'them'}"
    printed.done(steps if count else "there is nothing to repair", steps=count)
    return FAILED if count or plan.refused or plan.unrepairable else DONE


def _warn_of_rest(plan: Plan) -> None:
    for path, reason in plan.refused:
        warn(f"{path} is left as it is: {reason}")
    for finding in plan.unrepairable:
        warn(f"{finding.path} is left as it is: {finding.problem}")


def _finish(printed: Results, plan: Plan, again: Verified) -> int:
    _warn_of_rest(plan)
    faults = again.findings.faults
    left = f"{amount(faults, 'fault')} {'is' if faults == 1 else 'are'} left; see `txbroker log verify`"
    printed.done(
        left if faults else f"{amount(len(plan.steps), 'step')} taken; no fault is left",
        steps=len(plan.steps),
        faults=faults,
    )
    return FAILED if faults else DONE
