"""Keys and values of internal topics as the dump shows them."""

from __future__ import annotations

import json
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from txbroker.log.dump_decoders import show_offsets, show_text, show_transactions
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue
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


def test_what_a_member_subscribed_to_is_opened_only_for_consumers() -> None:
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
