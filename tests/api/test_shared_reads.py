"""Fetches that wait for the same records share what is read, and return the same as fetches that read alone."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.api.lone_broker import alone
from tests.api.responses import frame, message
from tests.log.support import NOW
from tests.support.examples import examples
from tests.support.fakes.replication import ALL_ALIVE
from txbroker.api.encoded.response_frame import Frame
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.parking import ParkedRequest
from txbroker.api.request_context import RequestContext, Session
from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.local_replica import Leadership
from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Origin
from txbroker.log.region import Region
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.security.principals import ANONYMOUS
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.records import Record, build

OWN, OTHER = 1, 2
WHERE = TopicPartition("orders", 0)
SESSION = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
PRODUCER = 7


class Replicas:
    """One partition, which may be absent."""

    def __init__(self, partition: Partition) -> None:
        self.here: Partition | None = partition
        self.broker_id = OWN

    def find(self, topic: str, partition: int) -> Partition | None:
        return self.here if (topic, partition) == WHERE else None

    def get(self, topic: str, partition: int) -> Partition:
        found = self.find(topic, partition)
        if found is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found


class Reading:
    """A handler whose fetches share what they read, or do not, and the responses to its fetches in order."""

    def __init__(self, partition: Partition, *, shares: bool, sessions: int = 0) -> None:
        self.clock = Clock()
        self.purgatory = Purgatory(self.clock, "fetch")
        self.replicas = Replicas(partition)
        replicas: Any = self.replicas
        numbers = itertools.count(1)
        self.sessions = FetchSessions(sessions, lambda: next(numbers))
        self.handler = FetchHandler(
            replicas, ClusterImage(), self.sessions, self.purgatory, lambda: 0.0, **alone(), fetch_max_bytes=1 << 20
        )
        if not shares:
            partitions = self.handler.parts.partitions
            partitions.read_moved = lambda *arguments: partitions.read(*arguments[:-1])  # type: ignore[method-assign]
        self.responses: list[tuple[int, Any]] = []

    def fetch(self, number: int, request: FetchRequest, version: int) -> None:
        answer: Any = self.handler(request, RequestContext(1, version, number, None, SESSION))
        if isinstance(answer, ParkedRequest):
            answer.when_answered(self._note, number, version)
        else:
            self._note(answer, number, version)

    def _note(self, answer: Any, number: int, version: int) -> None:
        response = message(answer, FetchRequest, version, number)
        for partition in (partition for topic in response.responses for partition in topic.partitions):
            if isinstance(partition.records, Region):
                partition.records = partition.records.read()
        self.responses.append((number, response))


class Moves:
    """The observer of a partition."""

    def moved(self, partition: Partition) -> None: ...

    def committed(self, partition: Partition) -> None: ...

    def storage_failed(self, partition: Partition, error: StorageError) -> None: ...

    def truncated(self, partition: Partition) -> None: ...

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None: ...


@contextmanager
def leading() -> Iterator[Partition]:
    disk = MemoryDisk()
    disk.make_directory("/data")
    log = Log.open("/data/orders-0", WHERE, disk=disk, config=LogConfig(segment_bytes=500), now_ms=NOW)
    partition = Partition(OWN, log, Moves(), lambda log, done: None, ALL_ALIVE)
    partition.lead(Leadership(OWN, 3, (OWN,), (OWN,), 0))
    yield partition


def data(count: int, transactional: bool, sequence: int) -> memoryview:
    producer: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence} if transactional else {}
    return memoryview(bytearray(build([Record(n, NOW, None, b"value") for n in range(count)], transactional=transactional, **producer)))


APPEND = st.tuples(st.just("append"), st.integers(1, 3), st.booleans())
FETCH = st.tuples(st.just("fetch"), st.integers(0, 5), st.tuples(
    st.sampled_from([10, 11, 12, 7]), st.sampled_from([1, 0, 100, 200]), st.sampled_from([1000, 0]), st.integers(0, 1),
    st.sampled_from([1000, 150, 60]), st.sampled_from([-1, -1, -1, 2, 3, 4])))
STEPS = st.one_of(
    APPEND,
    APPEND,
    FETCH,
    FETCH,
    FETCH,
    st.tuples(st.just("end transaction"), st.booleans(), st.none()),
    st.tuples(st.just("delete records"), st.integers(0, 8), st.none()),
    st.tuples(st.just("epoch"), st.booleans(), st.none()),
    st.tuples(st.just("remove"), st.none(), st.none()),
    st.tuples(st.just("time"), st.none(), st.none()),
)


@settings(max_examples=examples(500))
@given(st.lists(STEPS, max_size=25))
@example([("append", 1, True), ("fetch", 0, (10, 100, 1000, 1, 60, -1)), ("end transaction", False, None)])  # aborted, below min.bytes
def test_shared_reads_are_what_each_fetch_would_find(steps: list[tuple[str, Any, Any]]) -> None:
    with leading() as partition:
        both = [Reading(partition, shares=True), Reading(partition, shares=False)]
        sequence, epoch = 0, 3
        for number, (what, first, second) in enumerate(steps):
            if what == "append":
                if partition.is_leader:
                    partition.append(data(first, second, sequence), NOW)
                    sequence += first if second else 0
            elif what == "end transaction":
                if partition.is_leader and partition.last_stable_offset < partition.high_watermark:
                    marker = build_marker(Marker(first, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=NOW)
                    partition.append(memoryview(bytearray(marker)), NOW, origin=Origin.COORDINATOR)
            elif what == "delete records":
                if first <= partition.high_watermark:
                    partition.delete_records(first)
            elif what == "epoch":
                epoch += 1
                partition.lead(Leadership(OWN, epoch, (OWN,), (OWN,), epoch)) if first else partition.follow(
                    Leadership(OTHER, epoch, (OTHER,), (OWN, OTHER), epoch)
                )
            elif what == "remove":
                for reading in both:
                    reading.replicas.here = None
            for reading in both:
                if what == "fetch":
                    version, min_bytes, wait_ms, isolation, bytes_max, leader_epoch = second
                    wanted = FetchPartition(partition=0, fetch_offset=first, partition_max_bytes=bytes_max,
                                            current_leader_epoch=leader_epoch)
                    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1000, isolation_level=isolation,
                                           topics=[FetchTopic(topic="orders", partitions=[wanted])])
                    reading.fetch(number, request, version)
                    reading.fetch(-number, request, version)
                elif what == "time":
                    reading.clock.advance(0.6)
                else:
                    reading.purgatory.check(WHERE)
            assert both[0].responses == both[1].responses
        for reading in both:
            reading.clock.advance(2)
        assert both[0].responses == both[1].responses
        assert both[0].handler.errors == both[1].handler.errors


def count_reads(partition: Partition) -> list[int]:
    """Notes the reads of the partition's log from now on."""
    reads: list[int] = []
    log = partition.log

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def read(self, *arguments: Any, **named: Any) -> Any:
            reads.append(1)
            return log.read(*arguments, **named)

    partition.log = Counted()  # type: ignore[assignment]
    return reads


def request_of(principal: str, number: int, version: int = 11) -> RequestContext:
    session = Session(
        peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=number, principal=principal
    )
    return RequestContext(1, version, number, None, session)


def waiting(reading: Reading, principals: list[str]) -> list[Frame]:
    """Fetches that wait for the first record; their answers."""
    answers: list[Frame] = []
    for number, principal in enumerate(principals):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[wanted])])
        answer: Any = reading.handler(request, request_of(principal, number))
        answer.when_answered(answers.append)
    return answers


def test_fetches_that_wait_for_the_same_records_share_their_response() -> None:
    with leading() as partition:
        reading = Reading(partition, shares=True)
        answers = waiting(reading, [ANONYMOUS] * 5)
        partition.append(data(1, False, 0), NOW)
        reads = count_reads(partition)
        reading.purgatory.check(WHERE)
        assert len(reads) == 1
        assert [frame(answer)[4:8] for answer in answers] == [number.to_bytes(4, "big") for number in range(5)]
        assert len({frame(answer)[8:] for answer in answers}) == 1
        (topic,) = message(answers[0], FetchRequest, 11, 0).responses
        assert partition.counts.bytes_out == 5 * len(topic.partitions[0].records)
        assert partition.counts.fetch_requests == 5


def test_principals_do_not_share_what_they_read() -> None:
    with leading() as partition:
        reading = Reading(partition, shares=True)
        answers = waiting(reading, ["User:a", "User:b", "User:b", "User:a"])
        partition.append(data(1, False, 0), NOW)
        reads = count_reads(partition)
        reading.purgatory.check(WHERE)
        assert len(reads) == 2
        assert len({frame(answer)[8:] for answer in answers}) == 1


def test_sessions_that_wait_for_the_same_record_read_it_once() -> None:
    """Three groups of consumers, for example."""
    with leading() as partition:
        reading = Reading(partition, shares=True, sessions=3)
        answers: list[Frame] = []
        topics = [FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]
        for number in range(3):
            first: Any = reading.handler(
                FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, session_id=0, session_epoch=0), request_of(ANONYMOUS, number)
            )
            session_id = message(first, FetchRequest, 11, number).session_id
            answer: Any = reading.handler(
                FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[], session_id=session_id, session_epoch=1),
                request_of(ANONYMOUS, number),
            )
            answer.when_answered(answers.append)
        partition.append(data(1, False, 0), NOW)
        reads = count_reads(partition)
        reading.sessions.moved(WHERE)
        reading.purgatory.check(*reading.sessions.take_moved())
        assert len(reads) == 1
        found = [message(answer, FetchRequest, 11, number) for number, answer in enumerate(answers)]
        assert [response.session_id for response in found] == [1, 2, 3]
        assert len({response.responses[0].partitions[0].records for response in found}) == 1


def test_a_shared_response_does_not_keep_the_files_of_a_deleted_topic_open() -> None:
    with leading() as partition:
        reading = Reading(partition, shares=True)
        before = sys.getrefcount(partition), sys.getrefcount(partition.log)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        reading.fetch(1, FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[wanted])]), 11)
        partition.append(data(1, False, 0), NOW)
        reading.purgatory.check(WHERE)
        assert len(reading.responses) == 1
        assert (sys.getrefcount(partition), sys.getrefcount(partition.log)) == before
