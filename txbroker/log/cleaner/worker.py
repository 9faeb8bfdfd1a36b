"""The worker process of the log cleaner: reads jobs from standard input and writes events to standard output, one JSON object a line.

Before the line of a job come lines with its producers. A line `stop` ends the running job. When its standard input ends, the broker is
gone: the process exits at once, and the next start of the broker removes its unfinished files.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import IO

from txbroker.log.cleaner.cleaning_job import Event, Failed, FailureKind, job_from_json, producers_from_json, to_json
from txbroker.log.os_disk import OsDisk
from txbroker.platform import AUTO, system, use

NICENESS = 5  # the broker has priority


class _Input:
    """Reads standard input, in a thread of its own. `jobs`: the lines of each job; the last one is the job itself."""

    def __init__(self, source: IO[bytes]) -> None:
        self.jobs: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self._source = source

    def read(self) -> None:
        lines: list[str] = []
        for line in self._source:
            if line == b"stop\n":
                self.stopped.set()
                continue
            if not lines:
                # The broker sends a job only after the end of the last one: an earlier `stop` was for that one.
                self.stopped.clear()
            lines.append(line.decode())
            if not line.startswith(b"["):
                self.jobs.put(lines)
                lines = []
        os._exit(0)


def _run(lines: Sequence[str], input_: _Input, report: IO[bytes]) -> None:
    from txbroker.log.cleaner.compaction_pass import run_job

    def send(event: Event) -> None:
        report.write(to_json(event).encode() + b"\n")
        report.flush()

    try:
        *producers, line = lines
        job = replace(job_from_json(line), producers=producers_from_json(producers))
        run_job(job, OsDisk(), send, input_.stopped.is_set, monotonic=time.monotonic, sleep=time.sleep)
    except MemoryError:
        send(Failed(kind=FailureKind.RESOURCES, reason="not enough memory for the map of keys"))
    except BrokenPipeError:
        os._exit(0)
    except Exception:
        # An internal error, and not a damaged log: the broker sees a crash, and tries once more.
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Carry out one job after the other."""
    use(sys.argv[1] if len(sys.argv) > 1 else AUTO)
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the broker handles them; this process ends with it
    system.lower_priority(NICENESS)
    report = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be written between the events
    input_ = _Input(sys.stdin.buffer)
    threading.Thread(target=input_.read, daemon=True).start()
    while True:
        _run(input_.jobs.get(), input_, report)


if __name__ == "__main__":
    main()
