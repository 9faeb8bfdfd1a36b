"""The records of `__consumer_offsets`, against a partition that Apache Kafka 3.9.1 wrote."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.wire.record_samples import batches
from txbroker.errors import ProtocolError
from txbroker.groups.group_effects import GroupRecord, MemberRecord
from txbroker.groups.group_records import GroupEntry, OffsetEntry, fits, group_key, group_value, offset_key, offset_value, read
from txbroker.groups.group_replay import GroupReplay
from txbroker.groups.group_results import CommittedOffset
from txbroker.names import TopicPartition
from txbroker.wire.records import Record, read_records

GOLDEN = Path(__file__).parents[1] / "golden" / "groups"
TP = TopicPartition("topic", 3)


def golden_log(partition: int) -> bytes:
    return (GOLDEN / f"consumer_offsets_{partition}_kafka_3.9.1.log").read_bytes()


def golden_records(partition: int) -> list[Record]:
    log = golden_log(partition)
    return [r for at, h in batches(log) if not h.control for r in read_records(log, at, h, 1 << 20)]


@pytest.mark.parametrize(("partition", "count"), [(0, 7), (1, 15)])
def test_what_kafka_wrote_is_read_and_written_again_byte_for_byte(partition, count):
    records = golden_records(partition)
    assert len(records) == count
    for record in records:
        match read(record.key, record.value):
            case OffsetEntry(group_id, tp, offset):
                assert offset is not None
                assert (offset_key(group_id, tp), offset_value(offset)) == (record.key, record.value)
            case GroupEntry(group_id, group):
                assert group is not None
                assert (group_key(group_id), group_value(group)) == (record.key, record.value)
            case other:
                raise AssertionError(other)


def test_a_generation_as_kafka_wrote_it():
    entry = read(golden_records(0)[0].key, golden_records(0)[0].value)
    assert isinstance(entry, GroupEntry)
    assert entry.record is not None
    leader = "consumer-s-group-2-2-a2824585-d80a-4366-9da6-cd07b7817f30"
    assert (entry.group_id, entry.record.generation, entry.record.protocol_type) == ("s-group-2", 1, "consumer")
    assert (entry.record.protocol, entry.record.leader, entry.record.state_ms) == ("range", leader, 1795237359979)
    (member,) = entry.record.members
    assert (member.member_id, member.client_id, member.client_host) == (leader, "consumer-s-group-2-2", "/127.0.0.1")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms, member.group_instance_id) == (300_000, 45_000, None)
    assert b"s-lz4" in member.subscription and b"s-none" in member.assignment


def test_an_offset_with_its_own_expiry_is_kept_in_version_1():
    offset = CommittedOffset(offset=5, leader_epoch=7, metadata="m", commit_ms=100, expire_ms=200)
    assert offset_value(offset)[:2] == b"\x00\x01"
    entry = read(offset_key("g", TP), offset_value(offset))
    assert entry == OffsetEntry("g", TP, CommittedOffset(offset=5, metadata="m", commit_ms=100, expire_ms=200))


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        ("0000" "0000000000000005" "00016d" "0000000000000064", CommittedOffset(offset=5, metadata="m", commit_ms=100)),
        ("0002" "0000000000000005" "00016d" "0000000000000064", CommittedOffset(offset=5, metadata="m", commit_ms=100)),
        ("0004" "0000000000000005" "00000007" "026d" "0000000000000064" "00",
         CommittedOffset(offset=5, leader_epoch=7, metadata="m", commit_ms=100)),
    ],
)
def test_older_and_newer_versions_are_read(value, offset):
    assert read(offset_key("g", TP), bytes.fromhex(value)) == OffsetEntry("g", TP, offset)


def test_the_oldest_key_of_offsets_is_read():
    assert read(b"\x00\x00" + offset_key("g", TP)[2:], None) == OffsetEntry("g", TP, None)


def test_a_group_of_version_0_uses_the_session_timeout_to_rebalance():
    value = bytes.fromhex("0000" "0008636f6e73756d6572" "00000002" "000172" "00016d" "00000001"
                          "00016d" "000163" "000168" "00002710" "00000001aa" "00000001bb")
    entry = read(group_key("g"), value)
    assert isinstance(entry, GroupEntry) and entry.record is not None
    assert entry.record.state_ms is None
    assert entry.record.members[0].rebalance_timeout_ms == entry.record.members[0].session_timeout_ms == 10_000


def test_tombstones_and_newer_kinds():
    assert read(offset_key("g", TP), None) == OffsetEntry("g", TP, None)
    assert read(group_key("g"), None) == GroupEntry("g", None)
    for kind in (3, 5, 8, 15, 30_000):  # ConsumerGroupMetadata and later ones
        assert read(kind.to_bytes(2, "big") + b"\x00\x01g", b"\x00\x00\x00\x00\x00\x01\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""), (b"", None), (b"\x00", None), (b"\x00\x01", None), (b"\x00\x01\x00\x05g", None), (group_key("g") + b"x", None),
        (group_key("g"), b""), (group_key("g"), b"\x00\x63"), (offset_key("g", TP), b"\x00\x03"), (offset_key("g", TP), b"\xff\xff"),
    ],
)
def test_nonsense_is_a_protocol_error(key, value):
    with pytest.raises(ProtocolError):
        read(key, value)


@given(key=st.sampled_from([offset_key("g", TP), group_key("g")]), value=st.binary(max_size=60))
@settings(max_examples=examples(150))
def test_any_bytes_are_read_or_refused(key, value):
    with suppress(ProtocolError):
        read(key, value)


@given(
    st.builds(
        GroupRecord,
        protocol_type=st.text(max_size=5), generation=st.integers(0, 2**31 - 1), protocol=st.none() | st.text(max_size=5),
        leader=st.none() | st.text(max_size=5), state_ms=st.none() | st.integers(0, 2**60),
        members=st.lists(
            st.builds(
                MemberRecord, member_id=st.text(max_size=5), group_instance_id=st.none() | st.text(max_size=5),
                client_id=st.text(max_size=5), client_host=st.text(max_size=5), rebalance_timeout_ms=st.integers(0, 2**31 - 1),
                session_timeout_ms=st.integers(0, 2**31 - 1), subscription=st.binary(max_size=9), assignment=st.binary(max_size=9),
            ),
            max_size=3,
        ).map(tuple),
    )
)
@settings(max_examples=examples(50))
def test_groups_survive_their_records(record):
    assert read(group_key("g"), group_value(record)) == GroupEntry("g", record)


def test_names_that_records_cannot_carry():
    assert fits("a" * 32_000, None, "é" * 16_000)
    assert not fits("a" * 32_001)
    assert not fits("fine", "€" * 11_000)


def test_the_whole_partition_that_kafka_wrote_is_loaded():
    loaded = GroupReplay()
    assert list(loaded.batches(golden_log(1)))[-1] == 23
    assert (loaded.record_count, loaded.skipped_count) == (23, 0)
    assert set(loaded.groups) == {"s-group-1"}
    assert (loaded.groups["s-group-1"].generation, loaded.groups["s-group-1"].members) == (2, ())
    offsets = {group: dict(kept) for group, kept in loaded.offsets.items()}
    assert set(offsets) == {"s-group-1", "s-group-txn"}
    # Committed in transactions, of which all in this log were committed.
    assert offsets["s-group-txn"] == {
        TopicPartition("s-txn", 0): CommittedOffset(offset=9, metadata="round 9", commit_ms=1795237359073)
    }
    assert offsets["s-group-1"][TopicPartition("s-gzip", 0)] == CommittedOffset(
        offset=123, leader_epoch=0, metadata="note of s-group-1", commit_ms=1795237359946
    )
    assert len(offsets["s-group-1"]) == 5
