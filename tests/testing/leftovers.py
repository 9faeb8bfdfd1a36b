"""The processes of brokers that tests have started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def brokers_in(directory: Path) -> list[int]:
    """The ids of running brokers with files below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if b"txbroker.testing.server" in arguments and any(each.startswith(str(directory).encode()) for each in arguments):
                found.append(int(process.name))
    return found
