"""A valid request of every served API in every version, encoded by kafka-python."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.support.raw_log import batch
from tests.support.records import BASE_TIMESTAMP, numbered

GROUP = 0
TOPIC, BROKER = 2, 4

_serial = itertools.count(1)


@dataclass(frozen=True)
class Entities:
    """The entities in a request, known or unknown to the broker."""

    topic: str
    topic_id: uuid.UUID
    group: str
    member_id: str
    generation_id: int
    broker_id: int
    log_dir: str


def make(cls: Any, fields: Mapping[str, Any]) -> Any:
    """A message or struct of kafka-python's from plain dictionaries and lists."""
    values = {}
    for name, value in fields.items():
        field = cls.fields[name]
        if field.is_struct_array() and value is not None:
            value = [make(field.data_class, item) for item in value]
        values[name] = value
    return cls(**values)


def request(key: int, version: int, entities: Entities) -> Any:
    """The request of one API in one version."""
    cls, fields = BUILDERS[key]
    return make(cls, fields(entities, version))


def fresh(prefix: str) -> str:
    """A new name."""
    return f"{prefix}-{next(_serial)}"


Fields = Callable[[Entities, int], dict[str, Any]]
BUILDERS: dict[int, tuple[Any, Fields]] = {}


def _of(cls: Any) -> Callable[[Fields], Fields]:
    def register(fields: Fields) -> Fields:
        BUILDERS[cls.API_KEY] = cls, fields
        return fields

    return register


def message_set(magic: int) -> bytes:
    """Three messages of an older format."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for offset in range(3):
        builder.append(offset, BASE_TIMESTAMP, b"key", b"value")
    return bytes(builder.build())


@_of(producer.ProduceRequest)
def _produce(entities: Entities, version: int) -> dict[str, Any]:
    records = batch(numbered(3)) if version >= 3 else message_set(1 if version == 2 else 0)
    partition = {"index": 0, "records": records}
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [
        {"name": entities.topic, "topic_id": entities.topic_id, "partition_data": [partition]}]}


@_of(consumer.FetchRequest)
def _fetch(entities: Entities, version: int) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": 0, "forgotten_topics_data": [],
            "topics": [{"topic": entities.topic, "topic_id": entities.topic_id, "partitions": [partition]}]}


@_of(consumer.ListOffsetsRequest)
def _list_offsets(entities: Entities, version: int) -> dict[str, Any]:
    wanted = [-1, -2, BASE_TIMESTAMP] if version == 0 else [-1, -2, BASE_TIMESTAMP, 2**62, -3][: 5 if version >= 7 else 4]
    partitions = [{"partition_index": i % 2, "timestamp": timestamp, "max_num_offsets": 5} for i, timestamp in enumerate(wanted)]
    return {"topics": [{"name": entities.topic, "partitions": [partition]} for partition in partitions[:2]], "timeout_ms": 1000}


@_of(metadata.MetadataRequest)
def _metadata(entities: Entities, version: int) -> dict[str, Any]:
    topic = {"name": entities.topic} if version < 12 else {"name": None, "topic_id": entities.topic_id}
    return {"topics": [topic], "allow_auto_topic_creation": False, "include_topic_authorized_operations": version >= 8,
            "include_cluster_authorized_operations": 8 <= version <= 10}


@_of(consumer.OffsetCommitRequest)
def _offset_commit(entities: Entities, version: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": 0, "committed_metadata": "m"}
    return {"group_id": "without-members", "generation_id_or_member_epoch": -1, "member_id": "", "topics": [
        {"name": entities.topic, "topic_id": entities.topic_id, "partitions": [partition, {**partition, "partition_index": 1}]}]}


@_of(consumer.OffsetFetchRequest)
def _offset_fetch(entities: Entities, version: int) -> dict[str, Any]:
    topic = {"name": entities.topic, "partition_indexes": [0, 1]}
    by_group = {**topic, "topic_id": entities.topic_id}
    return {"group_id": entities.group, "topics": [topic], "groups": [
        {"group_id": entities.group, "topics": [by_group]}, {"group_id": entities.group, "topics": None}]}


@_of(metadata.FindCoordinatorRequest)
def _find_coordinator(entities: Entities, version: int) -> dict[str, Any]:
    return {"key": entities.group, "key_type": GROUP, "coordinator_keys": [entities.group, "another"]}


@_of(consumer.JoinGroupRequest)
def _join_group(entities: Entities, version: int) -> dict[str, Any]:
    return {"group_id": fresh("joining"), "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
            "group_instance_id": "instance", "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\1"}]}


@_of(consumer.SyncGroupRequest)
def _sync_group(entities: Entities, version: int) -> dict[str, Any]:
    return {"group_id": entities.group, "generation_id": entities.generation_id, "member_id": entities.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range", "assignments": [{"member_id": entities.member_id, "assignment": b"mine"}]}


@_of(consumer.HeartbeatRequest)
def _heartbeat(entities: Entities, version: int) -> dict[str, Any]:
    return {"group_id": entities.group, "generation_id": entities.generation_id, "member_id": entities.member_id}


@_of(consumer.LeaveGroupRequest)
def _leave_group(entities: Entities, version: int) -> dict[str, Any]:
    members = [{"member_id": entities.member_id, "reason": "the end"}]
    return {"group_id": entities.group, "member_id": entities.member_id, "members": members}


@_of(admin.DescribeGroupsRequest)
def _describe_groups(entities: Entities, version: int) -> dict[str, Any]:
    return {"groups": [entities.group, "unknown"], "include_authorized_operations": version >= 3}


@_of(admin.ListGroupsRequest)
def _list_groups(entities: Entities, version: int) -> dict[str, Any]:
    return {"states_filter": [], "types_filter": []}


@_of(metadata.ApiVersionsRequest)
def _api_versions(entities: Entities, version: int) -> dict[str, Any]:
    return {"client_software_name": "tests", "client_software_version": "1.0"}


@_of(admin.CreateTopicsRequest)
def _create_topics(entities: Entities, version: int) -> dict[str, Any]:
    with_config = {"name": fresh("created"), "num_partitions": 2, "replication_factor": 1, "assignments": [],
                   "configs": [{"name": "retention.ms", "value": "-1"}]}
    assigned = {"name": fresh("created"), "num_partitions": -1, "replication_factor": -1, "configs": [],
                "assignments": [{"partition_index": 0, "broker_ids": [entities.broker_id]}]}
    return {"topics": [with_config, assigned], "timeout_ms": 10_000, "validate_only": version >= 1}


@_of(admin.DeleteTopicsRequest)
def _delete_topics(entities: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": None, "topic_id": entities.topic_id}], "topic_names": [entities.topic], "timeout_ms": 10_000}


@_of(admin.DeleteRecordsRequest)
def _delete_records(entities: Entities, version: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": 0}, {"partition_index": 1, "offset": -1}]
    return {"topics": [{"name": entities.topic, "partitions": partitions}], "timeout_ms": 1000}


@_of(producer.InitProducerIdRequest)
def _init_producer_id(entities: Entities, version: int) -> dict[str, Any]:
    return {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}


def _of_transaction(entities: Entities) -> dict[str, Any]:
    return {"transactional_id": entities.topic, "producer_id": 1000, "producer_epoch": 0}


@_of(producer.AddPartitionsToTxnRequest)
def _add_partitions_to_txn(entities: Entities, version: int) -> dict[str, Any]:
    fields = {**_of_transaction(entities), "topics": [{"name": entities.topic, "partitions": [0, 1]}]}
    if version >= 4:
        return {"transactions": [{**fields, "verify_only": True}, fields]}
    return {f"v3_and_below_{name}": value for name, value in fields.items()}


@_of(producer.AddOffsetsToTxnRequest)
def _add_offsets_to_txn(entities: Entities, version: int) -> dict[str, Any]:
    return {**_of_transaction(entities), "group_id": entities.group}


@_of(producer.EndTxnRequest)
def _end_txn(entities: Entities, version: int) -> dict[str, Any]:
    return {**_of_transaction(entities), "committed": True}


@_of(producer.TxnOffsetCommitRequest)
def _txn_offset_commit(entities: Entities, version: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": 0, "committed_metadata": "kept"}
    return {**_of_transaction(entities), "group_id": entities.group, "topics": [{"name": entities.topic, "partitions": [partition]}],
            **({"generation_id": -1, "member_id": "", "group_instance_id": None} if version >= 3 else {})}


@_of(producer.WriteTxnMarkersRequest)
def _write_txn_markers(entities: Entities, version: int) -> dict[str, Any]:
    topics = [{"name": entities.topic, "partition_indexes": [1]}]
    marker = {"producer_id": 2000, "producer_epoch": version, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}
    return {"markers": [{**marker, **({"transaction_version": 0} if version >= 2 else {})}]}


@_of(admin.DescribeTransactionsRequest)
def _describe_transactions(entities: Entities, version: int) -> dict[str, Any]:
    return {"transactional_ids": [entities.topic]}


@_of(admin.ListTransactionsRequest)
def _list_transactions(entities: Entities, version: int) -> dict[str, Any]:
    filters = {"duration_filter": -1} if version >= 1 else {}
    pattern = {"transactional_id_pattern": f"{entities.topic}.*"} if version >= 2 else {}
    return {"state_filters": ["Ongoing"], "producer_id_filters": [1], **filters, **pattern}


@_of(consumer.OffsetForLeaderEpochRequest)
def _offset_for_leader_epoch(entities: Entities, version: int) -> dict[str, Any]:
    partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}, {"partition": 1, "current_leader_epoch": -1,
                                                                                   "leader_epoch": 5}]
    return {"replica_id": -2, "topics": [{"topic": entities.topic, "partitions": partitions}]}


@_of(admin.DescribeAclsRequest)
def _describe_acls(entities: Entities, version: int) -> dict[str, Any]:
    return {"resource_type_filter": TOPIC, "resource_name_filter": entities.topic, "pattern_type_filter": 3, "principal_filter": None,
            "host_filter": None, "operation": 1, "permission_type": 1}


@_of(admin.CreateAclsRequest)
def _create_acls(entities: Entities, version: int) -> dict[str, Any]:
    return {"creations": [{"resource_type": TOPIC, "resource_name": entities.topic, "resource_pattern_type": 3, "principal": "User:a",
                           "host": "*", "operation": 3, "permission_type": 3}]}


@_of(admin.DeleteAclsRequest)
def _delete_acls(entities: Entities, version: int) -> dict[str, Any]:
    return {"filters": [{"resource_type_filter": TOPIC, "resource_name_filter": None, "pattern_type_filter": 3, "principal_filter": None,
                         "host_filter": None, "operation": 1, "permission_type": 1}]}


@_of(admin.DescribeConfigsRequest)
def _describe_configs(entities: Entities, version: int) -> dict[str, Any]:
    resources = [{"resource_type": TOPIC, "resource_name": entities.topic, "configuration_keys": None},
                 {"resource_type": BROKER, "resource_name": str(entities.broker_id), "configuration_keys": ["log.dirs", "no.such.key"]},
                 {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}]
    return {"resources": resources, "include_synonyms": version >= 1, "include_documentation": version >= 3}


@_of(admin.AlterConfigsRequest)
def _alter_configs(entities: Entities, version: int) -> dict[str, Any]:
    resource = {"resource_type": TOPIC, "resource_name": entities.topic, "configs": [{"name": "retention.ms", "value": "-1"}]}
    return {"resources": [resource], "validate_only": version == 0}


@_of(admin.IncrementalAlterConfigsRequest)
def _incremental_alter_configs(entities: Entities, version: int) -> dict[str, Any]:
    resource = {"resource_type": TOPIC, "resource_name": entities.topic, "configs": [
        {"name": "retention.ms", "config_operation": 0, "value": "-1"}, {"name": "flush.ms", "config_operation": 1, "value": None}]}
    return {"resources": [resource], "validate_only": False}


@_of(admin.AlterReplicaLogDirsRequest)
def _alter_replica_log_dirs(entities: Entities, version: int) -> dict[str, Any]:
    return {"dirs": [{"path": entities.log_dir, "topics": [{"name": entities.topic, "partitions": [0, 1]}]}]}


@_of(admin.DescribeLogDirsRequest)
def _describe_log_dirs(entities: Entities, version: int) -> dict[str, Any]:
    return {"topics": None if version % 2 else [{"topic": entities.topic, "partitions": [0, 1]}]}


@_of(admin.CreatePartitionsRequest)
def _create_partitions(entities: Entities, version: int) -> dict[str, Any]:
    topics = [{"name": entities.topic, "count": 3, "assignments": [{"broker_ids": [entities.broker_id]}]}]
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": True}


@_of(admin.DeleteGroupsRequest)
def _delete_groups(entities: Entities, version: int) -> dict[str, Any]:
    return {"groups_names": [entities.group]}


@_of(consumer.OffsetDeleteRequest)
def _offset_delete(entities: Entities, version: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0}, {"partition_index": 7}]
    return {"group_id": entities.group, "topics": [{"name": entities.topic, "partitions": partitions}]}


@_of(admin.DescribeClientQuotasRequest)
def _describe_client_quotas(entities: Entities, version: int) -> dict[str, Any]:
    return {"components": [{"entity_type": "client-id", "match_type": 0, "match": entities.group}], "strict": False}


@_of(admin.AlterClientQuotasRequest)
def _alter_client_quotas(entities: Entities, version: int) -> dict[str, Any]:
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}, {"key": "consumer_byte_rate", "value": 0.0, "remove": True}]
    entity = [{"entity_type": "client-id", "entity_name": entities.group}, {"entity_type": "user", "entity_name": None}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


@_of(admin.DescribeUserScramCredentialsRequest)
def _describe_user_scram_credentials(entities: Entities, version: int) -> dict[str, Any]:
    return {"users": [{"name": entities.group}]}


@_of(admin.AlterUserScramCredentialsRequest)
def _alter_user_scram_credentials(entities: Entities, version: int) -> dict[str, Any]:
    user = {"name": fresh("user"), "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
    return {"deletions": [], "upsertions": [user]}


@_of(admin.DescribeClusterRequest)
def _describe_cluster(entities: Entities, version: int) -> dict[str, Any]:
    return {"include_cluster_authorized_operations": True, "endpoint_type": 1}


@_of(admin.DescribeProducersRequest)
def _describe_producers(entities: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": entities.topic, "partition_indexes": [0, 1]}]}


@_of(admin.DescribeTopicPartitionsRequest)
def _describe_topic_partitions(entities: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": entities.topic}], "response_partition_limit": 1, "cursor": None}


@_of(admin.ElectLeadersRequest)
def _elect_leaders(entities: Entities, version: int) -> dict[str, Any]:
    return {"election_type": 0, "timeout_ms": 10_000, "topic_partitions": [{"topic": entities.topic, "partitions": [0, 1]}]}


@_of(admin.AlterPartitionReassignmentsRequest)
def _alter_reassignments(entities: Entities, version: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "replicas": [entities.broker_id]}
    return {"timeout_ms": 10_000, "topics": [{"name": entities.topic, "partitions": [partition]}]}


@_of(admin.ListPartitionReassignmentsRequest)
def _list_reassignments(entities: Entities, version: int) -> dict[str, Any]:
    return {"timeout_ms": 10_000, "topics": [{"name": entities.topic, "partition_indexes": [0, 1]}]}
