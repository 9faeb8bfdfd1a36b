"""Runs one abuse, and watches the broker's memory and refusals."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.metrics.scraping import ON, Scrape
from tests.overload.abuses import Abuse
from tests.support.broker import BrokerProcess
from tests.support.waiting import PATIENCE_S, until


def broker_for(abuse: Abuse, directory: Path) -> BrokerProcess:
    """A broker with metrics, not started."""
    return BrokerProcess(directory, {**abuse.overrides, **ON})


class Watch:
    """The memory and the refusals of a broker since now."""

    def __init__(self, server: BrokerProcess) -> None:
        self._server = server
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # reset the peak
        self._memory = _peak_mib(server)
        self._counts = _counts(server)

    @property
    def grown_mib(self) -> float:
        """The peak of resident memory minus its value at the start."""
        return _peak_mib(self._server) - self._memory

    def counted(self) -> dict[str, int]:
        """The number of refusals since the start by reason, and `paused`."""
        now = _counts(self._server)
        return {reason: count - self._counts.get(reason, 0) for reason, count in now.items() if count > self._counts.get(reason, 0)}

    def missing(self, abuse: Abuse) -> set[str]:
        """The refusals that an abuse must cause and that are not counted yet."""
        return {*abuse.refusals, *(["paused"] if abuse.paused else [])} - self.counted().keys()


def _peak_mib(server: BrokerProcess) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _counts(server: BrokerProcess) -> dict[str, int]:
    scrape = Scrape(server)
    counts = {reason: int(count) for reason, count in scrape.by("txbroker_refusals_total", "reason").items()}
    return {**counts, "paused": int(scrape("txbroker_reading_paused_total"))}


@contextmanager
def under(abuse: Abuse, server: BrokerProcess) -> Iterator[None]:
    """Runs the abuse in a process; AssertionError when it fails."""
    context = multiprocessing.get_context("spawn")
    started, stop = context.Event(), context.Event()
    process = context.Process(target=abuse.run, args=(server.address, started, stop), daemon=True)
    process.start()
    try:
        until(lambda: started.is_set() or not process.is_alive(), f"{abuse.name} has started")
        yield
        assert process.is_alive(), f"{abuse.name} ended with {process.exitcode}: the broker treated its clients wrongly"
    finally:
        stop.set()
        process.join(PATIENCE_S)
        process.kill()
        process.join()
