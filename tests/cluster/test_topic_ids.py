"""Requests that name topics by id: LeaderAndIsr is enough to serve a topic, and a log serves only its own topic."""

from __future__ import annotations

import pytest

from tests.cluster.replica_host import OTHER, OWN, TOPIC, ReplicaHost
from tests.log.support import batch
from tests.log_directories.support import TOPIC_ID
from txbroker.errors import ErrorCode
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataTopicState

NEW, NEW_ID = "new", bytes(15) + b"n"
CONSUMER = -1
PRODUCE_BY_ID_VERSION = 13


@pytest.fixture
def host() -> ReplicaHost:
    return ReplicaHost()


def topic_state(name: str, leader: int) -> UpdateMetadataTopicState:
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=0,
        isr=[leader],
        zk_version=0,
        replicas=[leader],
        offline_replicas=[],
    )
    return UpdateMetadataTopicState(topic_name=name, topic_id=NEW_ID, partition_states=[state])


def fetched(host: ReplicaHost, topic_id: bytes, replica: int = CONSUMER, version: int = 17) -> ErrorCode:
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica), max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[wanted]
    )
    (response,) = host.send(request, version)
    return ErrorCode(response.responses[0].partitions[0].error_code)


def produced(host: ReplicaHost, topic_id: bytes) -> ErrorCode:
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=bytes(batch(b"v")))])
    (response,) = host.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), PRODUCE_BY_ID_VERSION)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("replica", [OTHER, CONSUMER])
def test_a_leader_serves_its_partition_before_the_metadata_has_come(host: ReplicaHost, replica: int) -> None:
    assert fetched(host, NEW_ID, replica) == ErrorCode.UNKNOWN_TOPIC_ID
    assert host.roles(topic=NEW, topic_id=NEW_ID, metadata=False) == [ErrorCode.NONE]
    assert fetched(host, NEW_ID, replica) == ErrorCode.NONE
    assert produced(host, NEW_ID) == ErrorCode.NONE


def test_a_broker_that_knows_the_topic_from_the_metadata_only_says_that_it_has_no_replica(host: ReplicaHost) -> None:
    host.update_metadata(topic_state(NEW, OTHER))
    assert fetched(host, NEW_ID) == produced(host, NEW_ID) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_log_of_an_earlier_topic_of_the_name_is_not_served_for_the_new_topic(host: ReplicaHost) -> None:
    """A27: the metadata has the new topic already, and its log here is still that of the topic before."""
    host.append(0)
    host.update_metadata(topic_state(TOPIC, OWN))
    assert host.roles(topic=TOPIC, topic_id=NEW_ID, epoch=1, metadata=False) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert fetched(host, NEW_ID) == fetched(host, NEW_ID, OTHER) == produced(host, NEW_ID) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert fetched(host, TOPIC_ID) == ErrorCode.NONE


def test_the_id_of_a_deleted_topic_is_forgotten_with_its_last_partition() -> None:
    host = ReplicaHost(2)
    assert host.roles(topic=NEW, topic_id=NEW_ID, metadata=False) == [ErrorCode.NONE] * 2
    for index, left in ((0, NEW), (1, None)):
        stop = StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        topic = StopReplicaTopicState(topic_name=NEW, partition_states=[stop])
        host.replicas.stop_replica(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic]))
        assert host.replicas.topic_name(NEW_ID) == left
    assert fetched(host, NEW_ID) == ErrorCode.UNKNOWN_TOPIC_ID
