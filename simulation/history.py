"""The records of all clients of a run, for the checker of `simulation/histories`, which runs at the end of each seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from simulation.histories import (
    Anomaly,
    Assign,
    Commit,
    Complete,
    Delete,
    End,
    FetchedCommit,
    Operation,
    Outcome,
    Poll,
    Send,
    Topic,
    check,
)
from simulation.histories.operations import NO_OFFSET
from txbroker.names import TopicPartition

Partition = TopicPartition


class Recorder:
    """`seconds`: simulated. A sender, a consumer or a committer is one client of the history each; the names are the callers'."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._numbers: Counter[str] = Counter()
        self._sends: dict[str, Send] = {}
        self._others: list[Operation] = []

    def now(self) -> int:
        """The clock of the history, in nanoseconds."""
        return round(self._seconds() * 1e9)

    def _number(self, client: str) -> int:
        self._numbers[client] += 1
        return self._numbers[client]

    def add(self, operation: Operation) -> None:
        """An operation that has ended."""
        self._others.append(operation)

    def sent(
        self, client: str, partition: Partition, values: Iterable[bytes], *, exact: bool, transaction: str | None = None,
        keyed: bool = False,
    ) -> None:  # fmt: skip
        """Values are sent for the first time. Until `acknowledged` or `failed`, what becomes of them is not known.

        `keyed`: a value is its key, a slash, and more.
        """
        now = self.now()
        for value in values:
            text = value.decode()
            key = text.partition("/")[0] if keyed else None
            self._sends[text] = Send(
                client, self._number(client), *partition, text, now, now, Outcome.UNKNOWN, NO_OFFSET, exact, transaction, key
            )

    def acknowledged(self, values: Iterable[bytes], base_offset: int, *, all_in_sync: bool) -> None:
        """A batch is acknowledged. `base_offset` is -1 if it is not known."""
        if not all_in_sync:
            return
        now = self.now()
        for index, value in enumerate(values):
            text = value.decode()
            offset = NO_OFFSET if base_offset < 0 else base_offset + index
            self._sends[text] = self._sends[text]._replace(outcome=Outcome.OK, ended=now, offset=offset)

    def failed(self, values: Iterable[bytes]) -> None:
        """A batch is certainly in no log."""
        now = self.now()
        for value in values:
            text = value.decode()
            self._sends[text] = self._sends[text]._replace(outcome=Outcome.FAILED, ended=now)

    def ended(self, client: str, transaction: str, began: int, outcome: Outcome, *, committed: bool) -> None:
        """A transaction was asked to end at `began`."""
        self.add(End(client, self._number(client), transaction, committed, began, self.now(), outcome))

    def assigned(self, client: str, partition: Partition, position: int = NO_OFFSET) -> None:
        """A consumer reads on from a position."""
        self.add(Assign(client, self._number(client), *partition, position))

    def polled(
        self, client: str, partition: Partition, records: Sequence[tuple[int, bytes]], began: int, *, read_committed: bool = False
    ) -> None:
        """A consumer has received records."""
        if records:
            found = tuple((offset, value.decode()) for offset, value in records)
            self.add(Poll(client, self._number(client), *partition, found, began, self.now(), read_committed))

    def complete(self, readers: Collection[str], partition: Partition, began: int, *, read_committed: bool = False) -> None:
        """The readers have read everything that was there at `began`."""
        self.add(Complete(tuple(readers), *partition, began, read_committed))

    def committed(self, client: str, group: str, partition: Partition, offset: int, began: int, outcome: Outcome,
                  transaction: str | None = None) -> None:  # fmt: skip
        """A group's offset was to be committed."""
        self.add(Commit(client, self._number(client), group, *partition, offset, began, self.now(), outcome, transaction))

    def fetched(self, client: str, group: str, partition: Partition, offset: int, began: int) -> None:
        """A group's offset was fetched."""
        self.add(FetchedCommit(client, self._number(client), group, *partition, offset, began, self.now()))

    def anomalies(self, *, compacted: Iterable[str], deleted: Iterable[tuple[Partition, int]]) -> list[Anomaly]:
        """What the checker finds. `deleted`: start offsets of partitions whose first records may be gone."""
        topics: list[Operation] = [Topic(name) for name in compacted]
        deletes: list[Operation] = [Delete(*partition, offset) for partition, offset in deleted]
        return check([*topics, *deletes, *self._sends.values(), *self._others])
