"""What was sent, acknowledged and read, compared. Faults are collected, because a soak test continues after the first.

A value is `producer number padding`. Each producer numbers its records for each partition, so that the reader of a partition detects
lost, repeated and reordered records without storing the values.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

KEPT_MAX = 5000  # offsets of a partition whose values are kept, for acknowledgements that arrive after the record was read
FAULTS_MAX = 50
SETTLED_WITHIN_S = 30.0  # the reports of two members arrive through two pipes, in any order

Partition = tuple[str, int]


class Faults:
    """The faults so far, each a sentence."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._lock = threading.Lock()

    def add(self, sentence: str) -> None:
        with self._lock:
            if len(self.sentences) < FAULTS_MAX:
                self.sentences.append(sentence)


class Counts:
    """How often each action was done: a soak test without actions proves nothing."""

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
    gaps: int  # of the partition's reader when its last record was read
    last: int = 0


@dataclass
class PartitionLedger:
    """One partition. Its reader reports each offset once, in order."""

    partition: Partition
    faults: Faults
    position: int = 0
    log_start: int = 0
    repeated: int = 0
    gaps: int = 0
    _producers: dict[str, _Producer] = field(default_factory=dict)
    _promised: dict[str, int] = field(default_factory=dict)
    _early: dict[int, tuple[str, int]] = field(default_factory=dict)  # acknowledged, not read yet
    _recent: OrderedDict[int, tuple[str, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, producer: str, *, idempotent: bool) -> None:
        """A new producer is about to send."""
        with self._lock:
            self._producers[producer] = _Producer(idempotent, self.gaps)

    def acknowledged(self, offset: int, producer: str, number: int) -> None:
        """The broker acknowledged a record at `offset`."""
        with self._lock:
            if offset >= self.position:
                self._early[offset] = producer, number
            elif offset in self._recent:
                self._compare(offset, (producer, number), self._recent[offset])

    def promised(self, producer: str, number: int) -> None:
        """A producer ended after all its records up to `number` were acknowledged."""
        with self._lock:
            self._promised[producer] = number

    def read(self, offset: int, value: bytes) -> None:
        """The reader got the next record, which is at `offset`."""
        with self._lock:
            if offset != self.position:
                self._fault(f"offset {offset} follows offset {self.position - 1}")
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
            self._fault(f"no producer sent the record at offset {offset}: {name} {number}")
        elif number <= producer.last:
            self.repeated += 1
            if producer.idempotent:
                self._fault(f"{name} {number} is repeated at offset {offset}, after {producer.last}; its producer is idempotent")
        else:
            if number > producer.last + 1 and producer.gaps == self.gaps:
                self._fault(f"{name} {number} at offset {offset} follows {producer.last}: {number - producer.last - 1} records are lost")
            producer.last, producer.gaps = number, self.gaps

    def skipped_to(self, offset: int) -> None:
        """The record at the reader's position was deleted; the log now starts at `offset`."""
        with self._lock:
            if offset <= self.position:
                self._fault(f"offset {self.position} was refused, but the log starts at {offset}")
            self._early = {at: what for at, what in self._early.items() if at >= offset}
            self.position, self.gaps = offset, self.gaps + 1

    def check_promises(self) -> None:
        """At the end, after all records were read: every acknowledged record must have been among them."""
        with self._lock:
            for name, number in self._promised.items():
                producer = self._producers[name]
                if producer.last < number and producer.gaps == self.gaps:
                    self._fault(f"{name} {number} was acknowledged, but the last record read of {name} is {producer.last}")
            for offset, (name, number) in self._early.items():
                self._fault(f"{name} {number} was acknowledged at offset {offset}, but the log ends at {self.position}")

    def _compare(self, offset: int, said: tuple[str, int], found: tuple[str, int]) -> None:
        if said != found:
            self._fault(f"offset {offset} was acknowledged for {said}, but holds {found}")

    def _fault(self, what: str) -> None:
        topic, number = self.partition
        self.faults.add(f"{topic}-{number}: {what}")


class GroupLedger:
    """One group on one partition: its members together must have received every offset that was not deleted before.

    A member reports what it received before it commits, so every committed offset was reported.
    """

    def __init__(self, group: str, ledger: PartitionLedger) -> None:
        self.group = group
        self.ledger = ledger
        self.end = 0
        self.skipped = 0
        self._waiting: list[tuple[int, int, float]] = []
        self._lock = threading.Lock()

    def given(self, first: int, last: int) -> None:
        """A member received the offsets from `first` to `last`."""
        with self._lock:
            self._waiting.append((first, last, time.monotonic()))
            self._settle()

    def settle(self) -> None:
        """Check gaps again: the log start offset may explain one now. A gap that stays unexplained is a fault."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        self._waiting.sort()
        while self._waiting:
            first, last, since = self._waiting[0]
            if first > self.end:
                log_start = self.ledger.log_start
                late = time.monotonic() - since > SETTLED_WITHIN_S
                if first > log_start and not late:
                    return
                if first > log_start:
                    topic, number = self.ledger.partition
                    self.ledger.faults.add(f"{self.group}: no member received the offsets {self.end} to {first - 1} of {topic}-{number}; "
                                         f"the log starts at {log_start}")
                self.skipped += first - self.end
            self.end = max(self.end, last + 1)
            self._waiting.pop(0)


class Ledgers:
    """All partitions and groups."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.faults = Faults()
        self.counts = Counts()
        self.partitions = {partition: PartitionLedger(partition, self.faults) for partition in partitions}
        self.groups: dict[tuple[str, Partition], GroupLedger] = {}
        self._lock = threading.Lock()

    def given(self, group: str, partition: Partition, first: int, last: int) -> None:
        with self._lock:
            ledger = self.groups.setdefault((group, partition), GroupLedger(group, self.partitions[partition]))
        ledger.given(first, last)
        self.counts.add("records given to members of groups", last + 1 - first)

    def settle(self) -> None:
        with self._lock:
            ledgers = list(self.groups.values())
        for ledger in ledgers:
            ledger.settle()

    @property
    def read(self) -> int:
        """Records that were read, over all partitions."""
        return sum(ledger.position for ledger in self.partitions.values())
