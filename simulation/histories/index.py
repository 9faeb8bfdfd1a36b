"""A history arranged for the rules: sends by value, outcomes of transactions, and each partition's log as clients have seen it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from simulation.histories.operations import (
    NO_OFFSET,
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
)

Partition = tuple[str, int]


class SeenLog:
    """What sends and polls have shown of one partition's log."""

    def __init__(self) -> None:
        self.values: dict[int, str] = {}  # offset -> the value that was seen there first
        self.offsets: dict[str, int] = {}  # value -> the lowest offset at which it was seen
        self.others: dict[int, set[str]] = {}  # offset -> other values that were seen there
        self.repeats: dict[str, set[int]] = {}  # value -> other offsets at which it was seen
        self.polled: set[str] = set()
        self.polled_committed: set[str] = set()
        self.polled_to = NO_OFFSET
        self.deleted_before = 0
        self.expected: dict[bool, list[int]] = {}  # read_committed -> the offsets that a consumer must not leave out, ascending

    def note(self, offset: int, value: str) -> None:
        """A value was seen at an offset."""
        known = self.values.setdefault(offset, value)
        if known != value:
            self.others.setdefault(offset, set()).add(value)
        lowest = self.offsets.setdefault(value, offset)
        if lowest != offset:
            self.repeats.setdefault(value, set()).add(max(lowest, offset))
            self.offsets[value] = min(lowest, offset)

    def values_at(self, offset: int) -> set[str]:
        """All values that were seen at an offset."""
        return {self.values[offset], *self.others.get(offset, ())}


class History:
    """The index. ValueError if the history contradicts itself, as when a value is sent twice."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.sends: dict[str, Send] = {}
        self.ends: dict[str, End] = {}
        self.polls: dict[Partition, list[Poll]] = defaultdict(list)
        self.reading: dict[tuple[str, Partition], list[Assign | Poll]] = defaultdict(list)  # by client, in the order of its calls
        self.completes: list[Complete] = []
        self.commits: dict[tuple[str, Partition], list[Commit]] = defaultdict(list)
        self.fetched: dict[tuple[str, Partition], list[FetchedCommit]] = defaultdict(list)
        self.compacted: set[str] = set()
        self.logs: dict[Partition, SeenLog] = defaultdict(SeenLog)
        for operation in operations:
            self._add(operation)
        for steps in self.reading.values():
            steps.sort(key=lambda step: step.number)
        for of, log in self.logs.items():
            self._expect(of, log)

    def outcome(self, send: Send) -> Outcome:
        """Whether a record is one that read_committed consumers must receive (OK), must not receive, or may."""
        if send.transaction is None or send.outcome is Outcome.FAILED:
            return send.outcome
        end = self.ends.get(send.transaction)
        if end is None or not end.committed or end.outcome is Outcome.FAILED:
            return Outcome.FAILED
        return send.outcome if end.outcome is Outcome.OK else Outcome.UNKNOWN

    def _add(self, operation: Operation) -> None:
        if isinstance(operation, Send):
            if operation.value in self.sends:
                raise ValueError(f"the value {operation.value!r} is sent twice; the values of a history must differ")
            self.sends[operation.value] = operation
            log = self.logs[operation.topic, operation.partition]
            if operation.offset != NO_OFFSET:
                log.note(operation.offset, operation.value)
        elif isinstance(operation, Poll):
            self._add_poll(operation)
        elif isinstance(operation, Assign):
            self.reading[operation.client, (operation.topic, operation.partition)].append(operation)
        elif isinstance(operation, End):
            if operation.transaction in self.ends:
                raise ValueError(f"the transaction {operation.transaction!r} ends twice; the names of a history's transactions must differ")
            self.ends[operation.transaction] = operation
        elif isinstance(operation, Complete):
            self.completes.append(operation)
        elif isinstance(operation, Commit):
            self.commits[operation.group, (operation.topic, operation.partition)].append(operation)
        elif isinstance(operation, FetchedCommit):
            self.fetched[operation.group, (operation.topic, operation.partition)].append(operation)
        elif isinstance(operation, Topic):
            if operation.compacted:
                self.compacted.add(operation.topic)
        else:
            assert isinstance(operation, Delete)
            log = self.logs[operation.topic, operation.partition]
            log.deleted_before = max(log.deleted_before, operation.offset)

    def _add_poll(self, poll: Poll) -> None:
        of = (poll.topic, poll.partition)
        self.polls[of].append(poll)
        self.reading[poll.client, of].append(poll)
        log = self.logs[of]
        for offset, value in poll.records:
            log.note(offset, value)
            log.polled.add(value)
            if poll.read_committed:
                log.polled_committed.add(value)
            log.polled_to = max(log.polled_to, offset)

    def _expect(self, of: Partition, log: SeenLog) -> None:
        """Which offsets a consumer must receive. A value that failed is none of them: another rule reports it."""
        every: list[int] = []
        committed: list[int] = []
        if of[0] not in self.compacted:
            for offset in sorted(log.values):
                send = self.sends.get(log.values[offset])
                if offset < log.deleted_before or send is None or send.outcome is Outcome.FAILED:
                    continue
                every.append(offset)
                if send.transaction is None or self.outcome(send) is Outcome.OK or send.value in log.polled_committed:
                    committed.append(offset)
        log.expected = {False: every, True: committed}
