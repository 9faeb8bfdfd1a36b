"""The offsets of one group: committed ones, those being written to the log, and those of open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txbroker.groups.group_results import CommittedOffset
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition


@lazy_dataclass(frozen=True, slots=True)
class Write:
    """Offsets (None: removals) that are being written to the log; `order` is their place among all writes of the group.

    `producer_id`: of the transaction that they belong to.
    """

    order: int
    offsets: Mapping[TopicPartition, CommittedOffset | None]
    producer_id: int | None = None


@lazy_dataclass(frozen=True, slots=True)
class _Committed:
    order: int
    offset: CommittedOffset


class GroupOffsets:
    """The offsets of a group. A write is visible when it is settled, and never replaces one that follows it in the log."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, _Committed] = {}
        self._in_flight: dict[TopicPartition, set[int]] = {}
        self._removed: dict[TopicPartition, int] = {}  # order of the last removal, while older writes are in flight
        self._transactions: dict[int, dict[TopicPartition, _Committed]] = {}  # producer id -> offsets of its open transaction
        self._transactional: dict[int, set[int]] = {}  # producer id -> writes of its open transaction that are in flight
        self._ended: dict[int, bool] = {}  # writes in flight whose transaction has ended: whether it was committed
        self._order = 0

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """The committed offsets."""
        return ((partition, committed.offset) for partition, committed in self._committed.items())

    @property
    def is_unused(self) -> bool:
        """Whether no offset is committed, in flight or in a transaction."""
        return not (self._committed or self._in_flight or self._transactions)

    def would_be_unused_without(self, count: int) -> bool:
        """Whether it would be unused without `count` of the committed offsets."""
        return len(self._committed) == count and not (self._in_flight or self._transactions)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """The committed offset, if any."""
        committed = self._committed.get(partition)
        return None if committed is None else committed.offset

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a write or an open transaction may still change this offset (KIP-447)."""
        return partition in self._in_flight or any(partition in offsets for offsets in self._transactions.values())

    def partitions(self) -> list[TopicPartition]:
        """The partitions with an offset that is committed, or pending in an open transaction."""
        return list(dict.fromkeys([*self._committed, *(partition for offsets in self._transactions.values() for partition in offsets)]))

    def begin(self, offsets: Mapping[TopicPartition, CommittedOffset | None], producer_id: int | None = None) -> Write:
        """Begin a write. Writes must be appended to the log in the order in which they begin."""
        self._order += 1
        for partition in offsets:
            self._in_flight.setdefault(partition, set()).add(self._order)
        if producer_id is not None:
            self._transactional.setdefault(producer_id, set()).add(self._order)
        return Write(self._order, offsets, producer_id)

    def settle(self, write: Write, succeeded: bool) -> None:
        """End a write: it is in the log, or it has failed. Offsets of a transaction are pending until it ends."""
        committed = self._outcome(write)
        for partition, offset in write.offsets.items():
            if succeeded and committed:
                self._put(partition, write.order, offset)
            elif succeeded and committed is None and write.producer_id is not None:
                self._put_pending(write.producer_id, partition, write.order, offset)
            orders = self._in_flight[partition]
            orders.discard(write.order)
            if not orders:
                del self._in_flight[partition]
                self._removed.pop(partition, None)

    def _outcome(self, write: Write) -> bool | None:
        """Whether a write counts, if it is in the log; None if its transaction is open."""
        if write.producer_id is None:
            return True
        in_flight = self._transactional.get(write.producer_id)
        if in_flight is not None:
            in_flight.discard(write.order)
            if not in_flight:
                del self._transactional[write.producer_id]
        return self._ended.pop(write.order, None)

    def has_transaction(self, producer_id: int) -> bool:
        """Whether offsets are pending in a producer's transaction, or are being written in it."""
        return producer_id in self._transactions or producer_id in self._transactional

    def replay(self, partition: TopicPartition, offset: CommittedOffset | None) -> None:
        """A write that has been read from the log."""
        self.settle(self.begin({partition: offset}), True)

    def replay_transactional(self, producer_id: int, partition: TopicPartition, offset: CommittedOffset | None) -> None:
        """A transactional write that has been read from the log."""
        self.settle(self.begin({partition: offset}, producer_id), True)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """End a producer's transaction, if it has one: its offsets are committed or dropped.

        Writes in flight come before the marker in the log: a producer does not go on before its transaction has ended. The high watermark
        may pass both at once, so that the marker is seen before the answer to the write.
        """
        self._ended |= dict.fromkeys(self._transactional.pop(producer_id, ()), committed)
        for partition, pending in self._transactions.pop(producer_id, {}).items():
            if committed:
                self._put(partition, pending.order, pending.offset)

    def _put(self, partition: TopicPartition, order: int, offset: CommittedOffset | None) -> None:
        present = self._committed.get(partition)
        if (present is not None and present.order > order) or self._removed.get(partition, 0) > order:
            return
        if offset is not None:
            self._committed[partition] = _Committed(order, offset)
            return
        self._committed.pop(partition, None)
        for producer_id in list(self._transactions):
            self._drop_pending(producer_id, partition)
        if len(self._in_flight.get(partition, ())) > 1:
            self._removed[partition] = order

    def _put_pending(self, producer_id: int, partition: TopicPartition, order: int, offset: CommittedOffset | None) -> None:
        """The offset counts from its place in the log, when the transaction commits."""
        pending = self._transactions.get(producer_id, {}).get(partition)
        if (pending is not None and pending.order > order) or self._removed.get(partition, 0) > order:
            return
        if offset is None:
            self._drop_pending(producer_id, partition)
        else:
            self._transactions.setdefault(producer_id, {})[partition] = _Committed(order, offset)

    def _drop_pending(self, producer_id: int, partition: TopicPartition) -> None:
        pending = self._transactions.get(producer_id)
        if pending is not None and pending.pop(partition, None) is not None and not pending:
            del self._transactions[producer_id]
