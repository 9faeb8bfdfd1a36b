"""One thing named twice in a request, and lists and strings that are empty or null: what each API answers.

`pytest --broker=kafka` and `--broker=kafka-3.9` check the answers of Apache Kafka 4.3 and 3.9. Where they differ, txbroker gives one
of their answers, except that it describes what is named twice once, so that a small request has no large answer, and that it appends all
batches of a Produce request, of which Kafka keeps the last one of each partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tests.support.odd_batches import batch, record
from tests.support.plain_requests import PlainConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.errors import error_name
from txbroker.wire.fieldkinds import resolve
from txbroker.wire.schema import Struct

TIMEOUT = {"timeout_ms": 20_000}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_KEYS = (
    "name", "topic", "topic_name", "group_id", "resource_name", "transactional_id", "entity_name",
    "partition_index", "partition_id", "partition", "index",
)  # fmt: skip


class Row(NamedTuple):
    """A request, what is answered, and by which other brokers something else."""

    name: str
    api: str
    version: int
    fields: dict[str, Any]
    answer: list[str]
    others: Mapping[str, list[str]] = {}


def answers(response: Struct) -> list[str]:
    """What has which error, in the order of names, e.g. ["topic 0 OK", "topic 1 INVALID_REQUEST"]. OK of a whole response is left out."""
    return sorted(_answers(response, ()))


def _answers(struct: Struct, within: tuple[str, ...]) -> Iterator[str]:
    values = {field.name: getattr(struct, field.name) for field in resolve(type(struct))}
    within = (*within, *(str(values[key]) for key in _KEYS if values.get(key) is not None))
    for name in ("error_code", "partition_error_code"):
        if name in values and (within or values[name]):
            yield " ".join((*within, error_name(values[name]) if values[name] else "OK"))
    for value in values.values():
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct):
                yield from _answers(each, within)


def created(name: str, *configs: tuple[str, str | None], **fields: Any) -> dict[str, Any]:
    """A topic of CreateTopics."""
    made = [{"name": key, "value": value} for key, value in configs]
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": made, **fields}


def parts(topic: str, *partitions: int, named: str = "name", of: str = "partitions", **fields: Any) -> dict[str, Any]:
    """A topic with partitions, each with these fields; without fields the partitions are numbers."""
    return {named: topic, of: [{"partition_index": index, **fields} for index in partitions] if fields else list(partitions)}


def altered(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> dict[str, Any]:
    """A resource of IncrementalAlterConfigs."""
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def replaced(name: str, *configs: tuple[str, str | None]) -> dict[str, Any]:
    """A resource of AlterConfigs."""
    return {"resource_type": TOPIC, "resource_name": name, "configs": [{"name": key, "value": value} for key, value in configs]}


def described(name: str, keys: list[str] | None, kind: int = TOPIC) -> dict[str, Any]:
    """A resource of DescribeConfigs."""
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


# Names of topics, groups, users and transactional ids of one run of the test, which get a prefix.
NAMES = frozenset({"one", "two", "new", "other", "keys", "null", "unknown", "absent", "group", "transaction", "u"})
RECORDS, TRANSACTION = "RECORDS", {"TRANSACTION": None}  # are replaced
GROUP = {"group_id": "group", "member_id": "", "generation_id_or_member_epoch": -1}
USER = [{"entity_type": "user", "entity_name": "u"}]
COMMITTED: dict[str, Any] = {"committed_offset": 1, "committed_metadata": ""}

ROWS = [
    Row(
        "create, topic twice",
        "CreateTopics",
        4,
        {"topics": [created("new"), created("new"), created("other")], **TIMEOUT},
        ["new INVALID_REQUEST", "other OK"],
        {"kafka-3.9": ["new INVALID_REQUEST", "new INVALID_REQUEST", "other OK"]},
    ),
    Row(
        "create, key twice",
        "CreateTopics",
        4,
        {"topics": [created("keys", ("retention.ms", "x"), ("retention.ms", "7"))], **TIMEOUT},
        ["keys OK"],
    ),
    Row(
        "create, null value",
        "CreateTopics",
        4,
        {"topics": [created("null", ("retention.ms", None))], **TIMEOUT},
        ["null INVALID_CONFIG"],
    ),
    Row(
        "create, null value, then another",
        "CreateTopics",
        4,
        {"topics": [created("null", ("retention.ms", None), ("retention.ms", "7"))], **TIMEOUT},
        ["null INVALID_CONFIG"],
    ),
    Row(
        "create, nothing",
        "CreateTopics",
        4,
        {"topics": [], **TIMEOUT},
        [],
    ),
    Row(
        "create, internal topic",
        "CreateTopics",
        4,
        {"topics": [created("__consumer_offsets")], **TIMEOUT},
        ["__consumer_offsets TOPIC_ALREADY_EXISTS"],
    ),
    Row(
        "delete, unknown topic twice",
        "DeleteTopics",
        4,
        {"topic_names": ["unknown", "unknown", "absent"], **TIMEOUT},
        ["absent UNKNOWN_TOPIC_OR_PARTITION", "unknown INVALID_REQUEST", "unknown INVALID_REQUEST"],
        {
            "kafka": ["absent UNKNOWN_TOPIC_OR_PARTITION", "unknown INVALID_REQUEST"],
            "kafka-3.9": ["absent UNKNOWN_TOPIC_OR_PARTITION", "unknown UNKNOWN_TOPIC_OR_PARTITION", "unknown UNKNOWN_TOPIC_OR_PARTITION"],
        },
    ),
    Row(
        "delete, unknown topic twice by name, v6",
        "DeleteTopics",
        6,
        {"topics": [{"name": "unknown"}, {"name": "unknown"}], **TIMEOUT},
        ["unknown INVALID_REQUEST", "unknown INVALID_REQUEST"],
        {"kafka": ["unknown INVALID_REQUEST"], "kafka-3.9": ["unknown UNKNOWN_TOPIC_OR_PARTITION", "unknown UNKNOWN_TOPIC_OR_PARTITION"]},
    ),
    Row(
        "delete, unknown id twice",
        "DeleteTopics",
        6,
        {"topics": [{"name": None, "topic_id": b"i" * 16}] * 2, **TIMEOUT},
        ["INVALID_REQUEST", "INVALID_REQUEST"],
        {"kafka": ["INVALID_REQUEST"], "kafka-3.9": ["UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_ID"]},
    ),
    Row(
        "delete, name and id",
        "DeleteTopics",
        6,
        {"topics": [{"name": "one", "topic_id": b"i" * 16}], **TIMEOUT},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "delete, neither name nor id",
        "DeleteTopics",
        6,
        {"topics": [{"name": None}], **TIMEOUT},
        ["INVALID_REQUEST"],
        {"kafka-3.9": ["TOPIC_AUTHORIZATION_FAILED"]},
    ),
    Row(
        "delete, nothing",
        "DeleteTopics",
        4,
        {"topic_names": [], **TIMEOUT},
        [],
    ),
    Row(
        "partitions, topic twice",
        "CreatePartitions",
        1,
        {"topics": [{"name": "one", "count": 2, "assignments": None}, {"name": "one", "count": 3, "assignments": None}], **TIMEOUT},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "partitions, empty assignments",
        "CreatePartitions",
        1,
        {"topics": [{"name": "one", "count": 2, "assignments": []}], **TIMEOUT},
        ["one INVALID_REPLICATION_ASSIGNMENT"],
    ),
    Row(
        "partitions, assignment to no broker",
        "CreatePartitions",
        1,
        {"topics": [{"name": "one", "count": 2, "assignments": [{"broker_ids": []}]}], **TIMEOUT},
        ["one INVALID_REPLICATION_ASSIGNMENT"],
    ),
    Row(
        "partitions, internal topic",
        "CreatePartitions",
        1,
        {"topics": [{"name": "__consumer_offsets", "count": 1, "assignments": None}], **TIMEOUT},
        ["__consumer_offsets INVALID_REQUEST"],
        {"kafka": ["__consumer_offsets INVALID_PARTITIONS"], "kafka-3.9": ["__consumer_offsets INVALID_PARTITIONS"]},
    ),
    Row(
        "metadata, topic twice",
        "Metadata",
        5,
        {"topics": [{"name": "one"}, {"name": "one"}]},
        ["one 0 OK", "one OK"],
    ),
    Row(
        "metadata, unknown topic twice",
        "Metadata",
        5,
        {"topics": [{"name": "unknown"}] * 2, "allow_auto_topic_creation": False},
        ["unknown UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    Row(
        "metadata, nothing, v1",
        "Metadata",
        1,
        {"topics": []},
        [],
    ),
    Row(
        "metadata, nothing",
        "Metadata",
        12,
        {"topics": []},
        [],
    ),
    Row(
        "metadata, empty name",
        "Metadata",
        5,
        {"topics": [{"name": ""}]},
        [" INVALID_TOPIC_EXCEPTION"],
    ),
    Row(
        "offsets, partition twice",
        "ListOffsets",
        5,
        {"topics": [parts("one", 0, 0, 1, timestamp=-1), parts("two", 0, timestamp=-1)], "replica_id": -1},
        ["one 0 INVALID_REQUEST", "one 0 INVALID_REQUEST", "one 1 UNKNOWN_TOPIC_OR_PARTITION", "two 0 OK"],
        {"kafka": ["one 0 INVALID_REQUEST", "one 1 UNKNOWN_TOPIC_OR_PARTITION", "two 0 OK"]},
    ),
    Row(
        "offsets, topic twice",
        "ListOffsets",
        5,
        {"topics": [parts("one", 0, timestamp=-1)] * 2, "replica_id": -1},
        ["one 0 INVALID_REQUEST", "one 0 INVALID_REQUEST"],
        {"kafka": ["one 0 INVALID_REQUEST"]},
    ),
    Row(
        "offsets, topic twice with other partitions",
        "ListOffsets",
        5,
        {"topics": [parts("one", 0, timestamp=-1), parts("one", 1, timestamp=-1)], "replica_id": -1},
        ["one 0 OK", "one 1 UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    Row(
        "offsets, nothing",
        "ListOffsets",
        5,
        {"topics": [], "replica_id": -1},
        [],
    ),
    Row(
        "produce, partition twice",
        "Produce",
        7,
        {"acks": -1, "topic_data": [{"name": "two", "partition_data": [{"index": 0, "records": RECORDS}] * 2}], **TIMEOUT},
        ["two 0 OK", "two 0 OK"],
        {"kafka": ["two 0 OK"], "kafka-3.9": ["two 0 OK"]},
    ),
    Row(
        "produce, topic twice",
        "Produce",
        7,
        {"acks": -1, "topic_data": [{"name": "two", "partition_data": [{"index": 0, "records": RECORDS}]}] * 2, **TIMEOUT},
        ["two 0 OK", "two 0 OK"],
        {"kafka": ["two 0 OK"], "kafka-3.9": ["two 0 OK"]},
    ),
    Row(
        "produce, nothing",
        "Produce",
        7,
        {"acks": -1, "topic_data": [], **TIMEOUT},
        [],
    ),
    Row(
        "produce, internal topic",
        "Produce",
        7,
        {"acks": -1, "topic_data": [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": RECORDS}]}], **TIMEOUT},
        ["__consumer_offsets 0 INVALID_TOPIC_EXCEPTION"],
    ),
    Row(
        "delete records, partition twice: the last counts",
        "DeleteRecords",
        1,
        {"topics": [parts("one", 0, offset=99), parts("one", 0, offset=1)], **TIMEOUT},
        ["one 0 OK"],
    ),
    Row(
        "delete records, internal topic",
        "DeleteRecords",
        1,
        {"topics": [parts("__consumer_offsets", 0, offset=0), parts("one", 0, offset=1)], **TIMEOUT},
        ["__consumer_offsets 0 INVALID_TOPIC_EXCEPTION", "one 0 OK"],
    ),
    Row(
        "commit, partition twice",
        "OffsetCommit",
        7,
        {**GROUP, "topics": [parts("one", 0, 0, committed_offset=1, committed_metadata="")]},
        ["one 0 OK", "one 0 OK"],
        {"kafka-3.9": ["one 0 OK"]},
    ),
    Row(
        "commit, null metadata",
        "OffsetCommit",
        7,
        {**GROUP, "topics": [parts("one", 0, committed_offset=5, committed_metadata=None)]},
        ["one 0 OK"],
    ),
    Row(
        "commit, nothing",
        "OffsetCommit",
        7,
        {**GROUP, "topics": []},
        [],
    ),
    Row(
        "fetch offsets, partition twice",
        "OffsetFetch",
        5,
        {"group_id": "group", "topics": [parts("one", 0, 0, of="partition_indexes")]},
        ["one 0 OK"],
        {"kafka": ["one 0 OK", "one 0 OK"]},
    ),
    Row(
        "fetch offsets, all topics",
        "OffsetFetch",
        5,
        {"group_id": "group", "topics": None},
        ["one 0 OK"],
    ),
    Row(
        "fetch offsets, no topic",
        "OffsetFetch",
        5,
        {"group_id": "group", "topics": []},
        [],
    ),
    Row(
        "fetch offsets, no topic, v1",
        "OffsetFetch",
        1,
        {"group_id": "group", "topics": []},
        [],
    ),
    Row(
        "fetch offsets, group twice",
        "OffsetFetch",
        8,
        {"groups": [{"group_id": "group", "topics": [parts("one", 0, of="partition_indexes")]}] * 2},
        ["group OK", "group one 0 OK"],
        {
            "kafka": ["group OK", "group OK", "group one 0 OK", "group one 0 OK"],
            "kafka-3.9": ["group OK", "group OK", "group one 0 OK", "group one 0 OK"],
        },
    ),
    Row(
        "fetch offsets, all topics of a group",
        "OffsetFetch",
        8,
        {"groups": [{"group_id": "group", "topics": None}]},
        ["group OK", "group one 0 OK"],
    ),
    Row(
        "fetch offsets, no topic of a group",
        "OffsetFetch",
        8,
        {"groups": [{"group_id": "group", "topics": []}]},
        ["group OK"],
    ),
    Row(
        "groups, twice",
        "DescribeGroups",
        4,
        {"groups": ["group", "group"]},
        ["group OK"],
        {"kafka": ["group OK", "group OK"], "kafka-3.9": ["group OK", "group OK"]},
    ),
    Row(
        "groups, nothing",
        "DescribeGroups",
        4,
        {"groups": []},
        [],
    ),
    Row(
        "delete groups, twice",
        "DeleteGroups",
        1,
        {"groups_names": ["unknown", "unknown"]},
        ["unknown GROUP_ID_NOT_FOUND"],
    ),
    Row(
        "delete groups, nothing",
        "DeleteGroups",
        1,
        {"groups_names": []},
        [],
    ),
    Row(
        "configurations, resource twice",
        "DescribeConfigs",
        1,
        {"resources": [described("one", ["retention.ms"]), described("one", ["segment.ms"])]},
        ["one OK"],
        {"kafka": ["one OK", "one OK"], "kafka-3.9": ["one OK", "one OK"]},
    ),
    Row(
        "configurations, empty topic name",
        "DescribeConfigs",
        1,
        {"resources": [described("", None)]},
        [" INVALID_TOPIC_EXCEPTION"],
    ),
    Row(
        "configurations, nothing",
        "DescribeConfigs",
        1,
        {"resources": []},
        [],
    ),
    Row(
        "replace configurations, key twice",
        "AlterConfigs",
        1,
        {"resources": [replaced("one", ("retention.ms", "3"), ("retention.ms", "4"))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "replace configurations, null value",
        "AlterConfigs",
        1,
        {"resources": [replaced("one", ("segment.ms", "9999999"), ("retention.ms", None))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "replace configurations, none",
        "AlterConfigs",
        1,
        {"resources": [replaced("two")]},
        ["two OK"],
    ),
    Row(
        "replace configurations, empty topic name",
        "AlterConfigs",
        1,
        {"resources": [replaced("", ("retention.ms", "3"))]},
        [" INVALID_REQUEST"],
    ),
    Row(
        "replace configurations, nothing",
        "AlterConfigs",
        1,
        {"resources": []},
        [],
    ),
    Row(
        "alter configurations, resource twice",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("retention.ms", SET, "5")), altered("two"), altered("one", ("segment.ms", SET, "9999999"))]},
        ["one INVALID_REQUEST", "one INVALID_REQUEST", "two OK"],
    ),
    Row(
        "alter configurations, key twice",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "alter configurations, set null",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("retention.ms", SET, None))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "alter configurations, delete with null",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("retention.ms", DELETE, None))]},
        ["one OK"],
    ),
    Row(
        "alter configurations, append null",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("cleanup.policy", APPEND, None))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "alter configurations, append nothing",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("cleanup.policy", APPEND, ""))]},
        ["one INVALID_CONFIG"],
    ),
    Row(
        "alter configurations, append what it has",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("cleanup.policy", APPEND, "delete"))]},
        ["one OK"],
    ),
    Row(
        "alter configurations, subtract null",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("one", ("cleanup.policy", SUBTRACT, None))]},
        ["one INVALID_REQUEST"],
    ),
    Row(
        "alter configurations, empty topic name",
        "IncrementalAlterConfigs",
        1,
        {"resources": [altered("", ("retention.ms", SET, "5"))]},
        [" INVALID_REQUEST"],
    ),
    Row(
        "alter configurations, internal topic",
        "IncrementalAlterConfigs",
        1,
        {"validate_only": True, "resources": [altered("__consumer_offsets", ("retention.ms", SET, "5"))]},
        ["__consumer_offsets OK"],
    ),
    Row(
        "move replicas, partition twice",
        "AlterReplicaLogDirs",
        1,
        {"dirs": [{"path": "/none", "topics": [parts("one", 0, 0)]}] * 2},
        ["one 0 LOG_DIR_NOT_FOUND"],
    ),
    Row(
        "producers, partition twice",
        "DescribeProducers",
        0,
        {"topics": [parts("one", 0, 0, of="partition_indexes")]},
        ["one 0 OK"],
        {"kafka": ["one 0 OK", "one 0 OK"], "kafka-3.9": ["one 0 OK", "one 0 OK"]},
    ),
    Row(
        "producers, nothing",
        "DescribeProducers",
        0,
        {"topics": []},
        [],
    ),
    Row(
        "transactions, twice",
        "DescribeTransactions",
        0,
        {"transactional_ids": ["unknown", "unknown"]},
        ["unknown TRANSACTIONAL_ID_NOT_FOUND"],
        {
            "kafka": ["unknown TRANSACTIONAL_ID_NOT_FOUND", "unknown TRANSACTIONAL_ID_NOT_FOUND"],
            "kafka-3.9": ["unknown TRANSACTIONAL_ID_NOT_FOUND", "unknown TRANSACTIONAL_ID_NOT_FOUND"],
        },
    ),
    Row(
        "transactions, empty id",
        "DescribeTransactions",
        0,
        {"transactional_ids": [""]},
        [" INVALID_REQUEST"],
    ),
    Row(
        "producer id, empty transactional id",
        "InitProducerId",
        2,
        {"transactional_id": "", "transaction_timeout_ms": 1000},
        ["INVALID_REQUEST"],
    ),
    Row(
        "add partitions, internal topic",
        "AddPartitionsToTxn",
        3,
        {**TRANSACTION, "v3_and_below_topics": [parts("__consumer_offsets", 0, 999), parts("one", 0), parts("unknown", 0)]},
        [
            "__consumer_offsets 0 TOPIC_AUTHORIZATION_FAILED",
            "__consumer_offsets 999 TOPIC_AUTHORIZATION_FAILED",
            "one 0 OPERATION_NOT_ATTEMPTED",
            "unknown 0 UNKNOWN_TOPIC_OR_PARTITION",
        ],
    ),
    Row(
        "add partitions, internal topic of transactions",
        "AddPartitionsToTxn",
        3,
        {**TRANSACTION, "v3_and_below_topics": [parts("__transaction_state", 0), parts("one", 0)]},
        ["__transaction_state 0 TOPIC_AUTHORIZATION_FAILED", "one 0 OPERATION_NOT_ATTEMPTED"],
    ),
    Row(
        "add partitions, unknown partition",
        "AddPartitionsToTxn",
        3,
        {**TRANSACTION, "v3_and_below_topics": [parts("one", 0, 7)]},
        ["one 0 OPERATION_NOT_ATTEMPTED", "one 7 UNKNOWN_TOPIC_OR_PARTITION"],
    ),
    Row(
        "add partitions, nothing",
        "AddPartitionsToTxn",
        3,
        {**TRANSACTION, "v3_and_below_topics": []},
        [],
    ),
    Row(
        "quotas, entity twice in a filter",
        "DescribeClientQuotas",
        0,
        {"components": [{"entity_type": "user", "match_type": 0, "match": "u"}] * 2},
        ["INVALID_REQUEST"],
    ),
    Row(
        "quotas, key twice",
        "AlterClientQuotas",
        0,
        {"entries": [{"entity": USER, "ops": [{"key": "producer_byte_rate", "value": 9.0}] * 2}]},
        ["INVALID_REQUEST"],
        {"kafka-3.9": []},
    ),
    Row(
        "quotas, no entity",
        "AlterClientQuotas",
        0,
        {"entries": [{"entity": [], "ops": [{"key": "producer_byte_rate", "value": 9.0}]}]},
        ["INVALID_REQUEST"],
    ),
    Row(
        "quotas, nothing",
        "AlterClientQuotas",
        0,
        {"entries": []},
        [],
    ),
]


class Run:
    """Fields of requests with the names, the records and the transaction of one run."""

    def __init__(self, connection: PlainConnection, prefix: str) -> None:
        self._connection = connection
        self.prefix = prefix
        self._records = batch(record(), now_ms=int(time.time() * 1000))
        self._transaction: dict[str, Any] = {}
        self.serving = SERVING

    def begin(self) -> None:
        """Records and offsets, and a producer with a transactional id."""
        call, group, transaction = self._connection.call, f"{self.prefix}group", f"{self.prefix}transaction"
        data = [{"index": 0, "records": self._records}]
        assert call("Produce", 7, acks=-1, topic_data=[{"name": f"{self.prefix}one", "partition_data": data}], **TIMEOUT)
        for kind, key in enumerate((group, transaction)):
            until(partial(self._has_coordinator, kind, key), "a coordinator")
        commit = self.own({**GROUP, "topics": [parts("one", 0, **COMMITTED)]})
        until(lambda: answers(call("OffsetCommit", 7, **commit)) == [f"{self.prefix}one 0 OK"], "an offset is committed")
        until(lambda: self._initialized(transaction), "a producer id")

    def _has_coordinator(self, kind: int, key: str) -> bool:
        return bool(self._connection.call("FindCoordinator", 1, key=key, key_type=kind).error_code == 0)

    def _initialized(self, transaction: str) -> bool:
        found = self._connection.call("InitProducerId", 2, transactional_id=transaction, transaction_timeout_ms=60_000)
        self._transaction = {
            "v3_and_below_transactional_id": transaction,
            "v3_and_below_producer_id": found.producer_id,
            "v3_and_below_producer_epoch": found.producer_epoch,
        }
        return bool(found.error_code == 0)

    def own(self, value: Any) -> Any:
        """The fields with this run's values."""
        if isinstance(value, str):
            return self._records if value == RECORDS else f"{self.prefix}{value}" if value in NAMES else value
        if isinstance(value, list):
            return [self.own(each) for each in value]
        if not isinstance(value, dict):
            return self.serving if value == SERVING else value
        made = {key: self.own(each) for key, each in value.items() if key != "TRANSACTION"}
        return {**self._transaction, **made} if "TRANSACTION" in value else made


def test_every_row(broker: Server, name: str) -> None:
    for topic in ("one", "two"):
        create_topic(broker, f"{name}-{topic}")
    found, expected = {}, {}
    with PlainConnection(broker.address) as connection:
        run = Run(connection, f"{name}-")
        run.begin()
        for row in ROWS:
            response = connection.call(row.api, row.version, **run.own(row.fields))
            found[row.name] = [each.replace(run.prefix, "") for each in answers(response)]
            expected[row.name] = row.others.get(broker.kind, row.answer)
        keys = [described(f"{run.prefix}keys", ["retention.ms"])]
        (retention,) = connection.call("DescribeConfigs", 1, resources=keys).results[0].configs
        assert retention.value == "7", "the last value of a repeated key counts"
    assert found == expected


def of_replicas(name: str, *partitions: tuple[int, list[int] | None]) -> dict[str, Any]:
    """A topic of AlterPartitionReassignments."""
    return {"name": name, "partitions": [{"partition_index": index, "replicas": replicas} for index, replicas in partitions]}


# What the controller serves. Of replicas SERVING is the id of the one broker.
SERVING = -7
CONTROLLER_ROWS = [
    Row("elect, all", "ElectLeaders", 2, {"topic_partitions": None, **TIMEOUT}, []),
    Row("elect, nothing", "ElectLeaders", 2, {"topic_partitions": [], **TIMEOUT}, []),
    Row(
        "elect, twice",
        "ElectLeaders",
        2,
        {"topic_partitions": [parts("one", 0, 0, named="topic"), parts("one", 0, named="topic")], **TIMEOUT},
        ["one 0 ELECTION_NOT_NEEDED"],
        {"kafka": ["one 0 ELECTION_NOT_NEEDED"] * 3},
    ),
    Row(
        "elect, unknown twice",
        "ElectLeaders",
        2,
        {"topic_partitions": [parts("unknown", 0, 0, named="topic")], **TIMEOUT},
        ["unknown 0 UNKNOWN_TOPIC_OR_PARTITION"],
        {"kafka": ["unknown 0 UNKNOWN_TOPIC_OR_PARTITION"] * 2},
    ),
    Row(
        "reassign, null replicas",
        "AlterPartitionReassignments",
        0,
        {"topics": [of_replicas("one", (0, None))], **TIMEOUT},
        ["one 0 NO_REASSIGNMENT_IN_PROGRESS"],
    ),
    Row(
        "reassign, no replicas",
        "AlterPartitionReassignments",
        0,
        {"topics": [of_replicas("one", (0, []))], **TIMEOUT},
        ["one 0 INVALID_REPLICATION_ASSIGNMENT"],
    ),
    Row(
        "reassign, a replica twice",
        "AlterPartitionReassignments",
        0,
        {"topics": [of_replicas("one", (0, [SERVING, SERVING]))], **TIMEOUT},
        ["one 0 INVALID_REPLICATION_ASSIGNMENT"],
    ),
    Row(
        "reassign, partition twice: the last counts",
        "AlterPartitionReassignments",
        0,
        {"topics": [of_replicas("one", (0, [SERVING])), of_replicas("one", (0, None))], **TIMEOUT},
        ["one 0 NO_REASSIGNMENT_IN_PROGRESS"],
        {"kafka": ["one 0 NO_REASSIGNMENT_IN_PROGRESS", "one 0 OK"]},
    ),
    Row("reassign, nothing", "AlterPartitionReassignments", 0, {"topics": [], **TIMEOUT}, []),
    Row("reassignments, all", "ListPartitionReassignments", 0, {"topics": None, **TIMEOUT}, []),
    Row("reassignments, nothing", "ListPartitionReassignments", 0, {"topics": [], **TIMEOUT}, []),
    Row(
        "reassignments, twice",
        "ListPartitionReassignments",
        0,
        {"topics": [parts("one", 0, 0, of="partition_indexes")] * 2, **TIMEOUT},
        [],
    ),
]


def test_every_row_of_the_controller(broker: Server, name: str) -> None:
    create_topic(broker, f"{name}-one")
    found, expected = {}, {}
    with PlainConnection(broker.address) as connection:
        run = Run(connection, f"{name}-")
        (run.serving,) = (each.node_id for each in connection.call("Metadata", 1, topics=[]).brokers)
        for row in CONTROLLER_ROWS:
            response = connection.call(row.api, row.version, **run.own(row.fields))
            found[row.name] = [each.replace(run.prefix, "") for each in answers(response)]
            expected[row.name] = row.others.get(broker.kind, row.answer)
    assert found == expected


def test_an_empty_list_of_keys_is_every_key_as_null_is(broker: Server, name: str) -> None:
    create_topic(broker, name)
    with PlainConnection(broker.address) as connection:

        def keys(wanted: list[str] | None, **resource: Any) -> list[str]:
            (result,) = connection.call("DescribeConfigs", 1, resources=[{"configuration_keys": wanted, **resource}]).results
            assert result.error_code == 0
            return sorted(entry.name for entry in result.configs)

        topic = {"resource_type": TOPIC, "resource_name": name}
        assert keys([], **topic) == keys(None, **topic) and "retention.ms" in keys([], **topic)
        assert keys(["retention.ms"], **topic) == ["retention.ms"]


def test_no_log_directory_entries_are_requested_by_an_empty_list_and_all_by_null(broker: Server, name: str) -> None:
    create_topic(broker, name)
    with PlainConnection(broker.address) as connection:

        def described_topics(topics: list[Any] | None) -> set[str]:
            results = connection.call("DescribeLogDirs", 2, topics=topics).results
            return {topic.name for result in results for topic in result.topics}

        assert described_topics([]) == described_topics([parts(name, named="topic")]) == set()
        assert name in described_topics(None)
        assert described_topics([parts(name, 0, 0, named="topic")]) == {name}
