"""Every advertised version of every API that clients use, asked for with kafka-python's messages, answered, and decoded whole."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.metadata as metadata
import kafka.protocol.producer as producer
import pytest
from kafka.record import MemoryRecordsBuilder

from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised, create_topic, find_coordinator, producer_id
from tests.support.raw_log import batch, fetch_request, fetched, produce, produce_request, topic_id
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

SECURITY_DISABLED = 54
TOPIC = 2
_names = itertools.count()


@dataclass
class Setting:
    """What the requests are about: a topic with ten records, and a group that has committed."""

    topic: str
    topic_id: uuid.UUID
    group: str
    broker_id: int
    log_dir: str

    def new_topic(self) -> str:
        return f"{self.topic}-{next(_names)}"


@pytest.fixture(scope="module")
def setting(shared_broker: Server) -> Iterator[Setting]:
    name = "every-version"
    create_topic(shared_broker, name)
    find_coordinator(shared_broker, name)
    with RawConnection(shared_broker.address) as connection:
        produce(connection, name, batch(numbered(10)))
        producer_id(connection)
        (node,) = connection.call(metadata.MetadataRequest(topics=[]), 1).brokers
        made = Setting(name, topic_id(connection, name), name, node.node_id, str(shared_broker.data))
        until(lambda: connection.call(offset_commit(made), 2).topics[0].partitions[0].error_code == 0, "a commit")
        yield made


Build = Callable[[Setting], Any]


def fetch(s: Setting) -> Any:
    return fetch_request(s.topic, 5, topic_id=s.topic_id)


def list_offsets(s: Setting) -> Any:
    topics = consumer.ListOffsetsRequest.ListOffsetsTopic
    part = topics.ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=1)
    return consumer.ListOffsetsRequest(topics=[topics(name=s.topic, partitions=[part])], timeout_ms=1000)


def describe_topic(s: Setting) -> Any:
    request = metadata.MetadataRequest
    return request(topics=[request.MetadataRequestTopic(name=s.topic)])


def offset_commit(s: Setting) -> Any:
    topics = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
    part = topics.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="m", commit_timestamp=-1)
    return consumer.OffsetCommitRequest(group_id=s.group, topics=[topics(name=s.topic, topic_id=s.topic_id, partitions=[part])])


def offset_fetch(s: Setting) -> Any:
    request = consumer.OffsetFetchRequest
    group = request.OffsetFetchRequestGroup
    topics = [group.OffsetFetchRequestTopics(name=s.topic, topic_id=s.topic_id, partition_indexes=[0])]
    return request(group_id=s.group, topics=[request.OffsetFetchRequestTopic(name=s.topic, partition_indexes=[0])],
                   groups=[group(group_id=s.group, topics=topics)])


def find(s: Setting) -> Any:
    return metadata.FindCoordinatorRequest(key=s.group, coordinator_keys=[s.group], key_type=metadata.CoordinatorType.GROUP)


def create_topics(s: Setting) -> Any:
    topic = admin.CreateTopicsRequest.CreatableTopic(name=s.new_topic(), num_partitions=2, replication_factor=1)
    return admin.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def delete_records(s: Setting) -> Any:
    topics = admin.DeleteRecordsRequest.DeleteRecordsTopic
    part = topics.DeleteRecordsPartition(partition_index=0, offset=2)
    return admin.DeleteRecordsRequest(topics=[topics(name=s.topic, partitions=[part])], timeout_ms=30_000)


def leader_epoch(s: Setting) -> Any:
    topics = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topics.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return consumer.OffsetForLeaderEpochRequest(topics=[topics(topic=s.topic, partitions=[part])])


def describe_acls(s: Setting) -> Any:
    return admin.DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
                                     host_filter=None, operation=1, permission_type=1)


def create_acls(s: Setting) -> Any:
    acl = admin.CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:a", host="*",
                                              operation=3, permission_type=3)
    return admin.CreateAclsRequest(creations=[acl])


def delete_acls(s: Setting) -> Any:
    every = admin.DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                                                     principal_filter=None, host_filter=None, operation=1, permission_type=1)
    return admin.DeleteAclsRequest(filters=[every])


def describe_configs(s: Setting) -> Any:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name=s.topic, configuration_keys=None)
    return admin.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


def alter_configs(s: Setting) -> Any:
    resource = admin.AlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="retention.ms", value="-1")
    return admin.AlterConfigsRequest(resources=[resource(resource_type=TOPIC, resource_name=s.topic, configs=[change])])


def incremental_alter_configs(s: Setting) -> Any:
    resource = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="retention.ms", config_operation=0, value="-1")
    return admin.IncrementalAlterConfigsRequest(resources=[resource(resource_type=TOPIC, resource_name=s.topic, configs=[change])])


def alter_replica_log_dirs(s: Setting) -> Any:
    place = admin.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = place.AlterReplicaLogDirTopic(name=s.topic, partitions=[0])
    return admin.AlterReplicaLogDirsRequest(dirs=[place(path=s.log_dir, topics=[topic])])


def describe_log_dirs(s: Setting) -> Any:
    topic = admin.DescribeLogDirsRequest.DescribableLogDirTopic(topic=s.topic, partitions=[0])
    return admin.DescribeLogDirsRequest(topics=[topic])


def describe_producers(s: Setting) -> Any:
    topic = admin.DescribeProducersRequest.TopicRequest(name=s.topic, partition_indexes=[0])
    return admin.DescribeProducersRequest(topics=[topic])


def describe_topic_partitions(s: Setting) -> Any:
    topic = admin.DescribeTopicPartitionsRequest.TopicRequest(name=s.topic)
    return admin.DescribeTopicPartitionsRequest(topics=[topic], response_partition_limit=10, cursor=None)


# API key -> what to ask, and the one error code that the answer may have.
READS_AND_WRITES: dict[int, tuple[Build, int]] = {
    1: (fetch, 0),
    2: (list_offsets, 0),
    3: (describe_topic, 0),
    8: (offset_commit, 0),
    9: (offset_fetch, 0),
    10: (find, 0),
    15: (lambda s: admin.DescribeGroupsRequest(groups=[s.group]), 0),
    16: (lambda s: admin.ListGroupsRequest(states_filter=[], types_filter=[]), 0),
    18: (lambda s: metadata.ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 0),
    19: (create_topics, 0),
    21: (delete_records, 0),
    22: (lambda s: producer.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 0),
    23: (leader_epoch, 0),
    29: (describe_acls, SECURITY_DISABLED),
    30: (create_acls, SECURITY_DISABLED),
    31: (delete_acls, SECURITY_DISABLED),
    32: (describe_configs, 0),
    33: (alter_configs, 0),
    34: (alter_replica_log_dirs, 0),
    35: (describe_log_dirs, 0),
    44: (incremental_alter_configs, 0),
    60: (lambda s: admin.DescribeClusterRequest(endpoint_type=1), 0),
    61: (describe_producers, 0),
    75: (describe_topic_partitions, 0),
}


@pytest.mark.parametrize("key", READS_AND_WRITES)
def test_every_version_is_answered(broker: Server, setting: Setting, key: int) -> None:
    if key == 75 and broker.kind == "kafka-3.9":
        pytest.skip("Kafka on ZooKeeper does not offer it")
    build, expected = READS_AND_WRITES[key]
    with RawConnection(broker.address) as connection:
        for version in versions(broker, key, build(setting)):
            codes = error_codes(ask(connection, build(setting), version).to_dict())
            assert codes <= {expected, 0}, f"version {version}: {codes}"
            assert expected in codes or not codes, f"version {version}: {codes}"


def versions(server: Server, key: int, request: Any) -> range:
    """The versions that both the broker and kafka-python know: all that are offered, unless the broker is newer than the client."""
    low, high = advertised(server)[key]
    assert low <= request.max_version
    return range(low, min(high, request.max_version) + 1)


def ask(connection: RawConnection, request: Any, version: int) -> Any:
    """The answer, which must have the form of its version to the last byte: encoded again by kafka-python it is the same."""
    connection.send(request, version)
    received = connection.receive_frame()
    response = connection.decode(request, received)
    assert response.encode(header=True) == received
    return response


def error_codes(answer: Any) -> set[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, dict):
        found = {value for key, value in answer.items() if key == "error_code"}
        return found.union(*(error_codes(value) for value in answer.values()))
    if isinstance(answer, list):
        return set().union(*(error_codes(value) for value in answer))
    return set()


def test_every_version_of_produce(broker: Server, name: str) -> None:
    """Versions below 3 carry message sets of the old formats; they come back as batches."""
    create_topic(broker, name)
    with RawConnection(broker.address) as connection:
        known = topic_id(connection, name)
        count = 0
        # Kafka 4 offers versions 0 to 2 only so that librdkafka compresses, and refuses them.
        first = 0 if broker.kind != "kafka" else 3
        for version in versions(broker, 0, produce_request(name, b"")):
            if version < first:
                continue
            data = batch(numbered(2)) if version >= 3 else message_set(magic=0 if version < 2 else 1)
            answer = ask(connection, produce_request(name, data, acks=1, topic_id=known), version).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, count)
            count += 2
        found = fetched(connection.call(fetch_request(name, 0), 4))
        assert [record.offset for record in found.records] == list(range(count))
        assert {record.value for record in found.records} == {record.value for record in numbered(2)}


def message_set(magic: int) -> bytes:
    """Two records in the format before batches."""
    builder = MemoryRecordsBuilder(magic, 0, 1 << 20)
    for record in numbered(2):
        builder.append(record.timestamp, record.key, record.value)
    builder.close()
    return bytes(builder.buffer())


def test_a_group_in_every_version(broker: Server, name: str) -> None:
    """Join, sync, heartbeat and leave, each in every version of its own."""
    find_coordinator(broker, name)
    protocol = consumer.group.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"any")
    with RawConnection(broker.address) as connection:

        def newest(request: Any, version: int) -> int:
            return min(version, versions(broker, request.API_KEY, request)[-1])

        def join(version: int, member_id: str = "") -> Any:
            request = consumer.group.JoinGroupRequest(group_id=name, session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
                                                      member_id=member_id, protocol_type="consumer", protocols=[protocol])
            return ask(connection, request, version)

        until(lambda: join(0).error_code in (0, 27), "the coordinator has loaded")
        ask(connection, admin.DeleteGroupsRequest(groups_names=[name]), 0)
        leave_all(connection, name)
        low, high = advertised(broker)[11]
        for version in range(low, high + 1):
            joined = join(version)
            if joined.error_code == 79:
                joined = join(version, joined.member_id)
            assert joined.error_code == 0
            mine = {"group_id": name, "member_id": joined.member_id}
            sync = consumer.group.SyncGroupRequest(
                **mine, generation_id=joined.generation_id, protocol_type="consumer", protocol_name="range",
                assignments=[consumer.group.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")])
            synced = ask(connection, sync, newest(sync, version))
            assert (synced.error_code, synced.assignment) == (0, b"all")
            beat = consumer.group.HeartbeatRequest(**mine, generation_id=joined.generation_id)
            assert ask(connection, beat, newest(beat, version)).error_code == 0
            identity = consumer.group.LeaveGroupRequest.MemberIdentity(member_id=joined.member_id, group_instance_id=None)
            leave = consumer.group.LeaveGroupRequest(**mine, members=[identity])
            assert error_codes(ask(connection, leave, newest(leave, version)).to_dict()) == {0}


def leave_all(connection: RawConnection, group: str) -> None:
    """Remove every member of a group."""
    (described,) = connection.call(admin.DescribeGroupsRequest(groups=[group]), 5).groups
    for member in described.members:
        connection.call(consumer.group.LeaveGroupRequest(group_id=group, member_id=member.member_id), 0)


@pytest.mark.parametrize("key", [20, 37, 42, 47])
def test_every_version_of_what_takes_away(broker: Server, setting: Setting, name: str, key: int) -> None:
    """Requests that can be made once on a thing: each version has one of its own."""
    build: dict[int, Build] = {
        20: lambda s: admin.DeleteTopicsRequest(topic_names=[s.topic], topics=[admin.DeleteTopicsRequest.DeleteTopicState(name=s.topic)],
                                                timeout_ms=30_000),
        37: lambda s: admin.CreatePartitionsRequest(topics=[admin.CreatePartitionsRequest.CreatePartitionsTopic(name=s.topic, count=2)],
                                                    timeout_ms=30_000),
        42: lambda s: admin.DeleteGroupsRequest(groups_names=[s.group]),
        47: offset_delete,
    }
    with RawConnection(broker.address) as connection:
        for version in versions(broker, key, build[key](setting)):
            topic = setting.new_topic()
            create_topic(broker, topic)
            own = Setting(topic, setting.topic_id, topic, setting.broker_id, setting.log_dir)
            assert connection.call(offset_commit(own), 2).topics[0].partitions[0].error_code == 0
            assert error_codes(ask(connection, build[key](own), version).to_dict()) == {0}


def offset_delete(s: Setting) -> Any:
    topics = consumer.group.OffsetDeleteRequest.OffsetDeleteRequestTopic
    part = topics.OffsetDeleteRequestPartition(partition_index=0)
    return consumer.group.OffsetDeleteRequest(group_id=s.group, topics=[topics(name=s.topic, partitions=[part])])


def test_nothing_else_is_offered(broker: Server) -> None:
    """What is advertised is asked for in some test here, or belongs to replication, transactions, security and quotas."""
    tested = {0, 11, 12, 13, 14, 20, 37, 42, 47} | READS_AND_WRITES.keys()
    unexpected = advertised(broker).keys() - tested
    if broker.kind == "txbroker":
        assert unexpected <= {4, 5, 6, 7, 17, 24, 25, 26, 27, 28, 36, 43, 45, 46, 48, 49, 50, 51, 56, 65, 66}
        assert tested <= advertised(broker).keys()
