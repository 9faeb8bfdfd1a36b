"""A driver as a process: reads its results, restarts brokers and moves leaders on request, and kills a driver that hangs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO

from compat.clients import Client
from compat.matrix import Row

INSTALLING_S = 900.0  # until the first line of a driver: its client may have to be installed
SILENCE_S = 300.0  # between two lines of a driver
_COMPLAINT_CHARACTERS = 300
# The folders of absolute paths, which differ from machine to machine.
_FOLDERS = re.compile(r"(file://|(?<![\w.:/]))/([^\s/():]+/)+")

# The brokers' part of what a driver requests for a topic; returns the address of the leader of its first partition.
Change = Callable[[str], str]
RESTART, MOVE = "restart", "move"
Changes = Mapping[str, Change]


def run_client(client: Client, address: str, features: Sequence[str], heard: Callable[[str], None], changes: Changes | None = None, *,
               silence_s: float = SILENCE_S, environment: Mapping[str, str] | None = None) -> Row:
    """Run a client's driver; `heard` is called with each finished feature. Features without a result are `no`.

    `changes` are RESTART of a broker, and MOVE of leaders. Without them the driver's standard input is at its end, so that it cannot
    request any. `environment`: more variables for the driver.
    """
    wanted = list(features or client.features)
    row = Row(client.title)
    with tempfile.TemporaryFile("w+") as complaints:
        stdin = subprocess.DEVNULL if changes is None else subprocess.PIPE
        process = subprocess.Popen([client.program, address, *features], env=_environment(client) | dict(environment or {}),
                                   text=True, process_group=0,
                                   stdin=stdin, stdout=subprocess.PIPE, stderr=complaints)
        with _Watch(process, INSTALLING_S) as watch:
            trouble = _listen(process, row, heard, changes, lambda: watch.again(silence_s))
            status = 0 if trouble else process.wait()
        complaints.seek(0)
        last = without_folders(complaints.read()).strip()[-_COMPLAINT_CHARACTERS:]
    if watch.bit:
        trouble = f"the driver hung and was killed; its last output: {last or 'nothing'}"
    elif not trouble and status != 0:
        trouble = f"the driver ended with {status}: {last}"
    row.lack(wanted, trouble or "the driver printed no result")
    return row


def without_folders(text: str) -> str:
    """Text whose absolute paths are names of files only."""
    return _FOLDERS.sub("", text)


def _environment(client: Client) -> dict[str, str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    environment.pop("CLIENT_VERSION", None)
    if client.version is not None:
        environment["CLIENT_VERSION"] = client.version
    return environment


def _listen(process: subprocess.Popen[str], row: Row, heard: Callable[[str], None], changes: Changes | None,
            alive: Callable[[], None]) -> str:
    """Read the driver's lines until it ends; a description of malformed output, if any."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            said = json.loads(line)
            requested = next((kind for kind in (RESTART, MOVE) if kind in said), None)
            feature = None if requested else row.hear(said)
        except (ValueError, KeyError, AttributeError, TypeError):  # not JSON, or not an object with these keys
            return f"the driver printed a malformed line: {line.strip()}"
        alive()
        if requested and changes is not None:
            _change(changes[requested], said[requested], process.stdin, alive)
        if feature is not None:
            heard(feature)
    return ""


def _change(change: Change, topic: str, answers: IO[str] | None, alive: Callable[[], None]) -> None:
    assert answers is not None
    leader = change(topic)
    alive()
    with contextlib.suppress(BrokenPipeError):  # the end of the driver is noticed at its output
        answers.write(f"{leader}\n")
        answers.flush()


class _Watch:
    """Kills a process and its children when it prints nothing for too long, and at the end in any case."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self._process = process
        self.bit = False
        self._timer = self._started(seconds)

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._timer.cancel()
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def again(self, seconds: float) -> None:
        """There was output: wait this long for the next."""
        self._timer.cancel()
        self._timer = self._started(seconds)

    def _started(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._bite)
        timer.daemon = True
        timer.start()
        return timer

    def _bite(self) -> None:
        self.bit = True
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
