"""Members of a consumer group, each on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from tests.support.records import Received
from tests.support.waiting import PATIENCE_S, until


class Reader(Protocol):
    """The methods of a client's consumer that a member uses."""

    def poll(self) -> list[Received]:
        """The next records; returns soon when there are none."""

    def assignment(self) -> set[int]:
        """The partitions that are assigned to it now."""

    def close(self) -> None:
        """Close the consumer."""


class Member:
    """A consumer that is polled until it is stopped. `received` and `assignments` can be read meanwhile."""

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        self.received: list[Received] = []
        self.assigned: set[int] = set()
        self.assignments: list[set[int]] = []  # every different one, in turn
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._open_reader = open_reader
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop polling and close the consumer; raises the error of its thread."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            reader = self._open_reader()
            try:
                while not self._stop.is_set():
                    self.received += reader.poll()
                    self.assigned = reader.assignment()
                    if not self.assignments or self.assignments[-1] != self.assigned:
                        self.assignments.append(self.assigned)
            finally:
                reader.close()
        except Exception as error:
            self.error = error


def until_shared(partitions: set[int], *members: Member) -> None:
    """Wait until each partition is assigned to exactly one member, and each member has at least one."""
    def shared() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        owned = [member.assigned for member in members]
        return all(owned) and sum(len(some) for some in owned) == len(partitions) and set().union(*owned) == partitions

    until(shared, f"{len(members)} members share {len(partitions)} partitions")
