"""What a client may not do is answered with Kafka's error in its place, and the rest of the request is handled."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import txbroker.api
from tests.api.responses import joined
from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from txbroker.api.authorization import AllowAll
from txbroker.api.elect_leaders import ElectLeadersHandler
from txbroker.api.partition_reassignments import AlterPartitionReassignmentsHandler, ListPartitionReassignmentsHandler
from txbroker.api.registry import Registry, route_key
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource
from txbroker.broker.cluster_handlers import register_for_cluster
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_index import NO_ACL
from txbroker.security.acl_index import Rule as DecidedBy
from txbroker.wire.codec import decode
from txbroker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request, Struct

TOPIC, GROUP, CLUSTER, TRANSACTION = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER, AclResource.TRANSACTIONAL_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FIRST, DENIED, LAST = frames.TOPICS
GHOST = "ghost"  # a topic that does not exist

Rule = tuple[AclOperation, AclResource, str]


class Rules:
    """Denies by rule; `asked` is what it was asked for."""

    allows_all = False
    records_use = False

    def __init__(self) -> None:
        self.denials: Counter[tuple[str, str]] = Counter()
        self.denied: set[Rule] = set()
        self.asked: set[Rule] = set()

    def authorize(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> bool:
        assert session.principal
        self.asked.add((operation, resource, name))
        return (operation, resource, name) not in self.denied

    def authorize_any(self, session: Session, operation: AclOperation, resource: AclResource) -> bool:
        return (operation, resource, "*") not in self.denied

    def rule(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> DecidedBy:
        return DecidedBy(NO_ACL)


class Guarded(InProcessBroker):
    """A broker with rules."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = Rules()
        self.registry = self._connect()[0]._registry
        self.registry.authorizer = self.rules
        self.registry.routes.clear()

    def ask(self, request: Request, version: int, *denied: Rule) -> Any:
        self.rules.denied = set(denied)
        (answer,) = self.exchange([self.frame(request, version)])
        return answer


@pytest.fixture(scope="module")
def broker() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.close()


def codes(struct: Any) -> list[int]:
    """All error codes of a response, in their order; those of a struct before those of the structs in it."""
    found = [getattr(struct, name) for name in ("error_code", "partition_error_code") if hasattr(struct, name)]
    for name in struct.__fields__:
        value = getattr(struct, name)
        for inner in value if isinstance(value, list) else ():
            if isinstance(inner, Struct):
                found += codes(inner)
    return found


def has(operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> Rule:
    return operation, resource, name


def named(make: Callable[[str], Any]) -> list[Any]:
    return [make(name) for name in (FIRST, DENIED, LAST)]


RECORDS = build([Record(0, 1_700_000_000_000, b"k", b"v")])
TRANSACTIONAL = build([Record(0, 1_700_000_000_000, b"k", b"v")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)


def produced(records: bytes = RECORDS, transactional_id: str | None = None) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(index=0, records=records)]
    return produce.ProduceRequest(
        acks=1, timeout_ms=1000, transactional_id=transactional_id,
        topic_data=named(lambda name: produce.TopicProduceData(name=name, partition_data=data)),
    )  # fmt: skip


def deleted(*names: str) -> delete_topics.DeleteTopicsRequest:
    return delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name) for name in names], timeout_ms=1000)


def created(*names: str) -> create_topics.CreateTopicsRequest:
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
    return create_topics.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def configured(module: Any, request: Any, **more: Any) -> Any:
    def resource(kind: int, name: str) -> Any:
        if module is describe_configs:
            return describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        return module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])

    return request(resources=[*named(lambda name: resource(2, name)), resource(4, ""), resource(2, GHOST)], **more)


TOPICS = [
    (produced(), 9, has(AclOperation.WRITE, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (list_offsets.ListOffsetsRequest(replica_id=-1, topics=named(lambda name: list_offsets.ListOffsetsTopic(
        name=name, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]))), 7,
     has(AclOperation.DESCRIBE, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (delete_records.DeleteRecordsRequest(timeout_ms=1, topics=named(lambda name: delete_records.DeleteRecordsTopic(
        name=name, partitions=[delete_records.DeleteRecordsPartition(partition_index=1, offset=0)]))), 2,
     has(AclOperation.DELETE, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=named(lambda name: offset_for_leader_epoch.OffsetForLeaderTopic(
        topic=name, partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]))), 4,
     (has(AclOperation.DESCRIBE, TOPIC, DENIED), has(AclOperation.CLUSTER_ACTION, CLUSTER)), [0, NO_TOPIC, 0]),
    (describe_producers.DescribeProducersRequest(topics=named(lambda name: describe_producers.TopicRequest(
        name=name, partition_indexes=[0]))), 0, has(AclOperation.READ, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (create_partitions.CreatePartitionsRequest(timeout_ms=1, validate_only=True, topics=named(
        lambda name: create_partitions.CreatePartitionsTopic(name=name, count=3, assignments=None))), 3,
     has(AclOperation.ALTER, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (created("new", DENIED, "newer"), 7, (has(AclOperation.CREATE, TOPIC, DENIED), has(AclOperation.CREATE, CLUSTER)), [0, NO_TOPIC, 0]),
    (created("new", DENIED), 7, has(AclOperation.CREATE, TOPIC, DENIED), [0, ErrorCode.TOPIC_ALREADY_EXISTS]),
    (deleted(GHOST, DENIED), 6, (has(AclOperation.DELETE, TOPIC, DENIED), has(AclOperation.DELETE, CLUSTER)),
     [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC]),
    (delete_topics.DeleteTopicsRequest(topic_names=[DENIED, GHOST], timeout_ms=1000), 5,
     (has(AclOperation.DELETE, TOPIC, DENIED), has(AclOperation.DELETE, CLUSTER)), [NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    (configured(describe_configs, describe_configs.DescribeConfigsRequest), 4,
     (has(AclOperation.DESCRIBE_CONFIGS, TOPIC, DENIED), has(AclOperation.DESCRIBE_CONFIGS, CLUSTER)),
     [0, NO_TOPIC, 0, NO_CLUSTER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    (configured(alter_configs, alter_configs.AlterConfigsRequest, validate_only=True), 2,
     (has(AclOperation.ALTER_CONFIGS, TOPIC, DENIED), has(AclOperation.ALTER_CONFIGS, CLUSTER)),
     [0, NO_TOPIC, 0, NO_CLUSTER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    (configured(incremental_alter_configs, incremental_alter_configs.IncrementalAlterConfigsRequest, validate_only=True), 1,
     (has(AclOperation.ALTER_CONFIGS, TOPIC, DENIED), has(AclOperation.ALTER_CONFIGS, TOPIC, GHOST)),
     [0, NO_TOPIC, 0, 0, NO_TOPIC]),
    (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in (FIRST, DENIED, LAST)]), 8,
     has(AclOperation.DESCRIBE, TOPIC, DENIED), [0, 0, 0, 0, NO_TOPIC, 0, 0, 0]),
    (describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[
        describe_topic_partitions.TopicRequest(name=name) for name in (DENIED, FIRST)]), 0,
     has(AclOperation.DESCRIBE, TOPIC, DENIED), [NO_TOPIC, 0, 0, 0]),
    (offset_commit.OffsetCommitRequest(group_id=frames.GROUP, topics=named(lambda name: offset_commit.OffsetCommitRequestTopic(
        name=name, partitions=[offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata="")]))), 7,
     has(AclOperation.READ, TOPIC, DENIED), [0, NO_TOPIC, 0]),
    (offset_delete.OffsetDeleteRequest(group_id=frames.GROUP, topics=named(lambda name: offset_delete.OffsetDeleteRequestTopic(
        name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=1)]))), 0,
     has(AclOperation.READ, TOPIC, DENIED), [0, 0, NO_TOPIC, 0]),
    (add_partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_producer_id=1,
        v3_and_below_topics=named(lambda name: add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]))), 3,
     has(AclOperation.WRITE, TOPIC, DENIED), [0, ErrorCode.OPERATION_NOT_ATTEMPTED, NO_TOPIC, ErrorCode.OPERATION_NOT_ATTEMPTED]),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "version", "denied", "expected"), TOPICS, ids=lambda value: type(value).__name__)
def test_what_is_denied_is_answered_in_its_place(
    broker: Guarded, request_: Request, version: int, denied: Rule | tuple[Rule, ...], expected: list[int]
) -> None:
    rules = denied if isinstance(denied[0], tuple) else (denied,)
    assert codes(broker.ask(request_, version, *rules)) == expected
    if isinstance(request_, delete_topics.DeleteTopicsRequest):
        return  # the other tests need the topic
    allowed = codes(broker.ask(request_, version))
    assert NO_TOPIC not in allowed and NO_CLUSTER not in allowed and len(allowed) >= len(expected)


def test_a_topic_that_is_named_by_id_is_denied_without_its_name(broker: Guarded) -> None:
    ids = [*frames.TOPIC_IDS, b"\7" * 16]
    data = [produce.PartitionProduceData(index=0, records=RECORDS)]
    request = produce.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(topic_id=each, partition_data=data) for each in ids]
    )
    answer = broker.ask(request, 13, has(AclOperation.WRITE, TOPIC, DENIED))
    assert codes(answer) == [0, NO_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in answer.responses] == ids

    by_id = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic_id=each, name=None) for each in ids])
    topics = broker.ask(by_id, 12, has(AclOperation.DESCRIBE, TOPIC, DENIED)).topics
    assert [topic.error_code for topic in topics] == [0, NO_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert (topics[1].name, topics[1].topic_id, topics[1].partitions) == (None, ids[1], [])

    states = [delete_topics.DeleteTopicState(name=None, topic_id=each) for each in ids[1::2]]
    wanted = delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=1)
    results = broker.ask(wanted, 6, has(AclOperation.DELETE, TOPIC, DENIED), has(AclOperation.DELETE, CLUSTER)).responses
    assert [(each.name, each.error_code) for each in results] == [(None, NO_TOPIC), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


def fetched(version: int, session_id: int = 0, epoch: int = -1, *, more: bool = True, replica: int = -1) -> fetch.FetchRequest:
    by_id = version >= 13
    topics = [
        fetch.FetchTopic(
            topic="" if by_id else name, topic_id=topic_id if by_id else bytes(16),
            partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
        )
        for name, topic_id in zip(frames.TOPICS, frames.TOPIC_IDS, strict=True)
    ]  # fmt: skip
    return fetch.FetchRequest(
        replica_id=replica, max_wait_ms=0, min_bytes=0, max_bytes=10_000, session_id=session_id, session_epoch=epoch,
        topics=topics if more else [],
    )  # fmt: skip


@pytest.mark.parametrize("version", [12, 13])
def test_partitions_of_a_fetch_are_denied_also_in_a_session(broker: Guarded, version: int) -> None:
    rule = has(AclOperation.READ, TOPIC, DENIED)
    assert codes(broker.ask(fetched(version), version, rule)) == [0, 0, NO_TOPIC, 0]
    assert NO_TOPIC not in codes(broker.ask(fetched(version), version))
    first = broker.ask(fetched(version, epoch=0), version, rule)
    assert codes(first) == [0, 0, NO_TOPIC, 0] and first.session_id, "the session is made all the same"
    again = broker.ask(fetched(version, first.session_id, 1, more=False), version, rule)
    assert NO_TOPIC in codes(again), "the request does not name it any more"
    assert not any(codes(broker.ask(fetched(version, first.session_id, 2, more=False), version)))


def test_the_fetch_of_a_replica_needs_the_cluster(broker: Guarded) -> None:
    rule = has(AclOperation.CLUSTER_ACTION, CLUSTER)
    assert codes(broker.ask(fetched(12, replica=7), 12, rule)) == [0, *[NO_TOPIC] * 3]
    assert NO_TOPIC not in codes(broker.ask(fetched(12, replica=7), 12, has(AclOperation.READ, TOPIC, DENIED)))
    assert NO_TOPIC not in codes(broker.ask(fetched(12), 12, rule)), "a consumer does not"


def end_of(broker: Guarded, topic: str) -> int:
    partitions = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    asked = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=partitions)])
    offset: int = broker.ask(asked, 7).topics[0].partitions[0].offset
    return offset


def of_size(topic: str, size: int) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(index=0, records=build([Record(0, 1_700_000_000_000, b"k", Random(size).randbytes(size))]))]
    return produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(name=topic, partition_data=data)])


def test_a_fetch_that_waits_is_checked_again_when_records_come(broker: Guarded) -> None:
    connection, _ = broker._connect()
    request = fetched(12)
    request.topics = [topic for topic in request.topics if topic.topic == DENIED]
    request.topics[0].partitions[0].fetch_offset = end_of(broker, DENIED)
    request.max_wait_ms, request.min_bytes = 600_000, 1
    assert connection.frame_received(memoryview(bytearray(broker.frame(request, 12)[2][4:])))
    assert connection.in_flight == 1
    assert codes(broker.ask(of_size(DENIED, 1), 9, has(AclOperation.READ, TOPIC, DENIED))) == [0]
    output = joined(connection.take_output())
    answer = decode(fetch.FetchResponse, 12, output[9:])
    assert codes(answer) == [0, NO_TOPIC] and not answer.responses[0].partitions[0].records


@pytest.mark.parametrize("in_session", [False, True])
def test_what_a_fetch_read_before_it_waited_is_checked_too(broker: Guarded, in_session: bool) -> None:
    """Another partition gets the records for which it waits, after the right to read the first one has gone."""
    connection, _ = broker._connect()
    request = fetched(12, epoch=0 if in_session else -1)
    request.topics = [topic for topic in request.topics if topic.topic in (DENIED, LAST)]
    for topic in request.topics:
        topic.partitions[0].fetch_offset = end_of(broker, topic.topic)
    if in_session:
        session_id = broker.ask(request, 12).session_id
        request = fetched(12, session_id, 1, more=False)
    else:
        assert codes(broker.ask(of_size(DENIED, 1), 9)) == [0]
    request.max_wait_ms, request.min_bytes = 600_000, 500
    assert connection.frame_received(memoryview(bytearray(broker.frame(request, 12)[2][4:])))
    if in_session:
        assert codes(broker.ask(of_size(DENIED, 1), 9)) == [0]
    assert connection.in_flight == 1
    assert codes(broker.ask(of_size(LAST, 600), 9, has(AclOperation.READ, TOPIC, DENIED))) == [0]
    answer = decode(fetch.FetchResponse, 12, joined(connection.take_output())[9:])
    found = {topic.topic: topic.partitions[0] for topic in answer.responses}
    assert found[DENIED].error_code == NO_TOPIC and not found[DENIED].records
    assert found[LAST].error_code == 0 and found[LAST].records


def test_a_denied_produce_without_a_response_closes_the_connection(broker: Guarded) -> None:
    def end() -> int:
        partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [list_offsets.ListOffsetsTopic(name=FIRST, partitions=[partition])]
        answer = broker.ask(list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        assert isinstance(answer.topics[0].partitions[0].offset, int)
        return answer.topics[0].partitions[0].offset

    before = end()
    request = produced()
    request.acks = 0
    broker.rules.denied = {has(AclOperation.WRITE, TOPIC, DENIED)}
    assert broker.send([broker.frame(request, 9)[2]]) == (b"", True)
    assert end() > before, "as in Kafka, the records for other topics are appended"


def test_a_transactional_id_is_checked_only_if_a_batch_is_transactional(broker: Guarded) -> None:
    rule = has(AclOperation.WRITE, TRANSACTION, "x")
    assert codes(broker.ask(produced(RECORDS, "x"), 9, rule)) == [0, 0, 0]
    assert codes(broker.ask(produced(TRANSACTIONAL, "x"), 9, rule)) == [NO_TRANSACTION] * 3


WHOLE = [
    (describe_acls.DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None,
                                       operation=1, permission_type=1), 1, AclOperation.DESCRIBE, [NO_CLUSTER]),
    (create_acls.CreateAclsRequest(creations=[create_acls.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)]), 1,
     AclOperation.ALTER, [NO_CLUSTER]),
    (delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1, permission_type=1)]), 1,
     AclOperation.ALTER, [NO_CLUSTER]),
    (describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False), 1, AclOperation.DESCRIBE_CONFIGS, [NO_CLUSTER]),
    (alter_client_quotas.AlterClientQuotasRequest(validate_only=True, entries=[alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="a")], ops=[])]), 1,
     AclOperation.ALTER_CONFIGS, [NO_CLUSTER]),
    (describe_log_dirs.DescribeLogDirsRequest(topics=None), 4, AclOperation.DESCRIBE, [NO_CLUSTER]),
    (describe_log_dirs.DescribeLogDirsRequest(topics=None), 1, AclOperation.DESCRIBE, [0]),
    (alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[alter_replica_log_dirs.AlterReplicaLogDir(path="/data", topics=[
        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=FIRST, partitions=[0, 1])])]), 2, AclOperation.ALTER, [NO_CLUSTER] * 2),
    (describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None), 0, AclOperation.DESCRIBE, [NO_CLUSTER]),
    (add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=1, producer_epoch=0, topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=FIRST, partitions=[0])])]), 4, AclOperation.CLUSTER_ACTION, [NO_CLUSTER]),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "version", "operation", "expected"), WHOLE, ids=lambda value: type(value).__name__)
def test_a_request_that_needs_an_operation_on_the_cluster_is_refused(
    broker: Guarded, request_: Request, version: int, operation: AclOperation, expected: list[int]
) -> None:
    assert codes(broker.ask(request_, version, has(operation, CLUSTER))) == expected
    assert NO_CLUSTER not in codes(broker.ask(request_, version))


def test_markers_need_one_of_two_operations_on_the_cluster(broker: Guarded) -> None:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=GHOST, partition_indexes=[0])],
    )  # fmt: skip
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    rules = [has(operation, CLUSTER) for operation in (AclOperation.CLUSTER_ACTION, AclOperation.ALTER)]
    assert codes(broker.ask(request, 1, *rules)) == [NO_CLUSTER]
    for rule in rules:
        assert codes(broker.ask(request, 1, rule)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_requests_of_a_member_need_its_group(broker: Guarded) -> None:
    group = frames.GROUP
    requests: list[tuple[Request, int]] = [
        (join_group.JoinGroupRequest(group_id=group, session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="", protocol_type="c",
                                     protocols=[]), 5),
        (sync_group.SyncGroupRequest(group_id=group, generation_id=1, member_id="m", assignments=[]), 3),
        (heartbeat.HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 3),
        (leave_group.LeaveGroupRequest(group_id=group, members=[]), 4),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=0), 0),
    ]  # fmt: skip
    for request, version in requests:
        assert codes(broker.ask(request, version, has(AclOperation.READ, GROUP, group))) == [NO_GROUP]
    broker.rules.denied = set()
    commit = offset_commit.OffsetCommitRequest(group_id=group, topics=named(lambda name: offset_commit.OffsetCommitRequestTopic(
        name=name, partitions=[offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata="")])))  # fmt: skip
    assert codes(broker.ask(commit, 7, has(AclOperation.READ, GROUP, group))) == [NO_GROUP] * 3
    partition = [offset_delete.OffsetDeleteRequestPartition(partition_index=1)]
    topic = offset_delete.OffsetDeleteRequestTopic(name=FIRST, partitions=partition)
    delete = offset_delete.OffsetDeleteRequest(group_id=group, topics=[topic])
    assert codes(broker.ask(delete, 0, has(AclOperation.DELETE, GROUP, group))) == [NO_GROUP]


def test_groups_are_denied_one_by_one(broker: Guarded) -> None:
    groups = ["a", "b", "c"]
    describe = describe_groups.DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
    answer = broker.ask(describe, 5, has(AclOperation.DESCRIBE, GROUP, "b"), has(AclOperation.DELETE, GROUP, "a"))
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("a", 0), ("b", NO_GROUP), ("c", 0)]
    assert [group.authorized_operations for group in answer.groups] == [1 << 3 | 1 << 8, -(2**31), 1 << 3 | 1 << 6 | 1 << 8]
    results = broker.ask(delete_groups.DeleteGroupsRequest(groups_names=groups), 2, has(AclOperation.DELETE, GROUP, "b")).results
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert [(each.group_id, each.error_code) for each in results] == [("a", missing), ("b", NO_GROUP), ("c", missing)]


@pytest.mark.parametrize(("kind", "resource", "error"), [(0, GROUP, NO_GROUP), (1, TRANSACTION, NO_TRANSACTION)])
def test_coordinators_are_denied_by_key(broker: Guarded, kind: int, resource: AclResource, error: ErrorCode) -> None:
    rule = has(AclOperation.DESCRIBE, resource, "b")
    several = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b", "c"])
    found = broker.ask(several, 4, rule).coordinators
    assert [(each.key, each.error_code) for each in found] == [("a", 0), ("b", error), ("c", 0)]
    assert (found[1].node_id, found[1].host, found[1].port) == (-1, "", -1) and found[1].error_message == ""
    one = broker.ask(find_coordinator.FindCoordinatorRequest(key="b", key_type=kind), 3, rule)
    assert (one.error_code, one.node_id) == (error, -1) and one.error_message


def test_offsets_are_denied_by_group_and_by_topic(broker: Guarded) -> None:
    def group(name: str, topics: list[str] | None) -> offset_fetch.OffsetFetchRequestGroup:
        wanted = None if topics is None else [offset_fetch.OffsetFetchRequestTopics(name=each, partition_indexes=[0]) for each in topics]
        return offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=wanted)

    commit = offset_commit.OffsetCommitRequest(group_id=frames.GROUP, topics=named(lambda name: offset_commit.OffsetCommitRequestTopic(
        name=name, partitions=[offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata="m")])))  # fmt: skip
    assert codes(broker.ask(commit, 7)) == [0, 0, 0]
    rules = has(AclOperation.DESCRIBE, GROUP, "b"), has(AclOperation.DESCRIBE, TOPIC, DENIED)
    asked = [group(frames.GROUP, [FIRST, DENIED]), group("b", [FIRST]), group(frames.GROUP, [LAST])]
    answer = broker.ask(offset_fetch.OffsetFetchRequest(groups=asked), 8, *rules)
    found = {each.group_id: each for each in answer.groups}
    assert found["b"].error_code == NO_GROUP and not found["b"].topics
    partitions = {topic.name: topic.partitions[0] for topic in found[frames.GROUP].topics}
    assert {name: each.error_code for name, each in partitions.items()} == {FIRST: 0, DENIED: NO_TOPIC, LAST: 0}
    denied = partitions[DENIED]
    assert (denied.committed_offset, denied.committed_leader_epoch, denied.metadata) == (-1, -1, "")
    every = broker.ask(offset_fetch.OffsetFetchRequest(groups=[group(frames.GROUP, None)]), 8, *rules)
    assert [topic.name for topic in every.groups[0].topics] == [FIRST, LAST]

    topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in (FIRST, DENIED)]
    old = offset_fetch.OffsetFetchRequest(group_id=frames.GROUP, topics=topics)
    assert codes(broker.ask(old, 5, *rules)) == [0, 0, NO_TOPIC]
    rule = has(AclOperation.DESCRIBE, GROUP, frames.GROUP)
    assert codes(broker.ask(old, 5, rule)) == [NO_GROUP]
    assert [code for code in codes(broker.ask(old, 1, rule)) if code] == [NO_GROUP, NO_GROUP], "before v2 in each partition"


def test_lists_leave_out_what_a_client_may_not_see(broker: Guarded) -> None:
    topics = broker.ask(metadata.MetadataRequest(topics=None), 12, has(AclOperation.DESCRIBE, TOPIC, DENIED)).topics
    assert DENIED not in {topic.name for topic in topics} and {FIRST, LAST} <= {topic.name for topic in topics}
    old = broker.ask(metadata.MetadataRequest(topics=[]), 0, has(AclOperation.DESCRIBE, TOPIC, DENIED)).topics
    assert DENIED not in {topic.name for topic in old} and {FIRST, LAST} <= {topic.name for topic in old}
    pages = broker.ask(describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[]), 0, has(AclOperation.DESCRIBE, TOPIC, DENIED))
    assert DENIED not in {topic.name for topic in pages.topics} and {FIRST, LAST} <= {topic.name for topic in pages.topics}

    partition = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    for group in ("seen", "hidden"):
        topic = offset_commit.OffsetCommitRequestTopic(name=FIRST, partitions=partition)
        broker.ask(offset_commit.OffsetCommitRequest(group_id=group, topics=[topic]), 7)
    everything = list_groups.ListGroupsRequest()
    hidden = has(AclOperation.DESCRIBE, GROUP, "hidden")
    listed = {each.group_id for each in broker.ask(everything, 4, hidden, has(AclOperation.DESCRIBE, CLUSTER)).groups}
    assert "seen" in listed and "hidden" not in listed
    assert "hidden" in {each.group_id for each in broker.ask(everything, 4, hidden).groups}, "the cluster is enough"


def test_transactional_ids_are_denied_one_by_one_and_left_out_of_lists(broker: Guarded) -> None:
    init = init_producer_id.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=600_000)
    broker.ask(find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    producer = broker.ask(init, 4)
    assert producer.error_code == 0
    ids: dict[str, Any] = {"v3_and_below_transactional_id": "tx", "v3_and_below_producer_id": producer.producer_id,
           "v3_and_below_producer_epoch": producer.producer_epoch}  # fmt: skip
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (FIRST, DENIED)]
    add = add_partitions_to_txn.AddPartitionsToTxnRequest(**ids, v3_and_below_topics=topics)
    assert codes(broker.ask(add, 3)) == [0, 0, 0]

    denied = has(AclOperation.WRITE, TRANSACTION, "tx")
    assert codes(broker.ask(add, 3, denied)) == [0, NO_TRANSACTION, NO_TRANSACTION]
    assert codes(broker.ask(init, 4, denied)) == [NO_TRANSACTION]
    own: dict[str, Any] = {"transactional_id": "tx", "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(**own, group_id="g")
    assert codes(broker.ask(offsets, 3, denied)) == [NO_TRANSACTION]
    assert codes(broker.ask(offsets, 3, has(AclOperation.READ, GROUP, "g"))) == [NO_GROUP]
    end = end_txn.EndTxnRequest(**own, committed=True)
    assert codes(broker.ask(end, 3, denied)) == [NO_TRANSACTION]
    partition = [txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    commit = txn_offset_commit.TxnOffsetCommitRequest(
        **own, group_id="g", topics=named(lambda name: txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=partition)),
    )  # fmt: skip
    assert codes(broker.ask(commit, 3, denied)) == [NO_TRANSACTION] * 3
    assert codes(broker.ask(commit, 3, has(AclOperation.READ, GROUP, "g"))) == [NO_GROUP] * 3
    assert codes(broker.ask(commit, 3, has(AclOperation.READ, TOPIC, DENIED)))[1] == NO_TOPIC

    hidden = has(AclOperation.DESCRIBE, TRANSACTION, "tx")
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["unknown", "tx"])
    states = broker.ask(request, 0, hidden).transaction_states
    assert [each.error_code for each in states] == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, NO_TRANSACTION]
    states = broker.ask(request, 0, has(AclOperation.DESCRIBE, TOPIC, DENIED)).transaction_states
    assert [topic.topic for topic in states[1].topics] == [FIRST]
    everything = list_transactions.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    assert [each.transactional_id for each in broker.ask(everything, 1).transaction_states] == ["tx"]
    assert broker.ask(everything, 1, hidden).transaction_states == []


def test_an_idempotent_producer_needs_the_cluster_or_any_topic(broker: Guarded) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
    cluster, topics = has(AclOperation.IDEMPOTENT_WRITE, CLUSTER), has(AclOperation.WRITE, TOPIC, "*")
    assert codes(broker.ask(request, 4, cluster)) == codes(broker.ask(request, 4, topics)) == [0]
    assert codes(broker.ask(request, 4, cluster, topics)) == [NO_CLUSTER]


def test_a_missing_topic_is_created_only_if_the_client_may(broker: Guarded) -> None:
    def ask(name: str, *denied: Rule) -> int:
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (topic,) = broker.ask(request, 8, *denied).topics
        assert isinstance(topic.error_code, int)
        return topic.error_code

    cluster = has(AclOperation.CREATE, CLUSTER)
    assert ask("auto-1", cluster, has(AclOperation.CREATE, TOPIC, "auto-1")) == NO_TOPIC
    assert ask("auto-2", has(AclOperation.DESCRIBE, TOPIC, "auto-2")) == NO_TOPIC
    assert ask("auto-3", cluster) == 0 and ask("auto-4", has(AclOperation.CREATE, TOPIC, "auto-4")) == 0
    names = {topic.name for topic in broker.ask(metadata.MetadataRequest(topics=None), 8).topics}
    assert {"auto-3", "auto-4"} <= names and not {"auto-1", "auto-2"} & names


def test_authorized_operations_are_those_of_the_client(broker: Guarded) -> None:
    wanted = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=FIRST)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    rules = [has(operation, CLUSTER) for operation in AclOperation if operation is not AclOperation.DESCRIBE]
    rules += [has(operation, TOPIC, FIRST) for operation in AclOperation if operation not in (AclOperation.DESCRIBE, AclOperation.READ)]
    answer = broker.ask(wanted, 8, *rules)
    assert answer.cluster_authorized_operations == 1 << AclOperation.DESCRIBE
    assert answer.topics[0].topic_authorized_operations == 1 << AclOperation.DESCRIBE | 1 << AclOperation.READ
    cluster = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    described = broker.ask(cluster, 0, *rules)
    assert described.cluster_authorized_operations == 1 << AclOperation.DESCRIBE
    assert broker.ask(cluster, 0, has(AclOperation.DESCRIBE, CLUSTER)).cluster_authorized_operations == 0
    assert broker.ask(wanted, 8, has(AclOperation.DESCRIBE, CLUSTER)).cluster_authorized_operations == 0
    pages = broker.ask(describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[
        describe_topic_partitions.TopicRequest(name=FIRST)]), 0, *rules)  # fmt: skip
    assert pages.topics[0].topic_authorized_operations == 1 << AclOperation.DESCRIBE | 1 << AclOperation.READ


def test_the_configuration_of_a_new_topic_is_hidden_from_a_client_that_may_not_describe_it(broker: Guarded) -> None:
    (topic,) = broker.ask(created("new"), 7, has(AclOperation.DESCRIBE_CONFIGS, TOPIC, "new")).topics
    assert (topic.error_code, topic.topic_config_error_code, topic.configs) == (0, NO_TOPIC, [])
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


OF_THE_CLUSTER = [
    (leader_and_isr.LeaderAndIsrRequest(controller_id=1, controller_epoch=1, live_leaders=[]), 5, AclOperation.CLUSTER_ACTION),
    (stop_replica.StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[]), 3, AclOperation.CLUSTER_ACTION),
    (update_metadata.UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[]), 6, AclOperation.CLUSTER_ACTION),
    (alter_partition.AlterPartitionRequest(broker_id=1, topics=[]), 2, AclOperation.CLUSTER_ACTION),
    (controlled_shutdown.ControlledShutdownRequest(broker_id=1), 3, AclOperation.CLUSTER_ACTION),
    (allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1), 0, AclOperation.CLUSTER_ACTION),
    (elect_leaders.ElectLeadersRequest(topic_partitions=None), 2, AclOperation.ALTER),
    (alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]), 0, AclOperation.ALTER),
    (list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None), 0, AclOperation.DESCRIBE),
]


@pytest.mark.parametrize(("request_", "version", "operation"), OF_THE_CLUSTER, ids=lambda value: type(value).__name__)
def test_requests_of_a_cluster_need_an_operation_on_it(request_: Request, version: int, operation: AclOperation) -> None:
    """They are refused before anything of the cluster is used."""
    rules = Rules()
    rules.denied = {has(operation, CLUSTER)}
    registry = Registry(authorizer=rules)
    nothing: Any = None
    register_for_cluster(registry, nothing, nothing, nothing)
    for handler in (
        ElectLeadersHandler(nothing, nothing, nothing), AlterPartitionReassignmentsHandler(nothing),
        ListPartitionReassignmentsHandler(nothing),
    ):  # fmt: skip
        registry.register(handler)
    route = registry.routes[route_key(request_.api_key, version)]
    session = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
    context = RequestContext(route.api_key, version, 1, None, session)
    with pytest.raises(BrokerError) as error:
        route.call(request_, context)
    assert error.value.code == NO_CLUSTER and route.failed is not None
    answer = route.failed(request_, context, error.value)
    assert answer is not None and NO_CLUSTER in codes(answer)
    assert route.encode(answer)


def test_every_handler_declares_its_resources() -> None:
    modules = [importlib.import_module(f"txbroker.api.{module.name}") for module in pkgutil.iter_modules(txbroker.api.__path__)]
    handlers = {each for module in modules for each in vars(module).values() if isinstance(each, type) and "Handler" in each.__name__[1:]}
    assert len(handlers) > 50
    assert [each.__name__ for each in handlers if not callable(getattr(each, "resources", None))] == []


def test_an_authorizer_that_allows_everything_is_not_asked() -> None:
    class Failing(AllowAll):
        def authorize(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> bool:
            raise AssertionError("it costs nothing")

    broker = InProcessBroker()
    try:
        registry = broker._connect()[0]._registry
        registry.authorizer = Failing()
        registry.routes.clear()
        (answer,) = broker.exchange([broker.frame(produced(), 9)])
        assert codes(answer) == [0, 0, 0]
    finally:
        broker.close()
