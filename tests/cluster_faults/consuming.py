"""Consumer groups of a fault test: members read without gaps, commit, and check that committed offsets never go back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import CommitFailedError, KafkaConnectionError, UnknownBrokerIdError
from kafka.errors import KafkaError as PythonKafkaError

from tests.crash.ledger import Lost, short
from tests.support.waiting import PATIENCE_S

POLL_S = 0.2
# A commit that is refused because the group rebalances, or that has no answer: the member reads again from what is committed.
_OUTDATED = frozenset({
    KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID, KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT, KafkaError._WAIT_COORD, KafkaError._ASSIGNMENT_LOST, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR,
})  # fmt: skip
# kafka-python raises these while no broker runs, or when a broker left its metadata in the middle of a call; the next call goes on.
_BROKER_GONE = (KafkaConnectionError, UnknownBrokerIdError)


class GroupLedger:
    """What a group committed and read, over all of its members."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._committed: dict[int, int] = {}
        self._values: dict[tuple[int, int], bytes] = {}
        self._lock = Lock()

    def committed(self) -> dict[int, int]:
        """The acknowledged commits, by partition."""
        with self._lock:
            return dict(self._committed)

    def commit_acknowledged(self, partition: int, offset: int) -> None:
        """The broker acknowledged a commit; of two members that share a partition one after the other, the second may be noted first."""
        with self._lock:
            self._committed[partition] = max(offset, self._committed.get(partition, -1))

    def check_fetched(self, before: dict[int, int], partition: int, offset: int) -> None:
        """Offset `offset`, -1 for none, was fetched for a partition after `before` was true."""
        if offset < before.get(partition, -1):
            raise Lost(f"{self.name}: {before[partition]} was committed for partition {partition}, later the committed offset was {offset}")

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """A member read a record."""
        with self._lock:
            known = self._values.setdefault((partition, offset), value)
        if known != value:
            raise Lost(f"{self.name}: offset {offset} of partition {partition} had {short(known)}, and later {short(value)}")

    def compare(self, partition: int, found: Iterable[tuple[int, bytes]]) -> None:
        """Compare with all records of a partition: the group read each of them, and nothing else."""
        values = dict(found)
        read = {offset: value for (of, offset), value in self._values.items() if of == partition}
        if read != values:
            wrong = sorted(offset for offset in read.keys() | values.keys() if read.get(offset) != values.get(offset))
            first = wrong[0]
            raise Lost(f"{self.name}: {len(wrong)} of {len(values)} records of partition {partition} were read differently, the first at "
                       f"offset {first}: {short(read.get(first, b'nothing'))} instead of {short(values.get(first, b'nothing'))}")


class Consuming(ABC):
    """One member on a thread."""

    kind: str

    def __init__(self, bootstrap: str, topic: str, group: GroupLedger) -> None:
        self.error: BaseException | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._next: dict[int, int] = {}
        self.end = Event()
        self._thread = Thread(target=self._run, name=f"{self.kind} of {group.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group; raises what went wrong."""
        self.end.set()
        self._thread.join(PATIENCE_S)
        self.check()
        if self._thread.is_alive():
            raise Lost(f"{self._thread.name} does not end")

    def check(self) -> None:
        """Raise what went wrong."""
        if self.error is not None:
            raise Lost(f"{self._thread.name}: {self.error!r}") from self.error

    def _run(self) -> None:
        try:
            self._consume()
        except BaseException as error:
            self.error = self.error or error

    def _received(self, partition: int, offset: int, value: bytes) -> None:
        expected = self._next.get(partition)
        if expected != offset:
            raise Lost(f"received offset {offset} of partition {partition}, where {expected} was next")
        self._next[partition] = offset + 1
        self._group.read(partition, offset, value)

    @abstractmethod
    def _consume(self) -> None:
        """Read and commit until the end."""


class ConfluentConsuming(Consuming):
    """confluent-kafka."""

    kind = "confluent"

    def _consume(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": self._group.name, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 500, "log_level": 0,
        })  # fmt: skip
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not self.end.is_set() and self.error is None:
                moved: set[int] = set()
                messages: list[Any] = consumer.consume(200, POLL_S)
                for message in messages:
                    problem = message.error()
                    if problem is None:
                        self._received(message.partition(), message.offset(), message.value())
                        moved.add(message.partition())
                    elif not problem.retriable() and problem.code() not in _OUTDATED:
                        raise KafkaException(problem)
                if moved:
                    self._commit(consumer, {partition: self._next[partition] for partition in moved})
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            answers = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._allow(error.args[0])
            return
        for answer in answers or ():
            if answer.error is None:
                self._group.commit_acknowledged(answer.partition, answer.offset)
            else:
                self._allow(answer.error)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            while not self.end.is_set():
                before = self._group.committed()
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
                offset = max(each.offset, -1)  # another negative number: nothing is committed
                self._group.check_fetched(before, each.partition, offset)
                each.offset = self._next[each.partition] = max(offset, 0)
            consumer.assign(found)
        except BaseException as error:  # the library does not pass it on
            self.error = self.error or error

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._next.pop(each.partition, None)

    def _allow(self, error: KafkaError) -> None:
        if not error.retriable() and error.code() not in _OUTDATED:
            raise KafkaException(error)


class KafkaPythonConsuming(Consuming):
    """kafka-python."""

    kind = "kafka-python"

    def _consume(self) -> None:
        consumer = KafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap.split(","), group_id=self._group.name, enable_auto_commit=False,
            auto_offset_reset="earliest", reconnect_backoff_max_ms=500)
        try:
            while not self.end.is_set():
                before = self._group.committed()
                batches = self._poll(consumer)
                for part, records in batches.items():
                    if part.partition not in self._next or records[0].offset != self._next[part.partition]:
                        self._begin(part.partition, records[0].offset, before)
                    for record in records:
                        self._received(record.partition, record.offset, record.value)
                if batches:
                    self._commit(consumer, {part: self._next[part.partition] for part in batches})
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

    def _begin(self, partition: int, offset: int, before: dict[int, int]) -> None:
        """A member begins at the committed offset; after an assignment in `poll`, which does not say that there was one."""
        self._group.check_fetched(before, partition, offset)
        self._next[partition] = offset

    def _commit(self, consumer: KafkaConsumer, offsets: dict[PythonTopicPartition, int]) -> None:
        try:
            consumer.commit({part: OffsetAndMetadata(offset, "", -1) for part, offset in offsets.items()})
        except (CommitFailedError, *_BROKER_GONE):
            return  # the group rebalances, or the coordinator is gone
        except PythonKafkaError as error:
            if not error.retriable:
                raise
            return
        for part, offset in offsets.items():
            self._group.commit_acknowledged(part.partition, offset)
