"""Calls of Kafka's tools, all in one JVM that runs ToolHost.java."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support import java


class Ended(NamedTuple):
    """The result of a tool: exit status and output."""

    status: int
    out: str
    err: str


class ToolHost:
    """The tools of one release. A call that hangs is killed with its JVM, and the next call starts a new one."""

    def __init__(self, release: str, classes: Path) -> None:
        self._release = release
        self._command = [*java.class_path(release, classes), "ToolHost"]
        self._process: subprocess.Popen[str] | None = None

    def run(self, tool: str, arguments: Sequence[str], stdin: str, limit_s: float) -> Ended:
        """Run a tool by the name of its script. AssertionError if it does not end."""
        process = self._process = self._process or subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        call = [java.main_class(tool, self._release), stdin, *arguments]
        watchdog = threading.Timer(limit_s, process.kill)
        watchdog.start()
        try:
            process.stdin.write(" ".join(base64.b64encode(part.encode()).decode() for part in call) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not answer:
            self.close()
            raise AssertionError(f"{tool} {' '.join(arguments)} did not end in {limit_s:.0f} s")
        status, out, err = answer.rstrip("\n").split(" ")
        return Ended(int(status), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def close(self) -> None:
        """Stop the JVM."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
