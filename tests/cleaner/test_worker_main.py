"""The worker process, with its pipes connected to the test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.cleaner.logs import NOW, LogMaker
from tests.support.waiting import PATIENCE_S
from txbroker.cleaner_process import worker_command
from txbroker.log.cleaner.cleaning_job import Done, Mapped, event_from_json, to_json


def test_an_internal_error_ends_the_process_and_is_not_reported_as_a_corrupt_log(tmp_path: Path) -> None:
    """The broker must see a crash for an impossible job, and not mark the log as corrupt."""
    log = LogMaker()
    log.data([(b"a", b"a", NOW)])
    log.write(tmp_path)
    line = to_json(log.job(tmp_path))
    invalid = re.sub(r'"map_bytes": \d+', '"map_bytes": "many"', line)
    assert invalid != line
    worker = subprocess.Popen(worker_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    with worker.stdin, worker.stdout, worker.stderr:
        worker.stdin.write(f"{line}\n")
        worker.stdin.flush()
        kinds = []
        while Done not in kinds:
            kinds.append(type(event_from_json(worker.stdout.readline())))
        assert Mapped in kinds
        worker.stdin.write(f"{invalid}\n")
        worker.stdin.flush()
        assert worker.stdout.read() == ""
        assert worker.wait(PATIENCE_S) == 1
        assert "TypeError" in worker.stderr.read()
