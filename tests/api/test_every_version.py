"""Every API in every advertised version returns a well-formed response, which two other codecs decode."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator
from typing import Any

import kio.index
import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest
from kafka.protocol.metadata import MetadataRequest
from kio.serial import entity_reader, entity_writer

from tests.api.requests import BUILDERS, Entities, fresh, make, request
from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised, create_topic, find_coordinator
from tests.support.raw_log import Producer, batch, produce, topic_id
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.api import linear_patterns

# The served versions by API key.
SERVED = {
    0: (0, 13), 1: (0, 18), 2: (0, 11), 3: (0, 13), 8: (0, 10), 9: (0, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5),
    15: (0, 6), 16: (0, 5), 18: (0, 4), 19: (0, 7), 20: (0, 6), 21: (0, 2), 22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5),
    27: (0, 2), 28: (0, 5), 29: (0, 3), 30: (0, 3), 31: (0, 3), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 5), 37: (0, 3), 42: (0, 2),
    38: (0, 3), 39: (0, 2), 40: (0, 2), 41: (0, 3),
    43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0),
    60: (0, 2), 61: (0, 0), 65: (0, 0),
    66: (0, 2 if linear_patterns.is_available() else 1), 75: (0, 0),
}
# APIs that are refused in every version, as in Kafka while the feature is off (tests/clients/test_unsupported_features.py).
REFUSED = {68: (0, 1)}
# Of delegation tokens kafka-python has no messages: tests/security/test_token_brokers.py uses Kafka's tool.
EACH_API = [pytest.param(key, id=BUILDERS[key][0].__name__.removesuffix("Request")) for key in SERVED if key not in range(38, 42)]

FETCH, JOIN_GROUP, LEAVE_GROUP, DESCRIBE_GROUPS, API_VERSIONS, DELETE_TOPICS, DELETE_GROUPS, OFFSET_DELETE = 1, 11, 13, 15, 18, 20, 42, 47
ELECT_LEADERS, ELECTION_NOT_NEEDED = 43, 84
ACLS = (29, 30, 31)
DESCRIBE_SCRAM, RESOURCE_NOT_FOUND = 50, 91
ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS = 25, 26, 28, 65
NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_NOT_FOUND = 16, 49, 105
UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_LOAD_IN_PROGRESS, SECURITY_DISABLED, NON_EMPTY_GROUP = -1, 3, 14, 54, 68
COORDINATOR_NOT_AVAILABLE = 15
GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, GROUP_SUBSCRIBED_TO_TOPIC = 69, 79, 86
# The errors of correct responses; all other responses have none.
EXPECTED = {
    JOIN_GROUP: {MEMBER_ID_REQUIRED},
    ELECT_LEADERS: {ELECTION_NOT_NEEDED},
    DESCRIBE_GROUPS: {GROUP_ID_NOT_FOUND},
    DELETE_GROUPS: {NON_EMPTY_GROUP},
    OFFSET_DELETE: {GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION},
    **{key: {SECURITY_DISABLED} for key in ACLS},
    DESCRIBE_SCRAM: {RESOURCE_NOT_FOUND},
    # No producer has initialized the transactional id; its partition may not exist, or be loading.
    **{key: {INVALID_PRODUCER_ID_MAPPING, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS} for key in (ADD_OFFSETS_TO_TXN, END_TXN)},
    TXN_OFFSET_COMMIT: {INVALID_PRODUCER_ID_MAPPING, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS},
    DESCRIBE_TRANSACTIONS: {TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR},
}
# These delete their entities: each version needs new ones.
DESTRUCTIVE = {LEAVE_GROUP, DELETE_TOPICS}


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_entities(shared_broker: Server) -> Entities:
    with RawConnection(shared_broker.address) as connection:
        return new_entities(shared_broker, connection)


def new_entities(server: Server, connection: RawConnection) -> Entities:
    """A topic with records, some of a producer with an id, and a group of one static member that committed offsets."""
    topic, group = fresh("every-version"), fresh("group")
    create_topic(server, topic, partitions=2)
    produce(connection, topic, batch(numbered(3), producer=Producer(1000, 0, 0)))
    produce(connection, topic, batch(numbered(3)), partition=1)
    find_coordinator(server, group)
    join = {"group_id": group, "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "member_id": "", "group_instance_id": "static",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\1\2"}]}

    def joining() -> Any:
        answered = connection.call(make(JoinGroupRequest, join), 5)
        return None if answered.error_code == COORDINATOR_LOAD_IN_PROGRESS else answered

    joined = until(joining, "the group's coordinator has loaded")
    member = {"group_id": group, "member_id": joined.member_id, "group_instance_id": "static"}
    synced = connection.call(make(SyncGroupRequest, {
        **member, "generation_id": joined.generation_id, "assignments": [{"member_id": joined.member_id, "assignment": b"\0"}]}), 3)
    partition = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": 0, "committed_metadata": "kept"}
    committed = connection.call(make(OffsetCommitRequest, {
        **member, "generation_id_or_member_epoch": joined.generation_id, "topics": [{"name": topic, "partitions": [partition]}]}), 7)
    assert error_codes(joined) | error_codes(synced) | error_codes(committed) == {0}
    (broker,) = connection.call(MetadataRequest(topics=[]), 8).brokers
    return Entities(topic, topic_id(connection, topic), group, joined.member_id, joined.generation_id, broker.node_id, str(server.data))


def versions(key: int) -> range:
    return range(SERVED[key][0], SERVED[key][1] + 1)


def answer(connection: RawConnection, wanted: Any, version: int) -> Any:
    """The response decoded by kafka-python, without trailing bytes."""
    connection.send(wanted, version)
    frame = connection.receive_frame()
    response_class: Any = ResponseClassRegistry.get_response_class(wanted.header)
    flexible = response_class.flexible_version_q(version) and wanted.API_KEY != API_VERSIONS
    header = wanted.header.correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"")
    assert frame.startswith(header)
    body = frame[len(header) :]
    read = response_class.decode(body, version=version)
    read._header = None  # kafka-python needs it and does not set it
    assert bytes(read.encode(version=version)) == body, "kafka-python encodes the message to other bytes"
    _read_by_kio(wanted.API_KEY, version, body)
    return read


def _read_by_kio(key: int, version: int, body: bytes) -> None:
    """kio decodes every byte and encodes the same bytes."""
    try:
        cls: Any = kio.index.load_response_schema(key, version)
    except Exception:
        return
    entity, size = entity_reader(cls)(memoryview(body), 0)
    assert size == len(body)
    if key != FETCH:  # kio decodes the records there
        out = io.BytesIO()
        entity_writer(cls)(out, entity)
        assert out.getvalue() == body


def error_codes(message: Any) -> set[int]:
    """Every error code in a message."""
    return {int(code) for code in re.findall(r"'error_code': (-?\d+)", str(message.to_dict(json=False)))}


def test_the_advertised_versions(broker: Server) -> None:
    assert advertised(broker) == SERVED | REFUSED


@pytest.mark.parametrize("key", EACH_API)
def test_a_valid_request_is_answered_without_error(broker: Server, connection: RawConnection, shared_entities: Entities, key: int) -> None:
    for version in versions(key):
        entities = new_entities(broker, connection) if key in DESTRUCTIVE else shared_entities
        read = answer(connection, request(key, version, entities), version)
        assert error_codes(read) <= {0} | EXPECTED.get(key, set()), (version, read)


@pytest.mark.parametrize("key", EACH_API)
def test_requests_about_unknown_entities_get_a_response(connection: RawConnection, key: int) -> None:
    for version in versions(key):
        unknown = Entities(fresh("unknown"), uuid.uuid4(), fresh("unknown"), "unknown", 7, 1_000_000, "/no/such/directory")
        read = answer(connection, request(key, version, unknown), version)
        assert UNKNOWN_SERVER_ERROR not in error_codes(read), (version, read)
