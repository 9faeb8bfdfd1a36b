"""The worker process, with its pipes connected to the test."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from tests.cleaner.logs import NOW, LogMaker
from tests.support.waiting import PATIENCE_S
from txbroker.cleaner_process import worker_command
from txbroker.log.cleaner.cleaning_job import (
    PRODUCERS_PER_LINE,
    Done,
    Event,
    GroupCleaned,
    LastRecord,
    Mapped,
    event_from_json,
    producer_lines,
    to_json,
)


@contextmanager
def started_worker() -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str], IO[str]]]:
    """A worker process, its standard input, output and error."""
    worker = subprocess.Popen(worker_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    with worker.stdin, worker.stdout, worker.stderr:
        yield worker, worker.stdin, worker.stdout, worker.stderr


def until_done(output: IO[str]) -> list[Event]:
    events: list[Event] = []
    while not (events and isinstance(events[-1], Done)):
        events.append(event_from_json(output.readline()))
    return events


def test_producers_are_read_from_the_lines_before_a_job(tmp_path: Path) -> None:
    """The last batch of a known producer stays, without its record."""
    log = LogMaker()
    log.data([(b"a", b"old", NOW)], producer_id=7)
    log.data([(b"a", b"new", NOW)])
    log.write(tmp_path)
    job = to_json(replace(log.job(tmp_path), producers=()))
    others = [LastRecord(number, 0, 5) for number in range(1000, 1000 + PRODUCERS_PER_LINE)]
    sizes = []
    with started_worker() as (worker, jobs, events, _):
        for known in ([], others, [*others, *log.producers], []):
            jobs.writelines(f"{line}\n" for line in [*producer_lines(iter(known)), job])
            jobs.flush()
            sizes += [event.size for event in until_done(events) if isinstance(event, GroupCleaned)]
        jobs.close()
        assert worker.wait(PATIENCE_S) == 0
    assert sizes[0] == sizes[1] == sizes[3] == sizes[2] - 61


def test_an_internal_error_ends_the_process_and_is_not_reported_as_a_corrupt_log(tmp_path: Path) -> None:
    """The broker must see a crash for an impossible job, and not mark the log as corrupt."""
    log = LogMaker()
    log.data([(b"a", b"a", NOW)])
    log.write(tmp_path)
    line = to_json(log.job(tmp_path))
    invalid = re.sub(r'"map_bytes": \d+', '"map_bytes": "many"', line)
    assert invalid != line
    with started_worker() as (worker, jobs, events, errors):
        jobs.write(f"{line}\n")
        jobs.flush()
        assert Mapped in map(type, until_done(events))
        jobs.write(f"{invalid}\n")
        jobs.flush()
        assert events.read() == ""
        assert worker.wait(PATIENCE_S) == 1
        assert "TypeError" in errors.read()
