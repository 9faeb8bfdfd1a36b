"""The operations of a history. The package's docstring says what `client`, `number`, `began` and `ended` are."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NO_OFFSET = -1


class Outcome(StrEnum):
    """How an operation ended, as its client knows it."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """A record that a producer sent. `offset`: from the response, NO_OFFSET if it has none.

    `exact`: the producer is idempotent; of any other one a value may be in the log more than once.
    """

    client: str
    number: int
    topic: str
    partition: int
    value: str
    began: int
    ended: int
    outcome: Outcome
    offset: int = NO_OFFSET
    exact: bool = True
    transaction: str | None = None
    key: str | None = None


class End(NamedTuple):
    """The end of a transaction, whose name is unique in the run. OK with `committed` means committed, OK without it aborted.

    A transaction without an End has never been asked to commit: its records must not appear in read_committed polls.
    """

    client: str
    number: int
    transaction: str
    committed: bool
    began: int
    ended: int
    outcome: Outcome


class Assign(NamedTuple):
    """A consumer begins to read a partition, at `position`, the offset of its next record, or at one that is not known (NO_OFFSET)."""

    client: str
    number: int
    topic: str
    partition: int
    position: int = NO_OFFSET


class Poll(NamedTuple):
    """The records of one partition in one poll, as (offset, value), in the order of the response."""

    client: str
    number: int
    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]
    began: int
    ended: int
    read_committed: bool = False


class Complete(NamedTuple):
    """The polls of `readers` together have everything that was in a partition at the time `began`.

    It holds for one fresh consumer that has read from the start of the log to an end offset which it fetched at `began`, and for all
    members of a group that began at the start and has come so far. With `read_committed` all transactions have ended before.
    """

    readers: tuple[str, ...]
    topic: str
    partition: int
    began: int
    read_committed: bool = False


class Commit(NamedTuple):
    """A group's offset commit; with a `transaction` it takes effect when that is committed."""

    client: str
    number: int
    group: str
    topic: str
    partition: int
    offset: int
    began: int
    ended: int
    outcome: Outcome
    transaction: str | None = None


class FetchedCommit(NamedTuple):
    """A group's committed offset as a client has fetched it; NO_OFFSET: there was none. Calls that fail are not recorded."""

    client: str
    number: int
    group: str
    topic: str
    partition: int
    offset: int
    began: int
    ended: int


class Topic(NamedTuple):
    """A compacted topic: records may be missing, but for the latest of each key. Other topics need no such operation."""

    topic: str
    compacted: bool = True


class Delete(NamedTuple):
    """A request to delete the records before `offset`, whatever its outcome, or their expiry: they need not be in the log."""

    topic: str
    partition: int
    offset: int


Operation = Send | End | Assign | Poll | Complete | Commit | FetchedCommit | Topic | Delete
