"""What a soak test needs of a client library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

SESSION_MS = 6000
HEARTBEAT_MS = 1000


class Record(NamedTuple):
    """A record to send."""

    topic: str
    partition: int
    key: bytes
    value: bytes


class Sender(Protocol):
    """A producer. A record that cannot be delivered raises in one of the methods."""

    def send(self, record: Record, done: Callable[[int], None]) -> None:
        """Send a record. `done(offset)` is called within one of the methods once it is acknowledged."""

    def poll(self, seconds: float) -> None:
        """Let the client work for this time."""

    def close(self) -> None:
        """Deliver all records and close."""


class Member(Protocol):
    """A consumer in a group, without automatic commits."""

    def poll(self) -> Sequence[tuple[str, int, int]]:
        """Topic, partition and offset of the records that arrived; waits half a second at most."""

    def commit(self) -> bool:
        """Commit what was polled; False when the member is no longer part of the generation."""

    def close(self) -> None:
        """Leave the group."""


class Library(Protocol):
    """One client library."""

    def sender(self, address: str, *, codec: str, idempotent: bool, acks: str) -> Sender:
        """A producer."""

    def member(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> Member:
        """A consumer in a group."""
