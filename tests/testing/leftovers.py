"""The processes of brokers that tests have started."""

from __future__ import annotations

import contextlib
from pathlib import Path

PROGRAMS = frozenset({b"txbroker.testing.server", b"txbroker.testing.cluster_server"})


def brokers_in(directory: Path) -> list[int]:
    """The ids of running brokers with files below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if PROGRAMS.intersection(arguments) and any(each.startswith(str(directory).encode()) for each in arguments):
                found.append(int(process.name))
    return found
