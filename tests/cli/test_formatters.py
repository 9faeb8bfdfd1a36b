"""Deserializers and formatters of `txbroker consume`. The expected output is that of the console consumer of Kafka 4.3.1."""

from __future__ import annotations

import json
import math
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cli.deserializers import PACKAGE, Deserializer, NotDeserialized, java_number
from txbroker.cli.record_formatter import Formatter, formatter, formatter_properties
from txbroker.console.failures import BadUsage
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue

DOUBLES = {
    -0.0: "-0.0", 1.0: "1.0", 1.5: "1.5", 1e7: "1.0E7", 9999999.0: "9999999.0", 1e-3: "0.001", 9.99e-4: "9.99E-4",
    1.23456789012e10: "1.23456789012E10", 1e300: "1.0E300", 5e-324: "4.9E-324", math.inf: "Infinity", -math.inf: "-Infinity", 0.1: "0.1",
    100.0: "100.0", 123456.789: "123456.789", 1e21: "1.0E21", 2.2250738585072014e-308: "2.2250738585072014E-308", 3.0e-5: "3.0E-5",
    12345678.9: "1.23456789E7", math.nan: "NaN",
}  # fmt: skip
FLOATS = {
    0.0: "0.0", 1.5: "1.5", 1e7: "1.0E7", 9999999.0: "9999999.0", 1e-3: "0.001", 9.99e-4: "9.99E-4", 1.23456e10: "1.23456E10",
    3.4028235e38: "3.4028235E38", 1.4e-45: "1.4E-45", math.inf: "Infinity", math.nan: "NaN", 0.1: "0.1", 100.1: "100.1",
    16777216.0: "1.6777216E7", 33554432.0: "3.3554432E7",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("String", b"a\xffb", "a\ufffdb"),
        ("Short", b"\xff\xfe", "-2"),
        ("Integer", b"\0\0\0\5", "5"),
        ("Long", b"\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
        ("Boolean", b"\1", "true"),
        ("Boolean", b"\0", "false"),
        ("UUID", b"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("Bytes", b"\0\t !~\x7f\xff\\z", r"\x00\x09 !~\x7F\xFF\x5Cz"),
        *(("Double", struct.pack(">d", value), text) for value, text in DOUBLES.items()),
        *(("Float", struct.pack(">f", value), text) for value, text in FLOATS.items()),
    ],
)
def test_the_text_of_java(name: str, data: bytes, text: str) -> None:
    for spelled in (f"{name}Deserializer", f"{PACKAGE}{name}Deserializer"):
        assert Deserializer(spelled, "--x").text(data).decode() == text


def test_byte_arrays_are_printed_unchanged() -> None:
    assert Deserializer("ByteArrayDeserializer", "--x").text(b"\0\xff\n") == b"\0\xff\n"


@given(st.floats(width=64), st.floats(width=32))
def test_printed_numbers_can_be_parsed(double: float, single: float) -> None:
    for value, layout in ((double, "d"), (single, "f")):
        text = java_number(value, layout).decode()
        assert "." in text or not math.isfinite(value)
        assert struct.pack(f">{layout}", float(text)) == struct.pack(f">{layout}", value) or math.isnan(value)


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("Long", b"123", "Size of data received by LongDeserializer is not 8"),
        ("Double", b"", "Size of data received by DoubleDeserializer is not 8"),
        ("Boolean", b"\2", "Unexpected byte received by BooleanDeserializer: 2"),
        ("Boolean", b"\1\1", "Size of data received by BooleanDeserializer is not 1"),
        ("UUID", b"a\xffb", "Error parsing data into UUID"),
        ("Void", b"", "Data should be null for a VoidDeserializer"),
    ],
)
def test_data_of_another_type(name: str, data: bytes, problem: str) -> None:
    with pytest.raises(NotDeserialized, match=problem):
        Deserializer(f"{name}Deserializer", "--x").text(data)


def test_classes_that_are_not_available() -> None:
    with pytest.raises(BadUsage, match=r"--value-deserializer x\.y\.AvroDeserializer is not available; use one of StringDes"):
        Deserializer("x.y.AvroDeserializer", "--value-deserializer")
    with pytest.raises(BadUsage, match=r"--formatter x\.Own is not available: this command cannot load Java classes; use one of Default"):
        formatter("x.Own", formatter_properties({}), as_json=False)


def record(**fields: Any) -> Any:
    place = {"topic": "t", "partition": 0, "offset": 17, "leader_epoch": 0, "timestamp_type": 0, "timestamp": 1}
    return SimpleNamespace(**{**place, "headers": [], "key": None, "value": None, **fields})


def chosen(name: str | None = None, *, as_json: bool = False, **properties: str) -> Formatter:
    return formatter(name, formatter_properties({key.replace("_", "."): text for key, text in properties.items()}), as_json=as_json)


TYPED = {"key_deserializer": "LongDeserializer", "value_deserializer": "BooleanDeserializer", "header_deserializer": "ShortDeserializer"}
TYPES = record(key=b"\0" * 7 + b"\7", value=b"\1", headers=[("h", b"\0\2"), ("n", None)])


def test_fields_are_deserialized() -> None:
    text = chosen(**TYPED, print_key="true", print_headers="true", null_literal="-")
    assert text(TYPES) == b"h:2,n:-\t7\ttrue\n"
    assert text(record()) == b"NO_HEADERS\t-\t-\n"


def test_json_has_the_types() -> None:
    row = json.loads(chosen(as_json=True, **TYPED)(TYPES))
    assert (row["key"], row["value"], row["headers"]) == (7, True, [{"key": "h", "value": 2}, {"key": "n", "value": None}])
    raw = chosen(as_json=True, value_deserializer="BytesDeserializer", key_deserializer="UUIDDeserializer")
    row = json.loads(raw(record(key=b"123E4567-E89B-12D3-A456-426614174000", value=b"\xff")))
    assert (row["key"], row["value"]) == ("123e4567-e89b-12d3-a456-426614174000", {"base64": "/w=="})


def test_the_formatter_that_prints_nothing() -> None:
    assert chosen("org.apache.kafka.tools.consumer.NoOpMessageFormatter")(record(value=b"v")) == b""


def versioned(message: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode_bytes(message, version)


OFFSET = record(
    key=versioned(OffsetCommitKey(group="g2", topic="t", partition=1), 1),
    value=versioned(OffsetCommitValue(offset=4, leader_epoch=0, metadata="", commit_timestamp=1795347750739), 3),
)
MEMBER = MemberMetadata(
    member_id="m", group_instance_id=None, client_id="c", client_host="/127.0.0.1", rebalance_timeout=300000, session_timeout=45000,
    subscription=b"\0\1", assignment=b"",
)  # fmt: skip
GROUP = record(
    key=versioned(GroupMetadataKey(group="g2"), 2),
    value=versioned(
        GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol="range", leader="m", current_state_timestamp=1795347750720, members=[MEMBER]
        ), 3,
    ),
)  # fmt: skip


def test_offsets_and_groups_are_the_json_of_kafkas_classes() -> None:
    offsets = chosen("org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    groups = chosen("kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter")
    assert offsets(OFFSET) == (
        b'{"key":{"type":1,"data":{"group":"g2","topic":"t","partition":1}},'
        b'"value":{"version":3,"data":{"offset":4,"leaderEpoch":0,"metadata":"","commitTimestamp":1795347750739}}}\n'
    )
    assert offsets(record(key=OFFSET.key)) == b'{"key":{"type":1,"data":{"group":"g2","topic":"t","partition":1}},"value":null}\n'
    assert groups(GROUP) == (
        b'{"key":{"type":2,"data":{"group":"g2"}},"value":{"version":3,"data":{"protocolType":"consumer","generation":1,"protocol":"range",'
        b'"leader":"m","currentStateTimestamp":1795347750720,"members":[{"memberId":"m","groupInstanceId":null,"clientId":"c",'
        b'"clientHost":"/127.0.0.1","rebalanceTimeout":300000,"sessionTimeout":45000,"subscription":"AAE=","assignment":""}]}}}\n'
    )
    assert offsets(GROUP) == groups(OFFSET) == offsets(record()) == b""
    with pytest.raises(NotDeserialized):
        offsets(record(key=OFFSET.key[:6]))
