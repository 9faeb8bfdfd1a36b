"""The load of a crash test: connections that produce, commit and administer, and record the responses.

Each worker runs on a thread until it is stopped or the broker is gone, and continues after the next start. Batches and messages are
kafka-python's.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.crash.ledger import Lost, OffsetLedger, PartitionLedger, TopicsLedger
from tests.support.raw import RawConnection
from tests.support.raw_log import Producer, batch
from tests.support.records import Sample
from tests.support.waiting import PATIENCE_S

CODECS = range(5)
ZSTD = 4
# The coordinator returns these while it loads groups from their partition.
NOT_YET = {14, 15, 16}
OUT_OF_ORDER_SEQUENCE = 45
IN_FLIGHT_MAX = 5  # of an idempotent producer: the broker keeps as many batches of each
Ledgers = dict[tuple[str, int], PartitionLedger]


class Worker(ABC):
    """One connection. `error`: why it failed, other than by the end of the broker."""

    def __init__(self, name: str, seed: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._chance = random.Random(f"{seed} {name}")
        self._count = 0
        self._thread: Thread | None = None

    def start(self, address: str, stop: Event) -> None:
        """Run on a thread until `stop` is set or the broker is gone."""
        self._thread = Thread(target=self._run, args=(address, stop), name=self.name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread; raises its error."""
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise AssertionError(f"{self.name} did not end in time")
        if self.error is not None:
            raise self.error

    def _run(self, address: str, stop: Event) -> None:
        try:
            with RawConnection(address, client_id=self.name) as connection:
                self.work(connection, stop)
        except TimeoutError:
            self.error = Lost(f"{self.name}: no response for {PATIENCE_S:.0f} s")
        except OSError:
            pass  # the broker was killed
        except BaseException as error:
            self.error = error

    @abstractmethod
    def work(self, connection: RawConnection, stop: Event) -> None:
        """Continue where the last call was interrupted."""

    def values(self, count: int) -> list[bytes]:
        """Unique values, a few of them large."""
        made = []
        for _ in range(count):
            self._count += 1
            size = self._chance.choice((0, 10, 100, 100, 1000, 20_000 if self._chance.random() < 0.05 else 300))
            made.append(b"%s %d " % (self.name.encode(), self._count) + self._chance.randbytes(size // 2).hex().encode())
        return made


def samples(values: Sequence[bytes]) -> list[Sample]:
    now_ms = time.time_ns() // 1_000_000
    return [Sample(b"key", value, (("header", b"value"),), now_ms) for value in values]


def produce_request(topic: str, data: dict[int, bytes], acks: int) -> ProduceRequest:
    topics = ProduceRequest.TopicProduceData
    parts = [topics.PartitionProduceData(index=partition, records=records) for partition, records in data.items()]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topics(name=topic, partition_data=parts)])


class PlainProducer(Worker):
    """Sends each batch once, several in flight, to several partitions of a topic."""

    def __init__(self, name: str, seed: str, ledgers: Ledgers, topic: str, *, acks: int, depth: int, legacy: bool = False) -> None:
        super().__init__(name, seed)
        self._ledgers = {partition: ledger for (of, partition), ledger in ledgers.items() if of == topic}
        self._topic = topic
        self._acks = acks
        self._depth = depth
        self._legacy = legacy

    def work(self, connection: RawConnection, stop: Event) -> None:
        sent: deque[tuple[ProduceRequest, dict[int, list[bytes]]]] = deque()
        while sent or not stop.is_set():
            while len(sent) < self._depth and not stop.is_set():
                sent.append(self._send(connection))
            self._receive(connection, *sent.popleft())

    def _send(self, connection: RawConnection) -> tuple[ProduceRequest, dict[int, list[bytes]]]:
        partitions = self._chance.sample(sorted(self._ledgers), self._chance.randint(1, 2))
        values = {partition: self.values(self._chance.randint(1, 20)) for partition in partitions}
        version = 2 if self._legacy else self._chance.choice((7, 8, 9, 11))
        data = {partition: self._batch(some) for partition, some in values.items()}
        for partition, some in values.items():
            self._ledgers[partition].sending(some, repeated=False)
        request = produce_request(self._topic, data, self._acks)
        connection.send(request, version)
        return request, values

    def _batch(self, values: Sequence[bytes]) -> bytes:
        codec = self._chance.choice(CODECS)
        if not self._legacy:
            return batch(samples(values), codec=codec)
        builder = LegacyRecordBatchBuilder(1, 0 if codec == ZSTD else codec, 1 << 30)
        for offset, sample in enumerate(samples(values)):
            builder.append(offset, sample.timestamp, sample.key, sample.value)
        return bytes(builder.build())

    def _receive(self, connection: RawConnection, request: ProduceRequest, values: dict[int, list[bytes]]) -> None:
        for answer in connection.receive(request).responses[0].partition_responses:
            ledger, some = self._ledgers[answer.index], values[answer.index]
            if answer.error_code == 0:
                ledger.acknowledged(answer.base_offset, some)
            else:
                raise Lost(f"{self.name}: {ledger.name} answered error {answer.error_code}")


class _Batch(NamedTuple):
    sequence: int
    values: list[bytes]
    records: bytes


class IdempotentProducer(Worker):
    """Sends each batch until it is acknowledged, up to five in flight to one partition, always with the same sequence.

    `tolerant`: the test damages the partition. After OUT_OF_ORDER_SEQUENCE_NUMBER the producer then gets a new producer id.
    """

    def __init__(self, name: str, seed: str, ledger: PartitionLedger, topic: str, partition: int, *, tolerant: bool, ids: set[int]) -> None:
        super().__init__(name, seed)
        self._ledger = ledger
        self._topic = topic
        self._partition = partition
        self._tolerant = tolerant
        self._ids = ids
        self._id = -1
        self._sequence = 0
        self._unanswered: deque[_Batch] = deque()

    def work(self, connection: RawConnection, stop: Event) -> None:
        while self._unanswered or not stop.is_set():
            if self._id < 0:
                self._take_id(connection)
            if not self._unanswered:
                self._unanswered.append(self._make())
            sent = deque(self._send(connection, again) for again in self._unanswered)
            while sent:
                if len(sent) < IN_FLIGHT_MAX and not stop.is_set():
                    made = self._make()
                    self._unanswered.append(made)
                    sent.append(self._send(connection, made))
                elif not self._receive(connection, *sent.popleft()):
                    for request, _ in sent:  # they were refused too
                        connection.receive(request)
                    break

    def _take_id(self, connection: RawConnection) -> None:
        answer = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 3)
        if answer.error_code:
            raise Lost(f"{self.name}: InitProducerId answered error {answer.error_code}")
        if answer.producer_id in self._ids:
            raise Lost(f"{self.name}: the producer id {answer.producer_id} was assigned twice")
        self._ids.add(answer.producer_id)
        self._id, self._sequence = answer.producer_id, 0

    def _make(self) -> _Batch:
        values = self.values(self._chance.randint(1, 10))
        records = batch(samples(values), codec=self._chance.choice(CODECS), producer=Producer(self._id, 0, self._sequence))
        self._ledger.sending(values, repeated=True)
        made = _Batch(self._sequence, values, records)
        self._sequence += len(values)
        return made

    def _send(self, connection: RawConnection, made: _Batch) -> tuple[ProduceRequest, _Batch]:
        request = produce_request(self._topic, {self._partition: made.records}, -1)
        connection.send(request, 9)
        return request, made

    def _receive(self, connection: RawConnection, request: ProduceRequest, made: _Batch) -> bool:
        (answer,) = connection.receive(request).responses[0].partition_responses
        if answer.error_code == 0:
            assert self._unanswered.popleft() is made
            self._ledger.acknowledged(answer.base_offset, made.values)
            return True
        if answer.error_code != OUT_OF_ORDER_SEQUENCE or not self._tolerant:
            raise Lost(f"{self.name}: {self._ledger.name} answered error {answer.error_code} to sequence {made.sequence} of "
                       f"producer {self._id}: {answer.error_message}")
        for lost in self._unanswered:
            self._ledger.abandoned(lost.values)
        self._unanswered.clear()
        self._id = -1
        return False


class RealProducer:
    """librdkafka's idempotent producer, with its own retries, which runs through all restarts."""

    def __init__(self, name: str, seed: str, ledger: PartitionLedger, topic: str, partition: int, address: str) -> None:
        self.error: BaseException | None = None
        self._name = name
        self._chance = random.Random(f"{seed} {name}")
        self._ledger = ledger
        self._topic = topic
        self._partition = partition
        self._address = address
        self._end = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            producer = ConfluentProducer({
                "bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 2, "compression.type": "lz4",
                "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 200, "log_level": 0, "queue.buffering.max.messages": 1000})
            count = 0
            while not self._end.is_set():
                count += 1
                value = b"%s %d " % (self._name.encode(), count) + self._chance.randbytes(self._chance.randrange(300))
                self._ledger.sending([value], repeated=True)
                while True:
                    try:
                        producer.produce(self._topic, value, b"key", self._partition, on_delivery=self._delivered)
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(self._chance.choice((0, 0.001, 0.01)))
            producer.flush(PATIENCE_S)
        except KafkaException as error:
            self.error = error

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.error = Lost(f"{self._name}: librdkafka could not deliver a record: {error}")
            self._end.set()
            return
        offset, value = message.offset(), message.value()  # type: ignore[attr-defined]
        try:
            self._ledger.acknowledged(offset, [value])
        except Lost as lost:
            self.error = lost

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Deliver the remaining records while the broker runs; raises the error, if there is one."""
        self._end.set()
        self._thread.join(PATIENCE_S)
        self.check()


class Committer(Worker):
    """Commits rising offsets for groups, without a member and as the only member of a group."""

    def __init__(self, name: str, seed: str, topic: str, partitions: int, ledgers: dict[tuple[str, int], OffsetLedger]) -> None:
        super().__init__(name, seed)
        self._topic = topic
        self._partitions = partitions
        self.ledgers = ledgers
        self._groups = [f"{name}-group-{i}" for i in range(3)]
        self._member_group = f"{name}-group-with-member"
        self._member: tuple[str, int] | None = None

    def work(self, connection: RawConnection, stop: Event) -> None:
        while not stop.is_set():
            if self._member is None:
                self._join(connection)
            group = self._chance.choice([*self._groups, self._member_group])
            if group != self._member_group:
                self._commit(connection, group, "", -1)
            elif self._member is not None:
                self._commit(connection, group, *self._member)
                if self._chance.random() < 0.1:
                    self._beat(connection, *self._member)

    def _join(self, connection: RawConnection) -> None:
        protocols = JoinGroupRequest.JoinGroupRequestProtocol
        joined = connection.call(JoinGroupRequest(
            group_id=self._member_group, session_timeout_ms=300_000, rebalance_timeout_ms=10_000, member_id="", group_instance_id=self.name,
            protocol_type="consumer", protocols=[protocols(name="range", metadata=b"\0")]), 5)
        if joined.error_code in NOT_YET:
            time.sleep(0.02)
            return
        if joined.error_code:
            raise Lost(f"{self.name}: JoinGroup answered error {joined.error_code}")
        assignments = SyncGroupRequest.SyncGroupRequestAssignment
        synced = connection.call(SyncGroupRequest(
            group_id=self._member_group, generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=self.name,
            assignments=[assignments(member_id=joined.member_id, assignment=b"all")]), 3)
        if synced.error_code == 0:
            self._member = joined.member_id, joined.generation_id

    def _commit(self, connection: RawConnection, group: str, member_id: str, generation: int) -> None:
        partition = self._chance.randrange(self._partitions)
        ledger = self.ledgers.setdefault((group, partition), OffsetLedger())
        offset = max(ledger.tried, 0) + self._chance.randint(1, 5)
        ledger.tried = offset
        topics = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topics.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=str(offset))
        answer = connection.call(OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
            topics=[topics(name=self._topic, partitions=[part])]), self._chance.choice((2, 5, 6, 8, 9)))
        code = answer.topics[0].partitions[0].error_code
        if code == 0:
            ledger.answered = offset
        elif code in NOT_YET:
            time.sleep(0.02)
        else:
            raise Lost(f"{self.name}: a commit for {group} (generation {generation}) answered error {code}")

    def _beat(self, connection: RawConnection, member_id: str, generation: int) -> None:
        answer = connection.call(HeartbeatRequest(group_id=self._member_group, generation_id=generation, member_id=member_id), 3)
        if answer.error_code and answer.error_code not in NOT_YET:
            raise Lost(f"{self.name}: the member of generation {generation} is no longer known: error {answer.error_code}")


class Administrator(Worker):
    """Creates, alters and deletes topics."""

    def __init__(self, name: str, seed: str, ledger: TopicsLedger, pause: Callable[[], float]) -> None:
        super().__init__(name, seed)
        self._ledger = ledger
        self._pause = pause

    def work(self, connection: RawConnection, stop: Event) -> None:
        while not stop.wait(self._pause()):
            what = self._chance.random()
            if what < 0.5 or len(self._ledger.created) < 3:
                self._create(connection)
            elif what < 0.7:
                self._alter(connection)
            else:
                self._delete(connection)

    def _create(self, connection: RawConnection) -> None:
        self._count += 1
        name, retention = f"{self.name}-{self._count}", str(self._chance.randrange(10**9, 10**10))
        topics = CreateTopicsRequest.CreatableTopic
        config = topics.CreatableTopicConfig(name="retention.ms", value=retention)
        wanted = topics(name=name, num_partitions=self._chance.randint(1, 3), replication_factor=1, assignments=[], configs=[config])
        (answer,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False), 7).topics
        if answer.error_code == 0:
            self._ledger.created[name] = answer.topic_id, retention
        else:
            raise Lost(f"{self.name}: creating {name} answered error {answer.error_code}")

    def _alter(self, connection: RawConnection) -> None:
        name = self._chance.choice(sorted(self._ledger.created))
        topic_id, _ = self._ledger.created.pop(name)  # until there is a response, either value may be stored
        retention = str(self._chance.randrange(10**9, 10**10))
        resources = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resources.AlterableConfig(name="retention.ms", config_operation=0, value=retention)
        request = IncrementalAlterConfigsRequest(resources=[resources(resource_type=2, resource_name=name, configs=[config])],
                                                 validate_only=False)
        (answer,) = connection.call(request, 1).responses
        if answer.error_code == 0:
            self._ledger.created[name] = topic_id, retention

    def _delete(self, connection: RawConnection) -> None:
        name = self._chance.choice(sorted(self._ledger.created))
        del self._ledger.created[name]
        topics = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(topics=[topics(name=name)], topic_names=[name], timeout_ms=10_000)
        (answer,) = connection.call(request, 6).responses
        if answer.error_code == 0:
            self._ledger.deleted.add(name)
