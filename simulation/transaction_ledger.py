"""What transactional clients have sent, asked for and been answered; the records that may be visible to read_committed (I9) follow from it.

For each transaction there is a `Sent`: its records with their partitions in the order of sending, which of them are acknowledged, the
offsets of a group that belong to it, whether a commit was asked for, and the answer. A transaction without an answer has ended either
way, but as a whole. Names of transactions are unique: `<client>-<producer>-<number>`, and each value begins with one. The history has the
same: records with their transaction, its end, and the offsets that were committed in it and fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txbroker.names import TopicPartition, amount


class Consumed(NamedTuple):
    """The offsets of `source` from `begin` to `end`, exclusive, were copied, and `end` was committed for the group."""

    group: str
    source: TopicPartition
    begin: int
    end: int


@dataclass(slots=True)
class Sent:
    """One transaction. `committed`: what EndTxn answered, None without an answer. `producer`: which of the client's it belongs to."""

    name: str
    producer: str
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    consumed: Consumed | None = None
    commit_asked: bool = False
    committed: bool | None = None

    @property
    def may_be_visible(self) -> bool:
        """Whether read_committed may return its records."""
        return self.commit_asked and self.committed is not False


class TransactionLedger:
    """Of one run. `report(invariant, text)` ends the run."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._by_value: dict[bytes, Sent] = {}
        self._all: list[Sent] = []

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._all)

    def counts(self) -> Counter[str]:
        """How many transactions ended how, as their clients know it."""
        ends = {None: "transactions without answer", True: "transactions committed", False: "transactions aborted"}
        return Counter(ends[sent.committed] for sent in self._all)

    def begun(self, name: str, producer: str) -> Sent:
        """A client begins a transaction."""
        sent = Sent(name, producer)
        self._all.append(sent)
        return sent

    def sent(self, transaction: Sent, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Records are about to be sent."""
        for value in values:
            transaction.values[value] = partition
            self._by_value[value] = transaction

    def ended(self, transaction: Sent, *, committed: bool) -> None:
        """EndTxn was answered without an error."""
        transaction.committed = committed

    def refused(self, client: str, what: str) -> None:
        """A request failed with an error that no correct cluster gives to this client."""
        self._report("I9", f"{client}: {what}")

    def read(self, consumer: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A read_committed consumer was given a record."""
        transaction = self._by_value.get(value)
        if transaction is None or (transaction.may_be_visible and value in transaction.acknowledged):
            return
        why = "was aborted" if transaction.committed is False else "was not committed"
        if transaction.may_be_visible:
            why = "was committed without an acknowledgement of this record"
        self._report("I9", f"{consumer} read {value!r} at {partition}@{offset}, and the transaction {transaction.name} {why}")

    def committed_offset(self, group: str, source: TopicPartition) -> int:
        """What a fetch of a group's offset must return at least that is asked for now; -1 for none."""
        return max((sent.consumed.end for sent in self._of(group, source) if sent.committed and sent.consumed), default=-1)

    def next_offset(self, group: str, source: TopicPartition, offset: int, least: int, client: str) -> None:
        """A group's offset was fetched, -1 for none. `least`: what `committed_offset` was when it was asked for."""
        possible = {-1, *(sent.consumed.end for sent in self._of(group, source) if sent.may_be_visible and sent.consumed)}
        if offset < least or offset not in possible:
            text = f"{client}: offset {offset} of group {group} for {source} is fetched"
            self._report("I9", f"{text}, and {least} was committed in a transaction; possible are {sorted(possible)}")

    def _of(self, group: str, source: TopicPartition) -> list[Sent]:
        return [sent for sent in self._all if sent.consumed is not None and sent.consumed[:2] == (group, source)]

    def check_end(self, visible: Mapping[TopicPartition, Mapping[bytes, int]], compacted: Container[TopicPartition] = ()) -> None:
        """All transactions have ended. `visible`: the records of each partition with their offsets, as read_committed has them.

        What is missing in `compacted` partitions is looked for elsewhere.
        """
        for sent in self._all:
            values = [value for value, partition in sent.values.items() if partition not in compacted]
            seen = [value for value in values if value in visible.get(sent.values[value], {})]
            if sent.committed and len(seen) < len(values):
                missing = next(value for value in values if value not in seen)
                self._report("I9", f"transaction {sent.name} is committed, and {missing!r} in {sent.values[missing]} is missing")
            if seen and len(seen) < len(values):
                self._report("I9", f"transaction {sent.name} is half committed: it has {len(seen)} of {amount(len(values), 'record')}")
        self._check_order(visible)
        self._check_copies(visible)

    def _check_order(self, visible: Mapping[TopicPartition, Mapping[bytes, int]]) -> None:
        last: dict[tuple[str, TopicPartition], tuple[int, bytes]] = {}
        for sent in self._all:
            for value, partition in sent.values.items():
                offset = visible.get(partition, {}).get(value)
                if offset is None:
                    continue
                before, before_value = last.get((sent.producer, partition), (-1, b""))
                if offset < before:
                    self._report("I9", f"{value!r} is at {partition}@{offset}, before {before_value!r}, which was sent earlier")
                last[sent.producer, partition] = offset, value

    def _check_copies(self, visible: Mapping[TopicPartition, Mapping[bytes, int]]) -> None:
        """Each offset of a source was copied once: the visible transactions of its group have it all, without a gap."""
        ranges: dict[tuple[str, TopicPartition], list[tuple[int, int, str]]] = {}
        for sent in self._all:
            if sent.consumed is not None and any(value in visible.get(partition, {}) for value, partition in sent.values.items()):
                group, source, begin, end = sent.consumed
                ranges.setdefault((group, source), []).append((begin, end, sent.name))
        for (group, source), copied in ranges.items():
            position, by = 0, "nothing"
            for begin, end, name in sorted(copied):
                if begin != position:
                    text = f"{name} has copied {source} from {begin} to {end} for group {group}"
                    self._report("I9", f"{text}, and {by} had copied it up to {position}")
                position, by = end, name
