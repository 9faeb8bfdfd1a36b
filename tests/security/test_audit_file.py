"""The file of the audit log: its size, its older parts, and what cannot be written."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute

from simulation.memory_disk import MemoryDisk
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.broker.audit_file import WAITING_MAX, AuditFile
from txbroker.errors import StorageError

PATH, LINE = "/logs/audit.log", b"0123456789\n"


class Held:
    """A worker whose jobs wait until `run`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        self.jobs.append((job, Deferred()))
        return self.jobs[-1][1]

    def run(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                result = job()
            except Exception as error:
                done.errback(error)
            else:
                done.callback(result)


class Opened(AuditFile):
    """A file on a disk in memory."""

    def __init__(self, bytes_max: int = 10**6, kept: int = 2, worker: Any = execute) -> None:
        self.memory = MemoryDisk()
        self.memory.make_directory("/logs")
        self.faulty = FaultyDisk(self.memory)
        self.seconds = 0.0
        report = lambda count: json.dumps({"left_out": count}).encode() + b"\n"  # noqa: E731
        super().__init__(PATH, bytes_max, kept, self.faulty, worker, lambda: self.seconds, report)
        self.open()

    def files(self) -> dict[str, bytes | None]:
        return {name: self.memory.read(f"/logs/{name}") for name in self.memory.names("/logs")}


def test_lines_are_appended_also_after_a_restart() -> None:
    file = Opened()
    file.write(LINE)
    file.open()
    file.write(LINE)
    assert file.files() == {"audit.log": LINE * 2}


def test_an_incomplete_last_line_is_ended() -> None:
    file = Opened()
    file.memory.append(PATH, b'{"half')
    file.open()
    file.write(LINE)
    assert file.files() == {"audit.log": b'{"half\n' + LINE}


def test_a_full_file_is_renamed_and_the_oldest_is_deleted() -> None:
    file = Opened(bytes_max=2 * len(LINE))
    for number in range(7):
        file.write(b"%010d\n" % number)
    assert file.files() == {
        "audit.log": b"0000000006\n", "audit.log.1": b"0000000004\n0000000005\n", "audit.log.2": b"0000000002\n0000000003\n",
    }  # fmt: skip


def test_many_lines_at_once_are_divided_in_the_same_way() -> None:
    held = Held()
    file = Opened(bytes_max=2 * len(LINE), worker=held)
    for number in range(8):
        file.write(b"%010d\n" % number)
    held.run()
    assert file.files() == {
        "audit.log": b"0000000006\n0000000007\n", "audit.log.1": b"0000000004\n0000000005\n",
        "audit.log.2": b"0000000002\n0000000003\n",
    }  # fmt: skip


def test_without_older_files_only_one_remains() -> None:
    file = Opened(bytes_max=1, kept=0)
    for number in range(3):
        file.write(b"%d\n" % number)
    assert file.files() == {"audit.log": b"2\n"}


def test_another_program_may_move_the_file_away() -> None:
    file = Opened()
    file.write(LINE)
    file.memory.rename(PATH, "/logs/old")
    file.write(LINE)
    assert file.files() == {"audit.log": LINE, "old": LINE}


@pytest.mark.parametrize("operation", ["append", "size"])
def test_lines_that_cannot_be_written_are_counted_in_the_file_and_logged_once(operation: str, caplog: pytest.LogCaptureFixture) -> None:
    file = Opened()
    file.faulty.fail([operation], path="/logs", error=errno.ENOSPC, times=2)
    for _ in range(3):
        file.write(LINE)
    assert file.dropped == 2
    assert file.files() == {"audit.log": b'{"left_out": 2}\n' + LINE}
    (message,) = caplog.messages
    assert "1 since the start" in message and "No space left" in message
    file.write(LINE)
    assert file.files() == {"audit.log": b'{"left_out": 2}\n' + LINE * 2}


def test_what_a_failed_rotation_leaves_is_not_written_twice() -> None:
    held = Held()
    file = Opened(bytes_max=len(LINE), worker=held)
    file.faulty.fail(["rename"], path="/logs", error=errno.EIO, times=1)
    for number in range(3):
        file.write(b"%010d\n" % number)
    held.run()
    assert file.dropped == 2, "the lines of the batch after the first file"
    file.write(LINE)
    held.run()
    assert b"".join(data or b"" for _, data in sorted(file.files().items(), reverse=True)) == b"0000000000\n" + b'{"left_out": 2}\n' + LINE


def test_lines_that_come_too_fast_are_dropped_and_counted() -> None:
    held = Held()
    file = Opened(worker=held)
    for _ in range(WAITING_MAX + 11):
        file.write(b"x\n")
    assert file.dropped == 10  # the first one is being written
    held.run()
    assert file.files()["audit.log"] == b"x\n" + b'{"left_out": 10}\n' + b"x\n" * WAITING_MAX


def test_closing_waits_for_the_last_line() -> None:
    held = Held()
    done: list[object] = []
    file = Opened(worker=held)
    file.write(LINE)
    file.write(LINE)
    file.close().addCallback(done.append)
    assert not done
    held.run()
    assert done == [None] and file.files() == {"audit.log": LINE * 2}
    file.close().addCallback(done.append)
    assert len(done) == 2


def test_a_path_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(StorageError, match="cannot write /nowhere/audit"):
        AuditFile("/nowhere/audit", 1, 1, MemoryDisk(), execute, lambda: 0.0, lambda count: b"").open()
