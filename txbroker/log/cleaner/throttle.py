"""How fast a worker may read and write (`log.cleaner.io.max.bytes.per.second`), and how it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, Progress

_WAIT_MIN_S = 0.001


class Stopped(Exception):
    """The job is to end now."""


class Pace:
    """Counts bytes. Whoever is ahead of the allowed speed sleeps; who is to stop is stopped.

    `monotonic` and `sleep` in seconds. `total`: bytes that will be read, for reports of progress.
    """

    def __init__(
        self,
        job: CleaningJob,
        report: Callable[[Event], None],
        stopped: Callable[[], bool],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.read = 0
        self.written = 0
        self.total = 0
        self._rate = job.settings.io_bytes_per_second
        self._report = report
        self._stopped = stopped
        self._monotonic = monotonic
        self._sleep = sleep
        self._begun = monotonic()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._monotonic() - self._begun

    def took(self, count: int) -> None:
        """So many bytes are read; raises Stopped."""
        self.read += count
        self._report(Progress(bytes_done=min(self.read, self.total), bytes_total=self.total))
        self._wait()

    def wrote(self, count: int) -> None:
        """So many bytes are written; raises Stopped."""
        self.written += count
        self._wait()

    def _wait(self) -> None:
        while not self._stopped():
            ahead = (self.read + self.written) / self._rate - self.seconds
            if ahead < _WAIT_MIN_S:
                return
            self._sleep(min(ahead, 1.0))
        raise Stopped
