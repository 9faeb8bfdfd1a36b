"""Start on an empty directory: seconds to the first answer, memory, and what an idle broker costs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.brokers import CpuMeter, age_seconds, make, rss_mb
from bench.measures import Bench, Figure, Measure, Sample, Settings
from tests.support.server import Server

SETTLE_S = 2.0
IDLE_S = 4.0


@contextmanager
def _start(server: Server, settings: Settings) -> Iterator[Measure]:
    """Brokers of its own, beside the one that is under load in the other benchmarks."""
    directory = server.directory.with_name(f"{server.kind}-start")

    def measure() -> Sample:
        started = make(server.kind, directory)
        try:
            started.start()
            seconds = age_seconds(started.pid)
            time.sleep(SETTLE_S)
            memory = rss_mb(started.pid)
            cpu = CpuMeter(started.pid)
            time.sleep(IDLE_S * settings.scale)
            return {"start": seconds, "memory": memory, "idle CPU": cpu.share() * 1e3}
        finally:
            started.kill()
            shutil.rmtree(directory, ignore_errors=True)

    yield measure


BENCHES = (
    Bench(
        "start",
        "an empty directory, from exec to the first answer; memory after it, and CPU with nothing to do",
        (
            Figure("start", "s", less=True, digits=2, target=0.15),
            Figure("memory", "MB", less=True),
            Figure("idle CPU", "ms a s", less=True, digits=1, target=0.2),
        ),
        _start,
    ),
)
