"""Keys and values of internal topics in the dump."""

from __future__ import annotations

import json
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from txbroker.logtools.dump.decoders import (
    OFFSETS_RECORDS,
    SHARE_STATE_RECORDS,
    Kinds,
    show_offsets,
    show_share_state,
    show_text,
    show_transactions,
)
from txbroker.logtools.dump.dump_run import Form
from txbroker.logtools.dump.kraft_metadata import TYPES, show_control, show_metadata
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from txbroker.wire.messages.metadata_records import TopicRecord
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue
from txbroker.wire.messages.share_state_records import ShareSnapshotKey, ShareUpdateValue
from txbroker.wire.messages.transaction_log_key import TransactionLogKey
from txbroker.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from txbroker.wire.records import Record
from txbroker.wire.schema import Data


def versioned(message: Data, version: int) -> bytes:
    return struct.pack(">h", version) + encode_bytes(message, version)


OFFSET_KEY = versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
GROUP_KEY = versioned(GroupMetadataKey(group="g"), 2)


def test_text() -> None:
    assert show_text(Record(0, 0, None, b"caf\xc3\xa9 \xff")) == (None, "café �")


def test_a_committed_offset_has_the_fields_of_its_version() -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9, expire_timestamp=11)
    key, payload = show_offsets(Record(0, 0, OFFSET_KEY, versioned(value, 1)))
    assert key == '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    assert payload == '{"version":"1","data":{"offset":7,"metadata":"m","commitTimestamp":9,"expireTimestamp":11}}'


def test_a_tagged_field_is_shown_where_it_is_set() -> None:
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=9)
    assert "topicId" not in str(show_offsets(Record(0, 0, OFFSET_KEY, versioned(value, 4))).payload)
    value.topic_id = bytes(range(16))
    assert '"topicId":"AAECAwQFBgcICQoLDA0ODw"' in str(show_offsets(Record(0, 0, OFFSET_KEY, versioned(value, 4))).payload)


def test_a_tombstone() -> None:
    assert show_offsets(Record(0, 0, GROUP_KEY, None)).payload == "<DELETE>"


def test_unknown_types_and_versions_are_skipped() -> None:
    assert show_offsets(Record(5, 0, b"\x00\x63", b"")) == ("Unknown record type 99 at offset 5, skipping.", None)
    key, payload = show_offsets(Record(5, 0, OFFSET_KEY, b"\x00\x63"))
    assert str(key).startswith("Error at offset 5, skipping. ")
    assert payload is None
    assert show_transactions(Record(5, 0, b"\x00\x63", None)) == ("unknown::version=99", None)


def test_subscriptions_are_decoded_for_consumers_only() -> None:
    subscription = versioned(ConsumerProtocolSubscription(topics=["a"]), 0)
    member = MemberMetadata(member_id="m", client_id="c", client_host="h", session_timeout=1, subscription=subscription, assignment=b"!")
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[member])
    shown = json.loads(str(show_offsets(Record(0, 0, GROUP_KEY, versioned(value, 3))).payload))
    assert shown["data"]["members"][0]["subscription"] == {"topics": ["a"], "userData": None}
    assert shown["data"]["members"][0]["assignment"] == "IQ=="
    value.protocol_type = "connect"
    shown = json.loads(str(show_offsets(Record(0, 0, GROUP_KEY, versioned(value, 3))).payload))
    assert shown["data"]["members"][0]["subscription"] == "AAAAAAABAAFh/////w=="


def test_a_transaction() -> None:
    key = versioned(TransactionLogKey(transactional_id="x"), 0)
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=6,
        transaction_timeout_ms=7,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=9,
    )
    assert show_transactions(Record(0, 0, key, versioned(value, 0))) == (
        "transaction_metadata::transactionalId=x",
        "producerId:5,producerEpoch:6,state=Ongoing,partitions=[t-0,t-2],txnLastUpdateTimestamp=8,txnTimeoutMs=7",
    )
    assert show_transactions(Record(0, 0, key, None)).payload == "<DELETE>"


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60))
@example(OFFSET_KEY, b"")
@example(OFFSET_KEY[:-1], None)
@example(GROUP_KEY, b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(8) + b"\x7f\xff\xff\xff")
def test_any_bytes_are_shown_or_skipped(key: bytes | None, value: bytes | None) -> None:
    record = Record(3, 0, key, value)
    for shown in (show_offsets(record), show_transactions(record)):
        assert shown.key is not None


def test_records_of_the_new_groups_as_kafka_4_3_writes_and_dumps_them() -> None:
    key = struct.pack(">h", 5) + b"\0\3new\0\1m"
    value = b"\x00\x00\x00\x00\x08rdkafka\x0b/127.0.0.1\x02\x06plain\x01\x00\x04\x93\xe0\x00\x01\x00\x01\x00"
    assert show_offsets(Record(0, 0, key, value)) == (
        '{"type":"5","data":{"groupId":"new","memberId":"m"}}',
        '{"version":"0","data":{"instanceId":null,"rackId":null,"clientId":"rdkafka","clientHost":"/127.0.0.1",'
        '"subscribedTopicNames":["plain"],"subscribedTopicRegex":"","rebalanceTimeoutMs":300000,"serverAssignor":null,"classicMemberMetadata":null}}',
    )


def every_kind(kinds: Kinds) -> list[int]:
    """The versions of keys that have a value."""
    return [version for version, (key, value) in kinds.items() if version in key.versions and value.versions.low == 0]


def test_all_types_of_group_and_share_records_are_known() -> None:
    assert sorted(every_kind(OFFSETS_RECORDS)) == [*range(9), *range(10, 18), *range(19, 24)]
    assert sorted(every_kind(SHARE_STATE_RECORDS)) == [0, 1]
    for kinds in (OFFSETS_RECORDS, SHARE_STATE_RECORDS):
        for key, value in kinds.values():
            assert key.__name__.removesuffix("Key") == value.__name__.removesuffix("Value")


def test_share_state() -> None:
    key = ShareSnapshotKey(group_id="g", topic_id=bytes(range(16)), partition=1)
    value = ShareUpdateValue(snapshot_epoch=1, leader_epoch=2, start_offset=3, state_batches=[])
    shown = show_share_state(Record(0, 0, versioned(key, 0), None))
    assert shown == ('{"type":"0","data":{"groupId":"g","topicId":"AAECAwQFBgcICQoLDA0ODw","partition":1}}', "<DELETE>")
    update = show_share_state(Record(0, 0, struct.pack(">h", 1) + versioned(key, 0)[2:], versioned(value, 0)))
    assert json.loads(str(update.payload))["data"] == {"snapshotEpoch": 1, "leaderEpoch": 2, "startOffset": 3, "stateBatches": []}


def test_numbers_are_shown_like_kafkas_deserializers() -> None:
    record = Record(0, 0, b"\xff\xff\xff\xfe", b"\0\0\0\0\0\0\1\0")
    assert show_text(record, Form.INT32, Form.INT64) == ("-2", "256")
    assert show_text(record, Form.INT64, Form.INT32) == ("<4 bytes, not a number of 8 bytes>", "<8 bytes, not a number of 4 bytes>")


def framed(number: int, version: int, message: Data) -> bytes:
    return bytes([1, number, version]) + encode_bytes(message, version)


def test_metadata_records() -> None:
    topic = TopicRecord(name="t", topic_id=bytes(range(16)))
    shown = show_metadata(Record(4, 0, None, framed(2, 0, topic)))
    assert shown == '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAECAwQFBgcICQoLDA0ODw"}}'
    for number, (name, cls) in TYPES.items():
        assert cls.__name__ == "".join(part.capitalize() for part in name.split("_")), number
    for value in (None, b"", b"\2\2\0", b"\1\x7f\0", b"\1\2\7", b"\1\2\0\1", b"\xff" * 9):
        assert show_metadata(Record(4, 0, None, value)).startswith("Error at 4, skipping. ")


@given(st.binary(max_size=60), st.integers(0, 30), st.integers(0, 4))
def test_invalid_metadata_and_group_records_are_reported(data: bytes, number: int, version: int) -> None:
    assert isinstance(show_metadata(Record(0, 0, None, bytes([1, number, version]) + data)), str)
    assert isinstance(show_control(number % 8, bytes([0, 0]) + data), str | None)
    for show in (show_offsets, show_share_state):
        assert show(Record(0, 0, struct.pack(">h", number) + data, struct.pack(">h", 0) + data)).key is not None
