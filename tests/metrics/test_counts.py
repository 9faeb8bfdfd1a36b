"""Counters of requests: errors in responses, latencies, traffic of topics, reasons of closed connections."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.test_partition import Moves
from tests.cluster.test_replicas import ReplicasHarness
from tests.log.support import NOW, batch, open_log
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.replication import ALL_ALIVE
from tests.transport.test_connection import Heartbeats, Peer, generation
from txbroker.api.registry import Registry, route_key
from txbroker.api.request_counts import SAMPLED_ONE_IN, SAMPLES_KEPT, Errors, ErrorTally, RequestTimes
from txbroker.cluster.local_replica import Leadership
from txbroker.cluster.partition import Partition
from txbroker.errors import ErrorCode
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from txbroker.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState


def tallied(response: Any) -> Errors:
    errors: Errors = Errors()
    ErrorTally(type(response), errors)(response)
    return errors


def test_errors_are_found_wherever_a_response_has_them() -> None:
    def partition(error: ErrorCode) -> MetadataResponsePartition:
        return MetadataResponsePartition(error_code=error, partition_index=0, leader_id=1, replica_nodes=[], isr_nodes=[])

    topics = [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="a", partitions=[]),
        MetadataResponseTopic(error_code=0, name="b", partitions=[partition(ErrorCode.LEADER_NOT_AVAILABLE), partition(ErrorCode.NONE)]),
    ]
    assert tallied(MetadataResponse(brokers=[], topics=topics)) == {3: 1, 5: 1}
    assert tallied(HeartbeatResponse(error_code=27)) == {27: 1}
    assert tallied(HeartbeatResponse(error_code=0)) == {}
    of_group = OffsetFetchResponseTopics(
        name="t", partitions=[OffsetFetchResponsePartitions(partition_index=0, committed_offset=1, metadata="", error_code=88)]
    )
    groups = [OffsetFetchResponseGroup(group_id="g", error_code=0, topics=[of_group]),
              OffsetFetchResponseGroup(group_id="h", error_code=16, topics=[])]
    assert tallied(OffsetFetchResponse(groups=groups)) == {88: 1, 16: 1}


def test_errors_counted_by_a_handler_are_counted_once() -> None:
    class Counting(Heartbeats):
        errors = Errors()

    registry = Registry([Counting(generation)])
    registry.routes[route_key(12, 0)].encode(HeartbeatResponse(error_code=27))
    assert registry.errors == {12: {}}
    assert registry.errors[12] is Counting.errors


def test_requests_are_counted_by_version_and_errors_by_api() -> None:
    peer = Peer(Heartbeats(generation))
    for number in range(40):
        peer.beat(number % 2 * 27, version=number % 4)
    registry = peer.connection._registry
    assert [registry.routes[route_key(12, version)].requests for version in range(5)] == [10, 10, 10, 10, 0]
    assert registry.errors == {12: {27: 20}}
    assert not registry.times[12].latest, "nothing is timed without a clock"


def test_every_sixteenth_request_is_timed_from_the_first_on() -> None:
    now = 100.0
    waiting: list[Deferred[HeartbeatResponse]] = []

    def answer(request: HeartbeatRequest, context: object) -> Any:
        nonlocal now
        now += 1.0
        if request.generation_id == 1:
            waiting.append(Deferred())
            return waiting[-1]
        return HeartbeatResponse(error_code=0)

    peer = Peer(clock=lambda: now)
    registry = peer.connection._registry
    registry.register(Heartbeats(answer))
    for _ in range(SAMPLED_ONE_IN):
        peer.beat(0)
    assert list(registry.times[12].latest) == [1.0]
    peer.beat(1)
    now += 7.0
    assert list(registry.times[12].latest) == [1.0], "there is no response yet"
    waiting[0].callback(HeartbeatResponse(error_code=0))
    assert list(registry.times[12].latest) == [1.0, 8.0]
    assert registry.routes[route_key(12, 3)].requests == SAMPLED_ONE_IN + 1


def test_times_are_bounded() -> None:
    times = RequestTimes(lambda: 5.0)
    for begun in range(2 * SAMPLES_KEPT):
        times.end(float(begun))
    assert len(times.latest) == SAMPLES_KEPT
    assert times.latest[-1] == 5.0 - (2 * SAMPLES_KEPT - 1)


def test_closed_connections_are_counted_by_reason() -> None:
    closed = []
    for key_version_rest in ("7f000000 00000001 ffff", "000c0063 00000001 ffff", "000c0000 00000001 0009"):
        frame = bytes.fromhex(key_version_rest)
        peer = Peer(Heartbeats(generation))
        peer.send_raw(frame)
        closed.append(dict(peer.connection._registry.closed))
    for size in (3, 1 << 30):
        peer = Peer(Heartbeats(generation))
        peer.connection.bad_size(size, 1 << 20)
        peer.connection.bad_size(size, 1 << 20)
        closed.append(dict(peer.connection._registry.closed))
    reasons = ["unknown_api", "unsupported_version", "unparsable_request", "request_too_small", "request_too_large"]
    assert closed == [{reason: 1} for reason in reasons]


@pytest.fixture
def harness(directory: DiskPath) -> ReplicasHarness:
    return ReplicasHarness(directory)


def test_messages_and_bytes_of_a_topic(harness: ReplicasHarness) -> None:
    for topic in ("a", "b"):
        assert harness.roles(topic) == ErrorCode.NONE
    harness.replicas.get("a", 0).append(batch(b"x", b"y", b"z"), NOW)
    records = batch(b"x")
    size = len(records)
    harness.replicas.get("b", 0).append(records, NOW)
    by_topic, together = harness.replicas.counts()
    assert {topic: counts.messages_in for topic, counts in by_topic.items()} == {"a": 3, "b": 1}
    assert by_topic["b"].bytes_in == size
    assert (together.messages_in, together.produce_requests) == (4, 2)
    assert harness.replicas.counts()[1].messages_in == 4, "reading the counters changes nothing"


def test_the_sum_over_all_topics_never_decreases(harness: ReplicasHarness) -> None:
    harness.roles("a")
    harness.replicas.get("a", 0).append(batch(b"x", b"y"), NOW)
    partitions = [StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)]
    states = [StopReplicaTopicState(topic_name="a", partition_states=partitions)]
    harness.replicas.stop_replica(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=states))
    assert harness.replicas.find("a", 0) is None
    by_topic, together = harness.replicas.counts()
    assert (by_topic, together.messages_in) == ({}, 2)
    harness.roles("a", epoch=1, version=1)
    harness.replicas.get("a", 0).append(batch(b"x"), NOW)
    by_topic, together = harness.replicas.counts()
    assert (by_topic["a"].messages_in, together.messages_in) == (1, 3)


def test_only_appends_of_leaders_are_counted(directory: DiskPath) -> None:
    moves = Moves()
    log = open_log(directory)
    partition = Partition(1, log, moves, moves.flush, ALL_ALIVE)
    partition.lead(Leadership(1, 0, (1,), (1, 2), 0))
    partition.append(batch(b"a", b"b"), NOW)
    partition.follow(Leadership(2, 1, (1, 2), (1, 2), 1))
    assert partition.counts.messages_in == 2
    log.append(batch(b"replicated"), leader_epoch=1, now_ms=NOW)
    partition.lead(Leadership(1, 2, (1,), (1, 2), 2))
    partition.append(batch(b"c"), NOW)
    partition.count_messages()
    assert partition.counts.messages_in == 3


def test_changes_of_in_sync_replicas(harness: ReplicasHarness) -> None:
    harness.roles("a", in_sync=2)
    harness.roles("a", version=1)
    harness.roles("a", version=2, in_sync=2)
    assert (harness.replicas.isr_shrinks, harness.replicas.isr_expands) == (1, 1)
