"""Requests for partitions that another broker leads, and what a broker says of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.api.lone_broker import no_transactions
from tests.api.responses import message
from tests.cluster.test_replicas import OWN, ReplicasHarness
from tests.log.support import NOW, batch
from tests.support.fakes.disk_path import DiskPath
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.delete_records import DeleteRecordsHandler
from txbroker.api.describe_producers import DescribeProducersHandler
from txbroker.api.describe_topic_partitions import DescribeTopicPartitionsHandler
from txbroker.api.endpoints import Endpoints
from txbroker.api.group_offsets import OffsetCommitHandler
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.log_dirs import DescribeLogDirsHandler
from txbroker.api.metadata import MetadataHandler
from txbroker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from txbroker.api.produce import ProduceHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.txn_offset_commit import TxnOffsetCommitHandler
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from txbroker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from txbroker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from txbroker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from txbroker.wire.messages.metadata import MetadataRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

E = ErrorCode
OTHER, INTERNAL_ONLY, DEAD = 2, 3, 4
# Topics: the leader in the cluster image, and its epoch.
FOLLOWED, ELSEWHERE, UNREACHABLE, ORPHAN, LEADERLESS = "followed", "elsewhere", "unreachable", "orphan", "leaderless"
LEADERS = {FOLLOWED: (OTHER, 6), ELSEWHERE: (OTHER, 5), UNREACHABLE: (INTERNAL_ONLY, 1), ORPHAN: (DEAD, 1), LEADERLESS: (-1, 2)}
UNKNOWN = "unknown"


def broker(broker_id: int, *listeners: str) -> UpdateMetadataBroker:
    hosts = [(f"{name.lower()}-{broker_id}", name) for name in listeners]
    endpoints = [UpdateMetadataEndpoint(host=host, port=9092, listener=name, security_protocol=0) for host, name in hosts]
    return UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=f"rack-{broker_id}")


def topic_state(name: str, leader: int, epoch: int) -> UpdateMetadataTopicState:
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[leader],
        zk_version=0,
        replicas=[OTHER, DEAD],
        offline_replicas=[DEAD],
    )
    return UpdateMetadataTopicState(topic_name=name, topic_id=name.ljust(16).encode(), partition_states=[state])


@pytest.fixture
def harness(directory: DiskPath) -> ReplicasHarness:
    """Broker 1 follows broker 2 with FOLLOWED, in an epoch that is newer than its metadata."""
    harness = ReplicasHarness(directory)
    harness.image.apply(
        UpdateMetadataRequest(
            controller_id=OTHER,
            controller_epoch=1,
            topic_states=[topic_state(name, *leader) for name, leader in LEADERS.items()],
            live_brokers=[broker(OWN, "CLIENT", "INTERNAL"), broker(OTHER, "CLIENT", "INTERNAL"), broker(INTERNAL_ONLY, "INTERNAL")],
        )
    )
    assert harness.roles(FOLLOWED, leader=OTHER, epoch=7) == E.NONE
    return harness


def context(version: int, listener: str = "CLIENT") -> RequestContext:
    session = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener=listener, number=0)
    return RequestContext(0, version, 1, None, session)


def endpoints(harness: ReplicasHarness) -> Endpoints:
    return Endpoints(OWN, harness.image, [])


def produce(
    harness: ReplicasHarness, topic: str, version: int = 10, acks: int = -1, *, topic_id: bytes = bytes(16), **options: Any
) -> Any:
    leaders = CurrentLeaders(harness.replicas, harness.image, endpoints(harness))
    purgatory: Any = Purgatory
    handler = ProduceHandler(harness.replicas, leaders, purgatory, no_transactions(), lambda: NOW, lambda: 0.0)
    data = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch(b"v", **options))])]
    return message(handler(ProduceRequest(acks=acks, timeout_ms=1, topic_data=data), context(version)), ProduceRequest, version)


def produced(harness: ReplicasHarness, topic: str) -> int:
    return int(produce(harness, topic).responses[0].partition_responses[0].error_code)


def listed(harness: ReplicasHarness, topic: str) -> int:
    wanted = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    response = ListOffsetsHandler(harness.replicas)(ListOffsetsRequest(replica_id=-1, topics=wanted), context(7))
    return int(response.topics[0].partitions[0].error_code)


def records_deleted(harness: ReplicasHarness, topic: str) -> int:
    wanted = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
    handler = DeleteRecordsHandler(harness.replicas, Purgatory(Clock(), "delete records"))
    response: Any = handler(DeleteRecordsRequest(topics=wanted, timeout_ms=1), context(2))
    if isinstance(response, Deferred):
        return E.NONE  # it waits for the followers
    return int(response.topics[0].partitions[0].error_code)


def epoch_end(harness: ReplicasHarness, topic: str) -> int:
    wanted = [OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=1)])]
    response = OffsetForLeaderEpochHandler(harness.replicas)(OffsetForLeaderEpochRequest(topics=wanted), context(4))
    return int(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("ask", [produced, listed, records_deleted, epoch_end])
def test_only_the_leader_answers(harness: ReplicasHarness, ask: Callable[[ReplicasHarness, str], int]) -> None:
    topics = (FOLLOWED, ELSEWHERE, ORPHAN, LEADERLESS)
    assert [ask(harness, topic) for topic in topics] == [E.NOT_LEADER_OR_FOLLOWER] * len(topics)
    assert ask(harness, UNKNOWN) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.roles("led") == E.NONE
    assert ask(harness, "led") == E.NONE


@pytest.mark.parametrize("version", [10, 13])
def test_the_first_batch_of_a_producer_comes_before_the_broker_has_the_partition(harness: ReplicasHarness, version: int) -> None:
    """It was sent with a second one, and must not be lost because that one is appended first."""
    topic_id = b"the id of a new "

    def sent(sequence: int) -> int:
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return int(produce(harness, "new", version, topic_id=topic_id, **options).responses[0].partition_responses[0].error_code)

    unknown = E.UNKNOWN_TOPIC_ID if version == 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert sent(0) == unknown
    assert harness.roles("new", topic_id=topic_id) == E.NONE
    assert [sent(sequence) for sequence in (1, 0, 1)] == [unknown, E.NONE, E.NONE]


def test_every_replica_describes_its_producers(harness: ReplicasHarness) -> None:
    wanted = [TopicRequest(name=name, partition_indexes=[0]) for name in (FOLLOWED, ELSEWHERE, UNKNOWN)]
    response = DescribeProducersHandler(harness.replicas)(DescribeProducersRequest(topics=wanted), context(0))
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_log_without_a_role_has_no_lag(harness: ReplicasHarness) -> None:
    harness.broker.directories.create(TopicPartition("stray", 0), bytes(range(16)), is_new=True, now_ms=NOW)
    handler = DescribeLogDirsHandler(harness.broker.directories, harness.replicas)
    response = handler(DescribeLogDirsRequest(topics=None), context(4))
    lags = {topic.name: topic.partitions[0].offset_lag for directory in response.results for topic in directory.topics}
    assert lags == {FOLLOWED: 0, "stray": -1}


@pytest.mark.parametrize("version", [9, 10])
def test_a_producer_at_a_follower_gets_the_leader_and_its_address(harness: ReplicasHarness, version: int) -> None:
    leaders = {}
    for topic in (FOLLOWED, ELSEWHERE, UNREACHABLE, ORPHAN, UNKNOWN):
        response = produce(harness, topic, version)
        leader = response.responses[0].partition_responses[0].current_leader
        leaders[topic] = leader.leader_id, leader.leader_epoch, [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
    other = [(OTHER, "client-2", 9092, "rack-2")]
    expected = {
        FOLLOWED: (OTHER, 7, other),  # the controller's request for the replica is newer than the metadata
        ELSEWHERE: (OTHER, 5, other),
        UNREACHABLE: (INTERNAL_ONLY, 1, []),
        ORPHAN: (DEAD, 1, []),
        UNKNOWN: (-1, -1, []),
    }
    assert leaders == (expected if version >= 10 else dict.fromkeys(expected, (-1, -1, [])))


NO_LISTENER = (E.LISTENER_NOT_FOUND, -1)
NO_LEADER = (E.LEADER_NOT_AVAILABLE, -1)
REACHED = (E.NONE, OTHER)


@pytest.mark.parametrize(("version", "listener", "unreachable"), [
    (5, "CLIENT", NO_LEADER), (6, "CLIENT", NO_LISTENER), (12, "CLIENT", NO_LISTENER), (12, "INTERNAL", (E.NONE, INTERNAL_ONLY)),
])  # fmt: skip
def test_metadata_has_only_leaders_that_the_client_can_reach(
    harness: ReplicasHarness, version: int, listener: str, unreachable: tuple[ErrorCode, int]
) -> None:
    creation: Any = None
    handler: Any = MetadataHandler(harness.image, endpoints(harness), creation, creation, "cluster")
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = handler._answer(request, context(version, listener), {})
    partitions = {topic.name: topic.partitions[0] for topic in response.topics}
    expected = {FOLLOWED: REACHED, ELSEWHERE: REACHED, UNREACHABLE: unreachable, ORPHAN: NO_LEADER, LEADERLESS: NO_LEADER}
    assert {name: (p.error_code, p.leader_id) for name, p in partitions.items()} == expected
    assert {(p.leader_epoch, *p.replica_nodes, *p.offline_replicas) for p in partitions.values()} == {
        (epoch, OTHER, DEAD, DEAD) for _, epoch in LEADERS.values()
    }
    assert response.controller_id == OTHER
    listening = [OWN, OTHER] if listener == "CLIENT" else [OWN, OTHER, INTERNAL_ONLY]
    hosts = {node.node_id: (node.host, node.rack) for node in response.brokers}
    assert hosts == {number: (f"{listener.lower()}-{number}", f"rack-{number}") for number in listening}


def test_described_partitions_have_only_leaders_that_the_client_can_reach(harness: ReplicasHarness) -> None:
    handler = DescribeTopicPartitionsHandler(harness.image, endpoints(harness), 100)
    response = handler(DescribeTopicPartitionsRequest(topics=[]), context(0))
    found = {topic.name: (topic.partitions[0].error_code, topic.partitions[0].leader_id) for topic in response.topics}
    assert found == {FOLLOWED: REACHED, ELSEWHERE: REACHED, UNREACHABLE: NO_LISTENER, ORPHAN: NO_LEADER, LEADERLESS: NO_LEADER}


def test_a_broker_without_metadata_coordinates_no_group() -> None:
    image, unused, version = ClusterImage(), cast("Any", None), 8
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=FOLLOWED, partitions=[
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None),
    ])])  # fmt: skip
    with pytest.raises(BrokerError) as raised:
        OffsetCommitHandler(unused, image)(commit, context(version))
    assert raised.value.code == E.NOT_COORDINATOR
    pending = TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=[])
    failures: list[Any] = []
    TxnOffsetCommitHandler(unused, image, unused, unused)(pending, context(3)).addErrback(failures.append)
    assert [failure.value.code for failure in failures] == [E.NOT_COORDINATOR]
