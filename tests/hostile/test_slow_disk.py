"""A disk that does not answer: workers wait for it, and the reactor goes on answering what does not need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fuzz.inprocess import InProcessBroker
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.broker.environment import Environment
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.metadata import MetadataRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
SEGMENT_BYTES = 65536  # log.segment.bytes


class Blocked(AssertionError):
    """The reactor's thread would wait for the disk."""


class StuckDisk:
    """While it is `stuck`, what workers get waits, and a sync by the reactor is a fault."""

    def __init__(self) -> None:
        self.stuck = False
        self.waiting: list[Callable[[], None]] = []
        self._disks: list[FaultyDisk] = []

    def in_front_of(self, environment: Environment) -> Environment:
        disk = FaultyDisk(environment.disk)
        self._disks.append(disk)
        later = environment.later

        def held(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
            def run() -> None:
                later(0, work, done)

            # A job that is due while the disk is stuck waits until it is not.
            later(delay_ms, lambda: None, lambda: self.waiting.append(run) if self.stuck else run())

        return replace(environment, disk=disk, later=held)

    def stick(self) -> None:
        self.stuck = True
        for disk in self._disks:
            disk.fail("sync", error=Blocked)

    def release(self) -> None:
        self.stuck = False
        for disk in self._disks:
            disk.repair()
        waiting, self.waiting = self.waiting, []
        for run in waiting:
            run()


@pytest.fixture
def disk() -> StuckDisk:
    return StuckDisk()


@pytest.fixture
def broker(disk: StuckDisk) -> Iterator[InProcessBroker]:
    made = InProcessBroker(disk.in_front_of)
    synced = CreatableTopic(name="synced", num_partitions=1, replication_factor=1, assignments=[],
                            configs=[CreatableTopicConfig(name="flush.messages", value="1")])
    made.exchange([made.frame(CreateTopicsRequest(topics=[synced], timeout_ms=5000), 7)])
    yield made
    disk.release()
    made.close()


def produce(broker: InProcessBroker, topic: str, acks: int = -1) -> tuple[Any, int, bytes]:
    records = build([Record(0, NOW, b"k", bytes(SEGMENT_BYTES // 4))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return broker.frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), 9)


def test_the_reactor_answers_while_the_disk_does_not(broker: InProcessBroker, disk: StuckDisk) -> None:
    disk.stick()
    for acks in (1, -1):
        output, closed = broker.send([produce(broker, "synced", acks)[2]], wait_s=5.0)
        assert (output, closed) == (b"", False), "it waits for the sync"
    assert disk.waiting
    for number in range(12):  # rolls segments, which are synced by workers
        (produced,) = broker.exchange([produce(broker, "known")], wait_s=0.1)
        assert produced.responses[0].partition_responses[0].error_code == 0
        partition = FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="known", partitions=[partition])])
        (fetched,) = broker.exchange([broker.frame(fetch, 11)], wait_s=0.1)
        assert len(fetched.responses[0].partitions[0].records) > SEGMENT_BYTES // 4
    (metadata,) = broker.exchange([broker.frame(MetadataRequest(topics=None), 9)], wait_s=0.1)
    assert {"known", "synced"} <= {topic.name for topic in metadata.topics}
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=None)
    commit = OffsetCommitRequestTopic(name="known", partitions=[offset])
    (committed,) = broker.exchange([broker.frame(OffsetCommitRequest(group_id="slow", topics=[commit]), 8)], wait_s=0.1)
    assert committed.topics[0].partitions[0].error_code == 0
    (deleted,) = broker.exchange([broker.frame(DeleteTopicsRequest(topic_names=["compacted"], timeout_ms=5000), 5)], wait_s=1.0)
    assert deleted.responses[0].error_code == 0
    disk.release()
    (produced,) = broker.exchange([produce(broker, "synced")], wait_s=0.1)
    answer = produced.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 2), "what was sent before is in the log"
