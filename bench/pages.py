"""The free pages of a virtual machine."""

from __future__ import annotations

import mmap
from pathlib import Path


def take_pages(size: int) -> None:
    """Write to `size` bytes of free memory, at most half of what is available, and free them again.

    The host of a virtual machine may take back free memory, and provide it again at the first write to a page. After this most pages are
    there for the next seconds.
    """
    size = min(size, _available() // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def _available() -> int:
    """Bytes that the system, and the control group of a container, leave to this process."""
    available = _system_available()
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
    except OSError:
        return available
    return available if limit == "max" else min(available, int(limit) - int(used))


def _system_available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable; this benchmark needs Linux 3.14 or later")
