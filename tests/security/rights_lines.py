"""Each right that Apache Kafka asks for: the request, what it needs, and the error without it.

A line is one check of one API. `needs` are granted together; the denied form lacks the one at `tested`. `enough` are other rights of which
each alone replaces that one. What is denied has the error code `error`; without one, the name `seen` is left out, or the connection is
closed. Names: T, G and X are the topic, the group and the transactional id of the request, C is the cluster, N a topic that a request
creates. The error is the same if the name does not exist, unless `by_id`: topic ids are not secret.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.api.requests import BUILDERS, Entities
from tests.support import acls
from txbroker.wire.records import Record, build

NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = 29, 30, 31, 53
DENIALS = frozenset({NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION})

NEW = "new-"  # the prefix of topics that requests create
_serial = itertools.count(1)


class Right(NamedTuple):
    """An operation on a resource, which is one of the letters T, G, X, C, N."""

    operation: int
    letter: str


Fields = Callable[[Entities, int], Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """See the docstring of the module. `versions`: those that it holds for."""

    name: str
    key: int
    versions: tuple[int, int]
    needs: Sequence[Right]
    error: int | None = None
    tested: int = 0
    enough: Sequence[Right] = ()
    seen: str = ""
    fields: Fields | None = None
    by_id: bool = False
    is_closed: bool = False

    def request(self, entities: Entities, version: int) -> Mapping[str, Any]:
        """The fields of kafka-python's request."""
        return {**BUILDERS[self.key][1](entities, version), **({} if self.fields is None else self.fields(entities, version))}


def _rights(text: str) -> tuple[Right, ...]:
    """As `WRITE X, WRITE T`."""
    found = (part.split() for part in text.split(",") if part.strip())
    return tuple(Right(getattr(acls, operation), letter) for operation, letter in found)


def line(name: str, key: int, versions: tuple[int, int], needs: str, error: int | None = None, *, enough: str = "", **more: Any) -> Line:
    """A line whose rights are text."""
    return Line(name, key, versions, _rights(needs), error, enough=_rights(enough), **more)


def each(name: str, key: int, versions: tuple[int, int], needs: str, errors: Sequence[int], **more: Any) -> list[Line]:
    """One line for each of several rights that a request needs."""
    whole = line(name, key, versions, needs, **more)
    return [replace(whole, name=f"{name}, {needs.split(', ')[i]}", tested=i, error=error) for i, error in enumerate(errors)]


def new_topic() -> str:
    """A name below NEW."""
    return f"{NEW}{next(_serial)}"


# --- requests that differ from those of tests/api/requests.py ---


def _transactional(e: Entities, version: int) -> dict[str, Any]:
    records = build([Record(0, 0, b"k", b"v")], producer_id=1000, producer_epoch=0, base_sequence=0, transactional=True)
    return {"transactional_id": e.topic, "topic_data": [
        {"name": e.topic, "topic_id": e.topic_id, "partition_data": [{"index": 0, "records": records}]}]}


def _no_answer(e: Entities, version: int) -> dict[str, Any]:
    return {"acks": 0}


def _replica(e: Entities, version: int) -> dict[str, Any]:
    return {"replica_id": 7} if version < 15 else {"replica_state": {"replica_id": 7, "replica_epoch": -1}}


def _all_topics(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [] if version == 0 else None}


def _by_name(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": e.topic}]}


def _auto_created(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": new_topic()}], "allow_auto_topic_creation": True}


def _bits(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [], "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}


def _own_group(e: Entities, version: int) -> dict[str, Any]:
    return {"group_id": e.group}


def _offsets_of_all(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": None, "groups": [{"group_id": e.group, "topics": None}]}


def _offsets_of_one(e: Entities, version: int) -> dict[str, Any]:
    topic = {"name": e.topic, "topic_id": e.topic_id, "partition_indexes": [0, 1]}
    return {"groups": [{"group_id": e.group, "topics": [topic]}]}


def _key(e: Entities, version: int) -> dict[str, Any]:
    return {"key": e.group, "key_type": 0, "coordinator_keys": [e.group]}


def _transaction_key(e: Entities, version: int) -> dict[str, Any]:
    return {"key": e.topic, "key_type": 1, "coordinator_keys": [e.topic]}


def _one_group(e: Entities, version: int) -> dict[str, Any]:
    return {"groups": [e.group]}


def _new_topic(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [{"name": new_topic(), "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]}


def _new_id(e: Entities, version: int) -> dict[str, Any]:
    return {"transactional_id": e.topic + "-y"}


def _of_topic(**more: Any) -> Fields:
    return lambda e, version: {"resources": [{"resource_type": 2, "resource_name": e.topic, **more}]}


def _of_brokers(**more: Any) -> Fields:
    return lambda e, version: {"resources": [{"resource_type": 4, "resource_name": "", **more}]}


_DESCRIBED: dict[str, Any] = {"configuration_keys": ["retention.ms", "log.cleaner.threads"]}
_SET: dict[str, Any] = {"configs": [{"name": "log.cleaner.threads", "value": "1"}]}
_SET_ONE: dict[str, Any] = {"configs": [{"name": "log.cleaner.threads", "value": "1", "config_operation": 0}]}
_TOPIC_SET: dict[str, Any] = {"configs": [{"name": "retention.ms", "value": "-1"}]}
_TOPIC_SET_ONE: dict[str, Any] = {"configs": [{"name": "retention.ms", "value": "-1", "config_operation": 0}]}


def _directories(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": None}


def _all_transactions(e: Entities, version: int) -> dict[str, Any]:
    return {"state_filters": [], "producer_id_filters": [], **({"transactional_id_pattern": None} if version >= 2 else {})}


def _every_topic(e: Entities, version: int) -> dict[str, Any]:
    return {"topics": [], "response_partition_limit": 2000}


def _acl_of_nothing(e: Entities, version: int) -> dict[str, Any]:
    return {"filters": [{"resource_type_filter": acls.TOPIC, "resource_name_filter": "no-acl", "pattern_type_filter": 3,
                         "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}]}


def _one_user(e: Entities, version: int) -> dict[str, Any]:
    user = {"name": "user", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
    return {"deletions": [], "upsertions": [user]}


LINES = [
    *each("Produce, a transaction", 0, (3, 12), "WRITE X, WRITE T", (NO_TRANSACTION, NO_TOPIC), fields=_transactional),
    line("Produce by name", 0, (0, 12), "WRITE T", NO_TOPIC),
    line("Produce, an id without a transaction", 0, (3, 12), "WRITE T", NO_TOPIC, fields=lambda e, v: {"transactional_id": e.topic}),
    line("Produce by id", 0, (13, 13), "WRITE T", NO_TOPIC, by_id=True),
    line("Produce, acks=0", 0, (3, 12), "WRITE T", is_closed=True, fields=_no_answer),
    line("Fetch by name", 1, (4, 12), "READ T", NO_TOPIC),
    line("Fetch by id", 1, (13, 17), "READ T", NO_TOPIC, by_id=True),
    line("Fetch of a replica", 1, (4, 14), "CLUSTER_ACTION C", NO_TOPIC, fields=_replica, by_id=True),
    line("Fetch of a replica, in its state", 1, (15, 17), "CLUSTER_ACTION C", NO_TOPIC, fields=_replica, by_id=True),
    line("ListOffsets", 2, (1, 11), "DESCRIBE T", NO_TOPIC),
    line("ListOffsets of a replica", 2, (1, 11), "DESCRIBE T", NO_TOPIC, fields=lambda e, v: {"replica_id": 7}),
    line("Metadata of all topics", 3, (0, 13), "DESCRIBE T", seen="T", fields=_all_topics),
    line("Metadata by name", 3, (0, 13), "DESCRIBE T", NO_TOPIC, fields=_by_name),
    line("Metadata by id", 3, (12, 13), "DESCRIBE T", NO_TOPIC, by_id=True),
    line("Metadata, a new topic", 3, (4, 13), "CREATE N, DESCRIBE N", NO_TOPIC, enough="CREATE C", fields=_auto_created),
    *each("OffsetCommit", 8, (2, 9), "READ G, READ T", (NO_GROUP, NO_TOPIC), fields=_own_group),
    line("OffsetCommit by id", 8, (10, 10), "READ T, READ G", NO_TOPIC, fields=_own_group, by_id=True),
    *each("OffsetFetch", 9, (1, 9), "DESCRIBE G, DESCRIBE T", (NO_GROUP, NO_TOPIC), fields=_offsets_of_one),
    line("OffsetFetch of all topics", 9, (2, 9), "DESCRIBE T, DESCRIBE G", seen="T", fields=_offsets_of_all),
    line("FindCoordinator of a group", 10, (0, 6), "DESCRIBE G", NO_GROUP, fields=_key),
    line("FindCoordinator of a transactional id", 10, (1, 6), "DESCRIBE X", NO_TRANSACTION, fields=_transaction_key),
    line("JoinGroup", 11, (0, 9), "READ G", NO_GROUP, fields=lambda e, v: {"group_id": e.group, "member_id": "unknown"}),
    line("Heartbeat", 12, (0, 4), "READ G", NO_GROUP),
    line("LeaveGroup", 13, (0, 5), "READ G", NO_GROUP),
    line("SyncGroup", 14, (0, 5), "READ G", NO_GROUP),
    line("DescribeGroups", 15, (0, 6), "DESCRIBE G", NO_GROUP, fields=_one_group),
    line("ListGroups", 16, (0, 5), "DESCRIBE G", seen="G", enough="DESCRIBE C"),
    line("CreateTopics", 19, (0, 7), "CREATE N", NO_TOPIC, enough="CREATE C", fields=_new_topic),
    line("CreateTopics, the configuration", 19, (5, 7), "DESCRIBE_CONFIGS N, CREATE N", seen="num_partitions': 1",
         fields=_new_topic),
    line("DeleteTopics", 20, (0, 5), "DELETE T", NO_TOPIC),
    line("DeleteTopics by id", 20, (6, 6), "DELETE T", NO_TOPIC, by_id=True),
    line("DeleteRecords", 21, (0, 2), "DELETE T", NO_TOPIC),
    line("InitProducerId of a transactional id", 22, (0, 5), "WRITE X", NO_TRANSACTION, fields=_new_id),
    line("InitProducerId", 22, (0, 5), "IDEMPOTENT_WRITE C", NO_CLUSTER, enough="WRITE T, WRITE N"),
    line("OffsetForLeaderEpoch", 23, (0, 4), "DESCRIBE T", NO_TOPIC, enough="CLUSTER_ACTION C"),
    *each("AddPartitionsToTxn", 24, (0, 3), "WRITE X, WRITE T", (NO_TRANSACTION, NO_TOPIC)),
    line("AddPartitionsToTxn of brokers", 24, (4, 5), "CLUSTER_ACTION C", NO_CLUSTER),
    *each("AddOffsetsToTxn", 25, (0, 4), "WRITE X, READ G", (NO_TRANSACTION, NO_GROUP)),
    line("EndTxn", 26, (0, 5), "WRITE X", NO_TRANSACTION),
    line("WriteTxnMarkers", 27, (1, 1), "CLUSTER_ACTION C", NO_CLUSTER, enough="ALTER C"),
    *each("TxnOffsetCommit", 28, (0, 5), "WRITE X, READ G, READ T", (NO_TRANSACTION, NO_GROUP, NO_TOPIC)),
    line("DescribeAcls", 29, (1, 3), "DESCRIBE C", NO_CLUSTER),
    line("CreateAcls", 30, (1, 3), "ALTER C", NO_CLUSTER),
    line("DeleteAcls", 31, (1, 3), "ALTER C", NO_CLUSTER, fields=_acl_of_nothing),
    line("DescribeConfigs of a topic", 32, (1, 4), "DESCRIBE_CONFIGS T", NO_TOPIC, enough="ALTER_CONFIGS T",
         fields=_of_topic(**_DESCRIBED)),
    line("DescribeConfigs of brokers", 32, (1, 4), "DESCRIBE_CONFIGS C", NO_CLUSTER, enough="ALTER_CONFIGS C",
         fields=_of_brokers(**_DESCRIBED)),
    line("AlterConfigs of a topic", 33, (0, 2), "ALTER_CONFIGS T", NO_TOPIC, fields=_of_topic(**_TOPIC_SET)),
    line("AlterConfigs of brokers", 33, (0, 2), "ALTER_CONFIGS C", NO_CLUSTER, fields=_of_brokers(**_SET)),
    line("AlterReplicaLogDirs", 34, (1, 2), "ALTER C", NO_CLUSTER),
    line("DescribeLogDirs", 35, (3, 4), "DESCRIBE C", NO_CLUSTER, fields=_directories),
    line("DescribeLogDirs, without an error", 35, (1, 2), "DESCRIBE C", seen="T", fields=_directories),
    line("CreatePartitions", 37, (0, 3), "ALTER T", NO_TOPIC),
    line("DeleteGroups", 42, (0, 2), "DELETE G", NO_GROUP),
    line("ElectLeaders", 43, (0, 2), "ALTER C", NO_CLUSTER),
    line("IncrementalAlterConfigs of a topic", 44, (0, 1), "ALTER_CONFIGS T", NO_TOPIC, fields=_of_topic(**_TOPIC_SET_ONE)),
    line("IncrementalAlterConfigs of brokers", 44, (0, 1), "ALTER_CONFIGS C", NO_CLUSTER, fields=_of_brokers(**_SET_ONE)),
    line("AlterPartitionReassignments", 45, (0, 1), "ALTER C", NO_CLUSTER),
    line("ListPartitionReassignments", 46, (0, 0), "DESCRIBE C", NO_CLUSTER),
    *each("OffsetDelete", 47, (0, 0), "DELETE G, READ T", (NO_GROUP, NO_TOPIC)),
    line("DescribeClientQuotas", 48, (0, 1), "DESCRIBE_CONFIGS C", NO_CLUSTER, enough="ALTER_CONFIGS C"),
    line("AlterClientQuotas", 49, (0, 1), "ALTER_CONFIGS C", NO_CLUSTER, fields=lambda e, v: {"validate_only": True}),
    line("DescribeUserScramCredentials", 50, (0, 0), "DESCRIBE C", NO_CLUSTER, enough="ALTER C"),
    line("AlterUserScramCredentials", 51, (0, 0), "ALTER C", NO_CLUSTER, fields=_one_user),
    line("DescribeProducers", 61, (0, 0), "READ T", NO_TOPIC),
    line("DescribeTransactions", 65, (0, 0), "DESCRIBE X, DESCRIBE T", NO_TRANSACTION),
    line("DescribeTransactions, its topics", 65, (0, 0), "DESCRIBE T, DESCRIBE X", seen="partitions': [0"),
    line("ListTransactions", 66, (0, 2), "DESCRIBE X", seen="X", fields=_all_transactions),
    line("DescribeTopicPartitions", 75, (0, 0), "DESCRIBE T", NO_TOPIC),
    line("DescribeTopicPartitions of all", 75, (0, 0), "DESCRIBE T", seen="T", fields=_every_topic),
]
# APIs that every client may use. DescribeCluster returns the client's rights on the cluster.
FREE = {18: "ApiVersions", 60: "DescribeCluster"}
