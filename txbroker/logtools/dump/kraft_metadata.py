"""Decodes records of KRaft's metadata log, and its control records, to JSON.

The value of a record has three unsigned varints, frame version (0 or 1), type and version of the record, and then the message (Kafka's
MetadataRecordSerde and MetadataRecordType).
"""

from __future__ import annotations

from typing import Any

from txbroker.errors import ProtocolError
from txbroker.logtools.dump.message_json import plain, to_json
from txbroker.wire.codec import decode
from txbroker.wire.messages import metadata_records as m
from txbroker.wire.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from txbroker.wire.records import Record
from txbroker.wire.schema import Data

FRAME_VERSIONS = (0, 1)
_VARINT_BYTES_MAX = 5

TYPES: dict[int, tuple[str, type[Data]]] = {
    0: ("REGISTER_BROKER_RECORD", m.RegisterBrokerRecord),
    1: ("UNREGISTER_BROKER_RECORD", m.UnregisterBrokerRecord),
    2: ("TOPIC_RECORD", m.TopicRecord),
    3: ("PARTITION_RECORD", m.PartitionRecord),
    4: ("CONFIG_RECORD", m.ConfigRecord),
    5: ("PARTITION_CHANGE_RECORD", m.PartitionChangeRecord),
    7: ("FENCE_BROKER_RECORD", m.FenceBrokerRecord),
    8: ("UNFENCE_BROKER_RECORD", m.UnfenceBrokerRecord),
    9: ("REMOVE_TOPIC_RECORD", m.RemoveTopicRecord),
    10: ("DELEGATION_TOKEN_RECORD", m.DelegationTokenRecord),
    11: ("USER_SCRAM_CREDENTIAL_RECORD", m.UserScramCredentialRecord),
    12: ("FEATURE_LEVEL_RECORD", m.FeatureLevelRecord),
    14: ("CLIENT_QUOTA_RECORD", m.ClientQuotaRecord),
    15: ("PRODUCER_IDS_RECORD", m.ProducerIdsRecord),
    17: ("BROKER_REGISTRATION_CHANGE_RECORD", m.BrokerRegistrationChangeRecord),
    18: ("ACCESS_CONTROL_ENTRY_RECORD", m.AccessControlEntryRecord),
    19: ("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", m.RemoveAccessControlEntryRecord),
    20: ("NO_OP_RECORD", m.NoOpRecord),
    21: ("ZK_MIGRATION_STATE_RECORD", m.ZkMigrationStateRecord),
    22: ("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", m.RemoveUserScramCredentialRecord),
    23: ("BEGIN_TRANSACTION_RECORD", m.BeginTransactionRecord),
    24: ("END_TRANSACTION_RECORD", m.EndTransactionRecord),
    25: ("ABORT_TRANSACTION_RECORD", m.AbortTransactionRecord),
    26: ("REMOVE_DELEGATION_TOKEN_RECORD", m.RemoveDelegationTokenRecord),
    27: ("REGISTER_CONTROLLER_RECORD", m.RegisterControllerRecord),
    28: ("CLEAR_ELR_RECORD", m.ClearElrRecord),
}

# The names of Kafka 4.3; Kafka 3.9 prints only the type of a change of leader.
_CONTROL: dict[int, tuple[str, type[Data]]] = {
    2: ("LeaderChange:", LeaderChangeMessage),
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}


def show_metadata(record: Record) -> str:
    """A record of __cluster_metadata as JSON, or the error why it cannot be decoded."""
    try:
        return _show(record.value)
    except ProtocolError as error:
        return f"Error at {record.offset}, skipping. {error}"


def _show(value: bytes | None) -> str:
    if value is None:
        raise ProtocolError("a metadata record has no value")
    frame, at = _unsigned_varint(value, 0)
    if frame not in FRAME_VERSIONS:
        raise ProtocolError(f"a metadata record has the unknown frame version {frame}; known are 0 and 1")
    number, at = _unsigned_varint(value, at)
    version, at = _unsigned_varint(value, at)
    if number not in TYPES:
        raise ProtocolError(f"a metadata record has the unknown type {number}")
    name, cls = TYPES[number]
    if version not in cls.versions:
        raise ProtocolError(f"{name} has the unknown version {version}; known are {cls.versions}")
    shown: dict[str, Any] = {"type": name, "version": version, "data": plain(decode(cls, version, value[at:]), version)}
    return to_json(shown)


def _unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ProtocolError("a metadata record has an incomplete or too long varint")


def show_control(kind: int, value: bytes | None) -> str | None:
    """The content of a control record of a metadata log, by its type; None for types without content."""
    if kind not in _CONTROL:
        return None
    name, cls = _CONTROL[kind]
    try:
        version = int.from_bytes((value or b"")[:2], "big", signed=True)
        if version not in cls.versions:
            raise ProtocolError(f"it has the unknown version {version}")
        return f"{name} {to_json(plain(decode(cls, version, value or b''), version))}"
    except ProtocolError as error:
        return f"{name} <{error}>"
