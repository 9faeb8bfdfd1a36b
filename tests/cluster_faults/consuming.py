"""Members of consumer groups of a fault test: they read from the committed offset on, and commit after each poll."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import CommitFailedError, KafkaConnectionError, UnknownBrokerIdError
from kafka.errors import KafkaError as PythonKafkaError

from simulation.histories import Assign, Commit, FetchedCommit, Outcome, Poll
from tests.cluster_faults.client import FaultClient
from tests.cluster_faults.journal import Journal, now

POLL_S = 0.2
NO_OFFSET = -1
# A commit that is refused because the group rebalances, or that has no answer: the member reads again from what is committed.
_OUTDATED = frozenset({
    KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID, KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT, KafkaError._WAIT_COORD, KafkaError._ASSIGNMENT_LOST, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
})  # fmt: skip
# kafka-python raises these while no broker runs, or when a broker left its metadata in the middle of a call; the next call goes on.
_BROKER_GONE = (KafkaConnectionError, UnknownBrokerIdError)


class Consuming(FaultClient):
    """One member of `group`."""

    def __init__(self, name: str, bootstrap: str, topic: str, group: str, journal: Journal) -> None:
        super().__init__(name, bootstrap, topic, journal)
        self.group = group
        self._next: dict[int, int] = {}

    def _assigned(self, partition: int, offset: int, began: int) -> None:
        """The member begins to read at the committed offset, or at the start if that is NO_OFFSET."""
        number = next(self._numbers)
        self._journal.add(FetchedCommit(self.name, number, self.group, self._topic, partition, offset, began, now()))
        self._next[partition] = max(offset, 0)
        self._journal.add(Assign(self.name, next(self._numbers), self._topic, partition, self._next[partition]))

    def _received(self, partition: int, records: list[tuple[int, str]], began: int) -> None:
        self._journal.add(Poll(self.name, next(self._numbers), self._topic, partition, tuple(records), began, now()))
        self._next[partition] = records[-1][0] + 1

    def _commits(self, partitions: list[int]) -> dict[int, int]:
        return {partition: self._next[partition] for partition in partitions}

    def _committed(self, offsets: dict[int, int], began: int, outcome: Outcome) -> None:
        for partition, offset in offsets.items():
            self._journal.add(
                Commit(self.name, next(self._numbers), self.group, self._topic, partition, offset, began, now(), outcome))


class ConfluentConsuming(Consuming):
    """confluent-kafka."""

    def _run(self) -> None:
        consumer = self.subscribed()
        try:
            while not self.end.is_set():
                found = self.poll(consumer)
                if found:
                    self._commit(consumer, self._commits(list(found)))
        finally:
            consumer.close()

    def subscribed(self) -> Consumer:
        """A consumer that begins at the committed offsets of what it is assigned."""
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": self.group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 500, "log_level": 0,
        })  # fmt: skip
        consumer.subscribe([self._topic], on_assign=self.assign, on_revoke=self._on_revoke)
        return consumer

    def poll(self, consumer: Consumer) -> dict[int, list[tuple[int, str]]]:
        """The records of one poll by partition, as (offset, value)."""
        began = now()
        found: dict[int, list[tuple[int, str]]] = defaultdict(list)
        messages: list[Any] = consumer.consume(200, POLL_S)
        for message in messages:
            problem = message.error()
            if problem is None:
                found[message.partition()].append((message.offset(), name_of(message.value())))
            else:
                self._allow(problem)
        for partition, records in found.items():
            self._received(partition, records, began)
        return found

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        began = now()
        try:
            answers = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._committed(offsets, began, Outcome.UNKNOWN)
            self._allow(error.args[0])
            return
        for answer in answers or ():
            self._committed({answer.partition: answer.offset}, began, Outcome.OK if answer.error is None else Outcome.UNKNOWN)
            if answer.error is not None:
                self._allow(answer.error)

    def assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Read these partitions from their committed offsets on."""
        try:
            while not self.end.is_set():
                began = now()
                try:
                    found = consumer.committed(partitions, timeout=10)
                except KafkaException as error:
                    self._allow(error.args[0])
                    continue
                if all(each.error is None for each in found):
                    break
            else:
                return
            for each in found:
                self._assigned(each.partition, max(each.offset, NO_OFFSET), began)  # another negative number: nothing is committed
                each.offset = self._next[each.partition]
            consumer.assign(found)
        except BaseException as error:  # the library does not pass it on
            self.failed(error)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._next.pop(each.partition, None)

    def _allow(self, error: KafkaError) -> None:
        if not error.retriable() and error.code() not in _OUTDATED:
            raise KafkaException(error)


class KafkaPythonConsuming(Consuming):
    """kafka-python."""

    def _run(self) -> None:
        consumer = KafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap.split(","), group_id=self.group, enable_auto_commit=False,
            auto_offset_reset="earliest", reconnect_backoff_max_ms=500)
        try:
            while not self.end.is_set():
                began = now()
                batches = self._poll(consumer)
                for part, records in batches.items():
                    first = records[0].offset
                    if self._next.get(part.partition) != first:
                        # After an assignment in `poll`, which does not say that there was one.
                        self._assigned(part.partition, first or NO_OFFSET, began)
                    self._received(part.partition, [(record.offset, name_of(record.value)) for record in records], began)
                if batches:
                    self._commit(consumer, self._commits([part.partition for part in batches]))
                for partition in self._next.keys() - {part.partition for part in consumer.assignment()}:
                    del self._next[partition]
        finally:
            consumer.close()

    def _poll(self, consumer: KafkaConsumer) -> dict[Any, list[Any]]:
        try:
            batches: dict[Any, list[Any]] = consumer.poll(POLL_S * 1000, max_records=200)
        except _BROKER_GONE:
            return {}
        return batches

    def _commit(self, consumer: KafkaConsumer, offsets: dict[int, int]) -> None:
        began, outcome = now(), Outcome.UNKNOWN
        try:
            consumer.commit({PythonTopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
                             for partition, offset in offsets.items()})
            outcome = Outcome.OK
        except (CommitFailedError, *_BROKER_GONE):
            pass  # the group rebalances, or the coordinator is gone
        except PythonKafkaError as error:
            if not error.retriable:
                raise
        finally:
            self._committed(offsets, began, outcome)


def name_of(value: bytes) -> str:
    """The value of the history: the padding is left out."""
    return value.partition(b" ")[0].decode()
