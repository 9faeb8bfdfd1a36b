"""The history of a fault test: what its clients did, as they report it, also in a file of JSON lines."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from threading import Lock

from simulation.histories import Anomaly, Assign, Commit, FetchedCommit, Operation, Outcome, Poll, Send, check, to_line

FILE = "history.jsonl"
SHOWN = 4


class Journal:
    """All operations so far, from any thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self.operations: list[Operation] = []
        self._lock = Lock()
        self._file = self.path.open("w")
        self._confirmed: dict[str, int] = {}  # client -> records
        self._committed: dict[str, dict[tuple[str, int], int]] = {}  # group -> partition -> offset

    def add(self, operation: Operation) -> None:
        """A client's operation has ended."""
        with self._lock:
            self.operations.append(operation)
            self._file.write(to_line(operation) + "\n")
            if isinstance(operation, Send) and operation.outcome is Outcome.OK:
                self._confirmed[operation.client] = self._confirmed.get(operation.client, 0) + 1
            elif isinstance(operation, Commit) and operation.outcome is Outcome.OK:
                offsets = self._committed.setdefault(operation.group, {})
                of = (operation.topic, operation.partition)
                offsets[of] = max(offsets.get(of, 0), operation.offset)

    def confirmed(self, client: str) -> int:
        """How many records of a producer were confirmed."""
        with self._lock:
            return self._confirmed.get(client, 0)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The highest confirmed commit of each partition."""
        with self._lock:
            return dict(self._committed.get(group, {}))

    def last(self, clients: Collection[str], partition: int) -> list[str]:
        """The lines of what these consumers did last in a partition, without most records: the file is gone when others need its place."""
        with self._lock:
            found = [each for each in self.operations
                     if isinstance(each, Assign | Commit | FetchedCommit | Poll) and each.client in clients and each.partition == partition]
        return [to_line(each._replace(records=each.records[-1:]) if isinstance(each, Poll) else each) for each in found[-SHOWN:]]

    def check(self) -> list[Anomaly]:
        """The anomalies so far."""
        with self._lock:
            self._file.flush()
            operations = list(self.operations)
        return check(operations)

    def description(self) -> str:
        """How much there is."""
        with self._lock:
            sends = [each for each in self.operations if isinstance(each, Send)]
            polls = [each for each in self.operations if isinstance(each, Poll)]
            commits = sum(isinstance(each, Commit) for each in self.operations)
        confirmed = sum(each.outcome is Outcome.OK for each in sends)
        received = sum(len(each.records) for each in polls)
        return f"{confirmed} of {len(sends)} records confirmed, {received} received in {len(polls)} polls, {commits} offset commits"

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def now() -> int:
    """The clock of a history: nanoseconds, which Java's System.nanoTime has too."""
    return time.monotonic_ns()
