"""The records of `__consumer_offsets` in Kafka's format: groups and committed offsets.

    key   = kind int16 | message      kind 0, 1: OffsetCommitKey; 2: GroupMetadataKey; others: newer group protocols
    value = version int16 | message   OffsetCommitValue or GroupMetadataValue; no value: a tombstone

It writes the versions that Kafka 3.9 writes: key kinds 1 and 2, values v3, and OffsetCommitValue v1 for an offset with its own expiry
date. It reads every version.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from txbroker.errors import ProtocolError
from txbroker.groups.group_effects import GroupRecord, MemberRecord
from txbroker.groups.group_results import CommittedOffset
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue
from txbroker.wire.schema import Message

STRING_BYTES_MAX = 32_000  # of names from clients: a string's length is an int16, and a member id appends to a name

_KIND = struct.Struct(">h")
_OFFSET_KIND = 1
_GROUP_KIND = 2
_VALUE_VERSION = 3
_EXPIRING_OFFSET_VERSION = 1
_UNSET_MS = -1


@lazy_dataclass(frozen=True, slots=True)
class OffsetEntry:
    """A committed offset; None for a tombstone."""

    group_id: str
    partition: TopicPartition
    offset: CommittedOffset | None


@lazy_dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group's generation; None for a tombstone."""

    group_id: str
    record: GroupRecord | None


Entry: TypeAlias = OffsetEntry | GroupEntry


def fits(*names: str | None) -> bool:
    """Whether records can hold these names."""
    return all(name is None or len(name) * 4 <= STRING_BYTES_MAX or len(name.encode()) <= STRING_BYTES_MAX for name in names)


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of a group's offset for one partition."""
    return _framed(_OFFSET_KIND, OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition))


def offset_value(offset: CommittedOffset) -> bytes:
    """The value of an offset."""
    version = _VALUE_VERSION if offset.expire_ms is None else _EXPIRING_OFFSET_VERSION
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_ms,
        expire_timestamp=_UNSET_MS if offset.expire_ms is None else offset.expire_ms,
    )
    return _framed(version, value)


def group_key(group_id: str) -> bytes:
    """The key of a group's generation."""
    return _framed(_GROUP_KIND, GroupMetadataKey(group=group_id))


def group_value(record: GroupRecord) -> bytes:
    """The value of a group's generation."""
    members = [
        MemberMetadata(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            rebalance_timeout=m.rebalance_timeout_ms,
            session_timeout=m.session_timeout_ms,
            subscription=m.subscription,
            assignment=m.assignment,
        )
        for m in record.members
    ]
    value = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=_UNSET_MS if record.state_ms is None else record.state_ms,
        members=members,
    )
    return _framed(_VALUE_VERSION, value)


def read(key: bytes | None, value: bytes | None) -> Entry | None:
    """Decode a record; None if its key is of a kind that the classic protocol does not have. ProtocolError if it is malformed."""
    if key is None:
        raise ProtocolError("a record of __consumer_offsets has no key")
    kind, body = _unframed(key)
    if kind in OffsetCommitKey.versions:
        offset_of = decode(OffsetCommitKey, kind, body)
        partition = TopicPartition(offset_of.topic, offset_of.partition)
        return OffsetEntry(offset_of.group, partition, None if value is None else _read_offset(value))
    if kind in GroupMetadataKey.versions:
        group_id = decode(GroupMetadataKey, kind, body).group
        return GroupEntry(group_id, None if value is None else _read_group(value))
    return None


def _read_offset(value: bytes) -> CommittedOffset:
    version, body = _unframed(value)
    if version not in OffsetCommitValue.versions:
        raise ProtocolError(f"unknown version {version} of an offset's value")
    offset = decode(OffsetCommitValue, version, body)
    return CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_ms=offset.commit_timestamp,
        expire_ms=None if offset.expire_timestamp == _UNSET_MS else offset.expire_timestamp,
    )


def _read_group(value: bytes) -> GroupRecord:
    version, body = _unframed(value)
    if version not in GroupMetadataValue.versions:
        raise ProtocolError(f"unknown version {version} of a group's value")
    group = decode(GroupMetadataValue, version, body)
    return GroupRecord(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        state_ms=None if group.current_state_timestamp == _UNSET_MS else group.current_state_timestamp,
        members=tuple(_read_member(m) for m in group.members),
    )


def _read_member(member: MemberMetadata) -> MemberRecord:
    return MemberRecord(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        # v0 has no rebalance timeout; the session timeout was used for both.
        rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _framed(number: int, message: Message) -> bytes:
    return _KIND.pack(number) + encode_bytes(message, number)


def _unframed(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _KIND.size:
        raise ProtocolError("a record of __consumer_offsets ends within its version")
    return _KIND.unpack_from(data)[0], memoryview(data)[_KIND.size :]
