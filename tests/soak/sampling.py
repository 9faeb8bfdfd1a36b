"""The broker process's memory, threads, descriptors and CPU time, sampled every few seconds into a CSV file."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """One sample. `rss_kib`: resident memory; `anonymous_kib`: resident memory without mapped files; `segments`: log files on disk."""

    elapsed_s: float
    rss_kib: int
    anonymous_kib: int
    threads: int
    descriptors: int
    sockets: int
    files: int
    deleted_files: int
    segments: int
    cpu_s: float
    disk_kib: int
    records: int


@dataclass(frozen=True)
class Descriptors:
    """Numbers of open descriptors by kind."""

    total: int
    sockets: int
    files: int
    deleted: tuple[str, ...]


def descriptors(pid: int) -> Descriptors:
    """The process's open descriptors. Deleted files that are still open keep their disk space."""
    folder = f"/proc/{pid}/fd"
    targets = []
    for name in os.listdir(folder):
        try:
            targets.append(os.readlink(f"{folder}/{name}"))
        except FileNotFoundError:
            continue  # was closed
    files = [target for target in targets if target.startswith("/") and not target.startswith("/dev/")]
    deleted = tuple(target for target in files if target.endswith(" (deleted)"))
    return Descriptors(len(targets), sum(target.startswith("socket:") for target in targets), len(files), deleted)


def sample(pid: int, data: Path, elapsed_s: float, records: int) -> Sample:
    """Take a sample from /proc and the data directory."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    found = descriptors(pid)
    disk_kib, segments = _disk(data)
    return Sample(
        elapsed_s=round(elapsed_s, 2), rss_kib=int(status["VmRSS"].split()[0]), anonymous_kib=int(status["RssAnon"].split()[0]),
        threads=int(status["Threads"]), descriptors=found.total, sockets=found.sockets, files=found.files,
        deleted_files=len(found.deleted), segments=segments, cpu_s=(int(ticks[11]) + int(ticks[12])) / _TICK, disk_kib=disk_kib,
        records=records)


def _disk(data: Path) -> tuple[int, int]:
    """KiB on disk, and the number of log files."""
    total = segments = 0
    for folder, _, names in os.walk(data):
        for name in names:
            segments += name.endswith(".log")
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks
            except FileNotFoundError:
                continue  # retention removed it
    return total // 2, segments


class Sampler:
    """Takes samples on a thread, and appends each to the file `path`."""

    def __init__(self, pid: int, data: Path, path: Path, every_s: float, records: Callable[[], int]) -> None:
        self.samples: list[Sample] = []
        self.problem: str | None = None
        self._pid = pid
        self._data = data
        self._path = path
        self._every_s = every_s
        self._records = records
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop taking samples."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        start = time.monotonic()
        with self._path.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow([field.name for field in fields(Sample)])
            while not self._stop.wait(self._every_s):
                try:
                    taken = sample(self._pid, self._data, time.monotonic() - start, self._records())
                except OSError as error:
                    self.problem = f"the broker process cannot be sampled: {error}"
                    return
                self.samples.append(taken)
                lines.writerow(astuple(taken))
                file.flush()


def describe(taken: Sample) -> str:
    """A sample as part of a line of progress."""
    values = asdict(taken)
    return (f"{values['anonymous_kib'] / 1024:.1f} MiB, {values['descriptors']} descriptors ({values['sockets']} sockets), "
            f"{values['threads']} threads, {values['cpu_s']:.0f} s of CPU, {values['disk_kib'] / 1024:.0f} MiB on disk, "
            f"{values['records']} records read")
