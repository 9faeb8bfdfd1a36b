"""The offsets that one group has committed: those in force, those on their way into the log, those of open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from txbroker.groups.group_results import CommittedOffset
from txbroker.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Write:
    """Offsets (None: removals) on their way into the log; `order` is their place among all writes of the group."""

    order: int
    offsets: Mapping[TopicPartition, CommittedOffset | None]


@dataclass(frozen=True, slots=True)
class _Kept:
    order: int
    offset: CommittedOffset


class GroupOffsets:
    """What a group has committed. A write is seen only once it is settled, and never undoes one that came after it in the log."""

    def __init__(self) -> None:
        self._kept: dict[TopicPartition, _Kept] = {}
        self._in_flight: dict[TopicPartition, set[int]] = {}
        self._removed: dict[TopicPartition, int] = {}  # order of the last removal, while older writes are in flight
        self._transactions: dict[int, dict[TopicPartition, _Kept]] = {}  # producer id -> offsets that its commit will put in force
        self._order = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """The offsets in force."""
        return ((partition, kept.offset) for partition, kept in self._kept.items())

    @property
    def is_unused(self) -> bool:
        """Whether there is nothing here, and nothing on its way."""
        return not (self._kept or self._in_flight or self._transactions)

    def would_be_unused_without(self, count: int) -> bool:
        """Whether nothing would be left once `count` of the offsets in force are gone."""
        return len(self._kept) == count and not (self._in_flight or self._transactions)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """The offset in force."""
        kept = self._kept.get(partition)
        return None if kept is None else kept.offset

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a write or an open transaction may still change this offset (KIP-447)."""
        return partition in self._in_flight or any(partition in offsets for offsets in self._transactions.values())

    def begin(self, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> Write:
        """Announce a write that is about to be appended. Writes must be appended in the order of their announcement."""
        self._order += 1
        for partition in offsets:
            self._in_flight.setdefault(partition, set()).add(self._order)
        return Write(self._order, offsets)

    def settle(self, write: Write, succeeded: bool) -> None:
        """The write is in the log (then it is in force), or it failed."""
        for partition, offset in write.offsets.items():
            if succeeded:
                self._put(partition, write.order, offset)
            orders = self._in_flight[partition]
            orders.discard(write.order)
            if not orders:
                del self._in_flight[partition]
                self._removed.pop(partition, None)

    def replay(self, partition: TopicPartition, offset: CommittedOffset | None) -> None:
        """A write that was found in the log."""
        self.settle(self.begin({partition: offset}), True)

    def replay_transactional(self, producer_id: int, partition: TopicPartition, offset: CommittedOffset | None) -> None:
        """A write in a transaction that was found in the log; it counts from its place there once the transaction commits."""
        self._order += 1
        pending = self._transactions.setdefault(producer_id, {})
        if offset is None:
            pending.pop(partition, None)
        else:
            pending[partition] = _Kept(self._order, offset)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A producer's transaction has ended: its offsets come into force, or are forgotten."""
        for partition, kept in self._transactions.pop(producer_id, {}).items():
            if committed:
                self._put(partition, kept.order, kept.offset)

    def _put(self, partition: TopicPartition, order: int, offset: CommittedOffset | None) -> None:
        present = self._kept.get(partition)
        if (present is not None and present.order > order) or self._removed.get(partition, 0) > order:
            return
        if offset is not None:
            self._kept[partition] = _Kept(order, offset)
            return
        self._kept.pop(partition, None)
        for pending in self._transactions.values():
            pending.pop(partition, None)
        if len(self._in_flight.get(partition, ())) > 1:
            self._removed[partition] = order
