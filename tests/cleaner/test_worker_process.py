"""The broker's end of a worker's pipes, without the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.cleaner.logs import NOW, LogMaker
from txbroker.cleaner_process import _Process
from txbroker.log.cleaner.cleaning_job import Done, GroupCleaned, to_json

GROUP = GroupCleaned(old_base_offsets=(0,), new_base_offset=0, size=0, max_timestamp=-1, max_timestamp_offset=0, yields=())
DONE = Done(end_offset=1, bytes_read=1, bytes_written=1, seconds=1.0)


class _Pipes:
    pid = 1

    def __init__(self) -> None:
        self.signals: list[str] = []

    def write(self, data: bytes) -> None:
        pass

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)


@pytest.mark.parametrize("line", [to_json(GROUP), to_json(DONE), "no event"], ids=["swap", "end", "nonsense"])
def test_after_an_event_that_cannot_be_taken_the_last_word_is_a_crash(tmp_path: Path, line: str) -> None:
    """A `Done` behind a swap that failed must not end the pass as a success."""
    process = _Process(Clock(), 60, lambda _: None)
    pipes: Any = _Pipes()
    process.transport = pipes
    log = LogMaker()
    log.data([(b"a", b"a", NOW)])
    log.write(tmp_path)
    seen: list[str] = []

    def on_event(event: object) -> None:
        seen.append(type(event).__name__)
        if len(seen) == 1 and line != "no event":
            raise RuntimeError("a bug")

    process.take(log.job(tmp_path), on_event)
    process.outReceived(f"{line}\n{to_json(DONE)}\n".encode())
    assert pipes.signals == ["KILL"]
    assert not process.idle
    process.processEnded(Failure(ProcessTerminated(None, 9)))
    assert seen[-1] == "Crashed"
    assert "Done" not in seen[1:]
