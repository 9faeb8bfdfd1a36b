"""CPU time and memory of a process and of all processes that it has started, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Fields of /proc/PID/stat after the command: user and system time of the process, and of its children that have ended.
_USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM, _STARTED = 11, 12, 13, 14, 19


def tree(pid: int) -> list[int]:
    """The process and its descendants that are running."""
    found = [pid]
    for one in found:  # grows while it is read
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):  # the process or the thread has ended
                found += map(int, path.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the whole tree."""
    return sum(cpu_times(pid))


def cpu_times(pid: int) -> tuple[float, float]:
    """User time and system time of the whole tree, in seconds."""
    return _sum(pid, lambda one: _ticks(one, _USER, _ENDED_USER)), _sum(pid, lambda one: _ticks(one, _SYSTEM, _ENDED_SYSTEM))


def rss_mb(pid: int) -> float:
    """Resident memory of the whole tree in megabytes."""
    return _sum(pid, _rss_mb)


def age_seconds(pid: int) -> float:
    """The age of a process, in hundredths of a second."""
    with open("/proc/uptime") as file:
        return float(file.read().split()[0]) - _ticks(pid, _STARTED)


def _sum(pid: int, value: Callable[[int], float]) -> float:
    """The values of the process, which must be running, and of its descendants."""
    total = value(pid)
    for one in tree(pid)[1:]:
        with suppress(OSError):  # it has ended: its CPU time is now its parent's
            total += value(one)
    return total


def _ticks(pid: int, *fields: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        values = file.read().rpartition(")")[2].split()
    return sum(int(values[field]) for field in fields) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class CpuMeter:
    """CPU seconds of the tree of a process from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu = cpu_seconds(pid)
        self._since = time.perf_counter()

    def seconds(self) -> float:
        return cpu_seconds(self._pid) - self._cpu

    def share(self) -> float:
        """The number of cores used."""
        return self.seconds() / (time.perf_counter() - self._since)
