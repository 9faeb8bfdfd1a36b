"""What a soak needs of a client library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

SESSION_MS = 6000
HEARTBEAT_MS = 1000


class Record(NamedTuple):
    """What is sent."""

    topic: str
    partition: int
    key: bytes
    value: bytes


class Sender(Protocol):
    """A producer; what cannot be delivered raises, here or there."""

    def send(self, record: Record, done: Callable[[int], None]) -> None:
        """Send, and call `done(offset)` once it is acknowledged, from any of these methods."""

    def poll(self, seconds: float) -> None:
        """Let the client work for so long."""

    def close(self) -> None:
        """Deliver all, and go."""


class Member(Protocol):
    """A consumer in a group that commits by itself never."""

    def poll(self) -> Sequence[tuple[str, int, int]]:
        """Topic, partition and offset of what came; waits half a second at most."""

    def commit(self) -> bool:
        """Commit what was polled; False when the group has gone on without this member."""

    def close(self) -> None:
        """Leave the group."""


class Library(Protocol):
    """One client library."""

    def sender(self, address: str, *, codec: str, idempotent: bool, acks: str) -> Sender:
        """A producer."""

    def member(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> Member:
        """A consumer in a group."""
