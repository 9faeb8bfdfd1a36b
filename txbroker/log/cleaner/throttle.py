"""Limits the I/O of a worker (`log.cleaner.io.max.bytes.per.second`), and reports its progress."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, Progress

_WAIT_MIN_S = 0.001
REPORT_S_MAX = 0.25  # a throttled worker reports at least this often, as the broker kills workers that report nothing for long


class Stopped(Exception):
    """The job must end now."""


class Throttle:
    """Counts the bytes of a job, sleeps while it is faster than allowed, and ends it when it is stopped.

    `monotonic` and `sleep` are in seconds. `total`: bytes that will be read, for progress reports.
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
        """Seconds since the job began."""
        return self._monotonic() - self._begun

    def count_read(self, count: int) -> None:
        """So many bytes have been read; raises Stopped."""
        self.read += count
        self._report_progress()
        self._wait()

    def count_written(self, count: int) -> None:
        """So many bytes have been written; raises Stopped."""
        self.written += count
        self._wait()

    def _report_progress(self) -> None:
        self._report(Progress(bytes_done=min(self.read, self.total), bytes_total=self.total))

    def _wait(self) -> None:
        while not self._stopped():
            ahead = (self.read + self.written) / self._rate - self.seconds
            if ahead < _WAIT_MIN_S:
                return
            self._sleep(min(ahead, REPORT_S_MAX))
            self._report_progress()
        raise Stopped
