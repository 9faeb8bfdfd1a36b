"""Deliberate bugs: known mistakes of brokers, each behind a switch that only the simulation can turn.

A bug replaces a function of the broker while it is switched on. `make sim-bugs` requires that the invariants find every one
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from simulation.bugs import (
    access_bugs,
    cleaner_bugs,
    controller_bugs,
    coordinator_bugs,
    log_bugs,
    name_bugs,
    replication_bugs,
    transaction_bugs,
)
from simulation.bugs.patching import Patch, patched


class Bug(NamedTuple):
    """`patches` are made while it is switched on. `why`: what is wrong, for the table in the documentation."""

    why: str
    patches: Callable[[], list[Patch]]


BUGS: dict[str, Bug] = {
    name: Bug((make.__doc__ or "").strip(), make)
    for module in (log_bugs, name_bugs, replication_bugs, controller_bugs, coordinator_bugs, transaction_bugs, cleaner_bugs, access_bugs)
    for name, make in module.BUGS.items()
}


def switched_on(name: str) -> AbstractContextManager[None]:
    """Switch a bug on; none for the empty name. KeyError for an unknown one."""
    return patched(BUGS[name].patches() if name else [])
