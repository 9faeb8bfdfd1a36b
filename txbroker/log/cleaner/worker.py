"""The process that cleans: jobs come in on standard input, events go out on standard output, one JSON object a line.

A line `stop` ends the job that is under way. The process ends when its standard input does, at once and wherever it is: whoever gave
it work is gone then, and what is unfinished bears a name that the next start removes.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import IO

from txbroker.log.cleaner.cleaning_job import Event, Failed, FailureKind, job_from_json, to_json
from txbroker.log.disk import OsDisk

NICENESS = 5  # clients are served first


class _Orders:
    """What standard input says, read in a thread of its own."""

    def __init__(self, source: IO[bytes]) -> None:
        self.jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self._source = source

    def read(self) -> None:
        for line in self._source:
            if line == b"stop\n":
                self.stopped.set()
            else:
                # Whoever sends a job has heard the end of the one before: a late `stop` was for that.
                self.stopped.clear()
                self.jobs.put(line.decode())
        os._exit(0)


def _run(line: str, orders: _Orders, report: IO[bytes]) -> None:
    from txbroker.log.cleaner.compaction_pass import run_job

    def tell(event: Event) -> None:
        report.write(to_json(event).encode() + b"\n")
        report.flush()

    try:
        run_job(job_from_json(line), OsDisk(), tell, orders.stopped.is_set, monotonic=time.monotonic, sleep=time.sleep)
    except MemoryError:
        tell(Failed(kind=FailureKind.RESOURCES, reason="there is not enough memory for the map of keys"))
    except BrokenPipeError:
        os._exit(0)
    except Exception:
        # A bug, and no damage to the log: the broker hears of a crash, and tries once more.
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Serve job after job."""
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # they are for the broker, whose end ends this too
    os.nice(NICENESS)
    report = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else gets between the events
    orders = _Orders(sys.stdin.buffer)
    threading.Thread(target=orders.read, daemon=True).start()
    while True:
        _run(orders.jobs.get(), orders, report)


if __name__ == "__main__":
    main()
