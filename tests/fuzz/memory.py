"""The memory that this process or another one has in use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

KIB = 1024


def resident(pid: int | None = None) -> int:
    """Bytes that a process has in memory now."""
    return _status("VmRSS", pid)


def peak(pid: int | None = None) -> int:
    """The peak of a process's memory since `reset_peak`, in bytes."""
    return _status("VmHWM", pid)


def reset_peak(pid: int | None = None) -> None:
    """Reset the peak."""
    Path(f"/proc/{pid or os.getpid()}/clear_refs").write_text("5")


def peak_growth(work: Callable[[], object]) -> int:
    """The peak growth of this process during `work`, in bytes."""
    reset_peak()
    before = resident()
    work()
    return max(peak() - before, 0)


def _status(name: str, pid: int | None) -> int:
    for line in Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * KIB
    raise OSError(f"there is no {name} in /proc/{pid}/status")
