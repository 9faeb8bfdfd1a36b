"""Exactly-once in a fault test: members of a group copy records, each poll in a transaction with the group's offsets (KIP-447)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Consumer, Producer, TopicPartition

from simulation.histories import Commit, Operation, Outcome, Poll
from tests.cluster_faults.consuming import ConfluentConsuming
from tests.cluster_faults.journal import Journal, now
from tests.cluster_faults.transactions import TOPIC, TransactionalProducing
from tests.crash.ledger import Lost

GROUP = "copiers"
_OF = ":"  # in the name of a copy, before the partition and the offset of its original


class Copying(TransactionalProducing):
    """confluent-kafka. The copy of the record at offset 7 of partition 3 is named `NAME-NUMBER:3-7`."""

    def __init__(self, name: str, bootstrap: str, source: str, journal: Journal, *, debug: bool = False) -> None:
        super().__init__(name, bootstrap, journal, debug=debug)
        self._source = source
        self._member = ConfluentConsuming(f"{name}-consumer", bootstrap, source, GROUP, journal)
        self._read: dict[int, list[tuple[int, str]]] = {}
        self._consumer: Consumer | None = None

    def _run(self) -> None:
        self._member.end = self.end
        self._consumer = self._member.subscribed()
        try:
            super()._run()
            self._member.check()
        finally:
            self._consumer.close()

    def _transaction(self, producer: Producer) -> bool:
        """Copy the records of one poll; whether the producer can be used for another one."""
        assert self._consumer is not None
        self._read = self._member.poll(self._consumer)
        if not self._read:
            return True
        usable = super()._transaction(producer)
        if self._read and self._consumer.assignment():  # they were not copied
            self._member.assign(self._consumer, self._consumer.assignment())
        return usable

    def _work(self, producer: Producer, name: str) -> bool:
        """What a transaction does."""
        assert self._consumer is not None
        for partition, records in self._read.items():
            for offset, _ in records:
                self._send(producer, name, f"{_OF}{partition}-{offset}")
        metadata = self._consumer.consumer_group_metadata()
        offsets = [TopicPartition(self._source, partition, offset) for partition, offset in self._offsets().items()]
        self._retried(lambda timeout_s: producer.send_offsets_to_transaction(offsets, metadata, timeout_s))
        self._retried(producer.flush)
        self._commit(producer, name)
        self._read = {}
        return True

    def _offsets(self) -> dict[int, int]:
        return {partition: records[-1][0] + 1 for partition, records in self._read.items()}

    def _ended(self, name: str, began: int, outcome: Outcome, *, committed: bool) -> None:
        if committed:
            for partition, offset in self._offsets().items():
                number = next(self._numbers)
                self._journal.add(
                    Commit(self.name, number, GROUP, self._source, partition, offset, began, now(), outcome, transaction=name))
        super()._ended(name, began, outcome, committed=committed)


def check_copies(operations: Iterable[Operation], reader: str, originals: Iterable[tuple[int, int]]) -> str:
    """Lost if `reader` did not receive exactly one copy of each original, as (partition, offset); how many there are."""
    copies: Counter[tuple[int, int]] = Counter()
    for poll in operations:
        if isinstance(poll, Poll) and poll.client == reader and poll.topic == TOPIC:
            for _, value in poll.records:
                _, _, original = value.partition(_OF)
                if original:
                    partition, _, offset = original.partition("-")
                    copies[int(partition), int(offset)] += 1
    expected = set(originals)
    twice = sorted(each for each, times in copies.items() if times > 1)
    missing = sorted(expected - copies.keys())
    if twice or missing:
        raise Lost(f"of {len(expected)} records {len(twice)} were copied twice: {twice[:5]}; {len(missing)} not at all: {missing[:5]}")
    return f"{len(expected)} records copied exactly once"
