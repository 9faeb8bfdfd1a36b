"""What was sent, acknowledged and read, and what follows from it; faults are collected, since a soak goes on after the first.

A value is `producer number padding`. Each producer counts on for each partition, so that a reader of all of a partition sees what is
lost, repeated or out of order, without anybody remembering the values.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

KEPT_MAX = 5000  # offsets of a partition whose values are remembered, for acknowledgements that come after the reader was there
FAULTS_MAX = 50
SETTLED_WITHIN_S = 30.0  # reports of two members come through two pipes, in any order

Partition = tuple[str, int]


class Faults:
    """What went wrong, in sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._lock = threading.Lock()

    def add(self, sentence: str) -> None:
        with self._lock:
            if len(self.sentences) < FAULTS_MAX:
                self.sentences.append(sentence)


class Counts:
    """How often each thing was done: a soak that did nothing proves nothing."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, what: str, count: int = 1) -> None:
        with self._lock:
            self._counts[what] += count

    def __getitem__(self, what: str) -> int:
        with self._lock:
            return self._counts[what]

    def all(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))


@dataclass
class _Producer:
    idempotent: bool
    jumps: int  # of the partition's reader when it was last seen
    last: int = 0


@dataclass
class PartitionBook:
    """One partition as its reader goes through it, each offset once."""

    partition: Partition
    faults: Faults
    position: int = 0
    log_start: int = 0
    repeated: int = 0
    jumps: int = 0
    _producers: dict[str, _Producer] = field(default_factory=dict)
    _promised: dict[str, int] = field(default_factory=dict)
    _early: dict[int, tuple[str, int]] = field(default_factory=dict)  # acknowledged, and not read yet
    _recent: OrderedDict[int, tuple[str, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, producer: str, *, idempotent: bool) -> None:
        """A producer of a new name is about to send."""
        with self._lock:
            self._producers[producer] = _Producer(idempotent, self.jumps)

    def acknowledged(self, offset: int, producer: str, number: int) -> None:
        """The broker said that a record is at `offset`."""
        with self._lock:
            if offset >= self.position:
                self._early[offset] = producer, number
            elif offset in self._recent:
                self._compare(offset, (producer, number), self._recent[offset])

    def promised(self, producer: str, number: int) -> None:
        """A producer ended after all up to `number` was acknowledged."""
        with self._lock:
            self._promised[producer] = number

    def read(self, offset: int, value: bytes) -> None:
        """The record at `offset`, the next one."""
        with self._lock:
            if offset != self.position:
                self._fault(f"offset {offset} follows on {self.position - 1}")
            self.position = offset + 1
            producer, _, rest = value.partition(b" ")
            found = producer.decode(errors="replace"), int(rest.partition(b" ")[0])
            self._count(offset, *found)
            self._recent[offset] = found
            if len(self._recent) > KEPT_MAX:
                self._recent.popitem(last=False)
            early = self._early.pop(offset, None)
            if early is not None:
                self._compare(offset, early, found)

    def _count(self, offset: int, name: str, number: int) -> None:
        producer = self._producers.get(name)
        if producer is None:
            self._fault(f"nobody sent what is at offset {offset}: {name} {number}")
        elif number <= producer.last:
            self.repeated += 1
            if producer.idempotent:
                self._fault(f"{name} {number} is at offset {offset} again, after {producer.last}; its producer is idempotent")
        else:
            if number > producer.last + 1 and producer.jumps == self.jumps:
                self._fault(f"{name} {number} at offset {offset} comes after {producer.last}: {number - producer.last - 1} are lost")
            producer.last, producer.jumps = number, self.jumps

    def jumped(self, offset: int) -> None:
        """The position was deleted meanwhile; the log begins at `offset` now."""
        with self._lock:
            if offset <= self.position:
                self._fault(f"offset {self.position} cannot be read, and the log begins at {offset}")
            self._early = {at: what for at, what in self._early.items() if at >= offset}
            self.position, self.jumps = offset, self.jumps + 1

    def check_promises(self) -> None:
        """At the end, when all was read."""
        with self._lock:
            for name, number in self._promised.items():
                producer = self._producers[name]
                if producer.last < number and producer.jumps == self.jumps:
                    self._fault(f"{name} {number} was acknowledged, and the last one that came of {name} is {producer.last}")
            for offset, (name, number) in self._early.items():
                self._fault(f"{name} {number} was acknowledged at offset {offset}; the log ends at {self.position}")

    def _compare(self, offset: int, said: tuple[str, int], found: tuple[str, int]) -> None:
        if said != found:
            self._fault(f"offset {offset} was acknowledged for {said}; {found} is there")

    def _fault(self, what: str) -> None:
        topic, number = self.partition
        self.faults.add(f"{topic}-{number}: {what}")


class GroupBook:
    """One group on one partition: its members together must have been given every offset, or it was deleted before.

    A member reports what it was given before it commits, so what was committed was reported.
    """

    def __init__(self, group: str, book: PartitionBook) -> None:
        self.group = group
        self.book = book
        self.end = 0
        self.skipped = 0
        self._waiting: list[tuple[int, int, float]] = []
        self._lock = threading.Lock()

    def given(self, first: int, last: int) -> None:
        """A member was given the offsets from `first` to `last`."""
        with self._lock:
            self._waiting.append((first, last, time.monotonic()))
            self._settle()

    def settle(self) -> None:
        """Look again: the log's beginning may explain a gap now; a gap that nothing explains for long is a fault."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        self._waiting.sort()
        while self._waiting:
            first, last, since = self._waiting[0]
            if first > self.end:
                log_start = self.book.log_start
                late = time.monotonic() - since > SETTLED_WITHIN_S
                if first > log_start and not late:
                    return
                if first > log_start:
                    topic, number = self.book.partition
                    self.book.faults.add(f"{self.group}: nobody was given the offsets {self.end} to {first - 1} of {topic}-{number}; "
                                         f"the log begins at {log_start}")
                self.skipped += first - self.end
            self.end = max(self.end, last + 1)
            self._waiting.pop(0)


class Books:
    """All partitions and groups."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.faults = Faults()
        self.counts = Counts()
        self.partitions = {partition: PartitionBook(partition, self.faults) for partition in partitions}
        self.groups: dict[tuple[str, Partition], GroupBook] = {}
        self._lock = threading.Lock()

    def given(self, group: str, partition: Partition, first: int, last: int) -> None:
        with self._lock:
            book = self.groups.setdefault((group, partition), GroupBook(group, self.partitions[partition]))
        book.given(first, last)
        self.counts.add("records given to members of groups", last + 1 - first)

    def settle(self) -> None:
        with self._lock:
            books = list(self.groups.values())
        for book in books:
            book.settle()

    @property
    def read(self) -> int:
        """Records that the readers of partitions have gone through."""
        return sum(book.position for book in self.partitions.values())
