"""The verifiable producer and consumer, which print one event per line: separate processes, since the consumer runs until SIGTERM."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from compat.adapter import until
from tests.support import java

_LIMIT_S = 60.0

Event = dict[str, Any]


class EventTool:
    """A running tool; `events` grows."""

    def __init__(self, tool: str, release: str, arguments: Sequence[str]) -> None:
        self.events: list[Event] = []
        command = java.command(tool, release, list(arguments))
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[Event]:
        """The events of one name, so far."""
        return [event for event in list(self.events) if event["name"] == name]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for events; AssertionError with the last ones if they do not arrive."""
        try:
            until(lambda: condition() or self._process.poll() is not None, what)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; events: {self.events[-3:]}") from None
        assert condition(), f"the tool ended with {self._process.poll()} before: {what}"

    def ended(self) -> int:
        """Wait until the tool has ended; its exit status."""
        try:
            status = self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the tool did not end in {_LIMIT_S:.0f} s; events: {self.events[-3:]}") from None
        self._reader.join()
        return status

    def stop(self) -> None:
        """Send SIGTERM, upon which the tool prints its last events."""
        self._process.terminate()
        self.ended()

    def close(self) -> None:
        """Kill the tool."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
