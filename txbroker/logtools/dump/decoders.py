"""Decodes keys and values for the dump: as text or numbers, or as records of Kafka's internal topics."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from txbroker.errors import ProtocolError
from txbroker.logtools.dump.dump_run import Decoder, DumpOptions, Form
from txbroker.logtools.dump.kraft_metadata import show_metadata
from txbroker.logtools.dump.message_json import plain, to_json
from txbroker.names import amount
from txbroker.wire.codec import decode
from txbroker.wire.messages import consumer_group_records, share_group_records, share_state_records, streams_group_records
from txbroker.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from txbroker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue
from txbroker.wire.messages.transaction_log_key import TransactionLogKey
from txbroker.wire.messages.transaction_log_value import TransactionLogValue
from txbroker.wire.records import Record
from txbroker.wire.schema import Data

M = TypeVar("M", bound=Data)
Kinds = Mapping[int, tuple[type[Data], type[Data]]]

DELETED = "<DELETE>"  # the value of a tombstone


def _kinds(pairs: Iterable[tuple[type[Data], type[Data]]]) -> Kinds:
    """The classes of a record by the version of its key."""
    return {version: pair for pair in pairs for version in range(pair[0].versions.low, pair[0].versions.high + 1)}


def _pairs(module: ModuleType) -> list[tuple[type[Data], type[Data]]]:
    names = [name.removesuffix("Key") for name in vars(module) if name.endswith("Key")]
    return [(vars(module)[f"{name}Key"], vars(module)[f"{name}Value"]) for name in names]


OFFSETS_RECORDS = _kinds([
    (OffsetCommitKey, OffsetCommitValue),
    (GroupMetadataKey, GroupMetadataValue),
    *_pairs(consumer_group_records),
    *_pairs(share_group_records),
    *_pairs(streams_group_records),
])  # fmt: skip
TRANSACTION_RECORDS = _kinds([(TransactionLogKey, TransactionLogValue)])
SHARE_STATE_RECORDS = _kinds(_pairs(share_state_records))
_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class Shown(NamedTuple):
    """The text of a record's key and value; None: it is not printed."""

    key: str | None
    payload: str | None


def decoder(options: DumpOptions) -> Callable[[Record], Shown]:
    """The function that decodes keys and values with these options."""
    if options.decoder is not Decoder.TEXT:
        return _DECODERS[options.decoder]
    key_form, value_form = options.key_form, options.value_form
    return lambda record: show_text(record, key_form, value_form)


def show_text(record: Record, key_form: Form = Form.TEXT, value_form: Form = Form.TEXT) -> Shown:
    """Key and value as UTF-8 or as numbers; None for null."""
    return Shown(_in_form(record.key, key_form), _in_form(record.value, value_form))


def _in_form(data: bytes | None, form: Form) -> str | None:
    if data is None:
        return None
    if form is Form.TEXT:
        return data.decode("utf-8", "replace")
    if len(data) != form.value:
        return f"<{amount(len(data), 'byte')}, not a number of {form.value} bytes>"
    return str(int.from_bytes(data, "big", signed=True))


def show_offsets(record: Record) -> Shown:
    """A record of __consumer_offsets, as JSON in the shape of Kafka's message schemas."""
    return _guarded(record, lambda: _show_keyed(record, OFFSETS_RECORDS))


def show_share_state(record: Record) -> Shown:
    """A record of __share_group_state."""
    return _guarded(record, lambda: _show_keyed(record, SHARE_STATE_RECORDS))


def _guarded(record: Record, show: Callable[[], Shown]) -> Shown:
    try:
        return show()
    except ProtocolError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)


def _show_keyed(record: Record, kinds: Kinds) -> Shown:
    if record.key is None:
        raise ProtocolError("a record of this topic has no key")
    version, key = _versioned(record.key)
    kind = kinds.get(version)
    if kind is None:
        return Shown(f"Unknown record type {version} at offset {record.offset}, skipping.", None)
    key_class, value_class = kind
    shown_key = to_json({"type": str(version), "data": plain(decode(key_class, version, key), version)})
    if record.value is None:
        return Shown(shown_key, DELETED)
    value_version, encoded = _versioned(record.value)
    value = _decode_known(value_class, value_version, encoded)
    data = plain(value, value_version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        for member in data["members"]:
            _open(member, "subscription", ConsumerProtocolSubscription)
            _open(member, "assignment", ConsumerProtocolAssignment)
    return Shown(shown_key, to_json({"version": str(value_version), "data": data}))


def keyed_record(key: bytes, value: bytes | None, kinds: Kinds) -> dict[str, Any]:
    """A record of an internal topic, in the shape of Kafka's CoordinatorRecordMessageFormatter; ProtocolError."""
    version, data = _versioned(key)
    if version not in kinds:
        raise ProtocolError(f"unknown record type {version}")
    key_class, value_class = kinds[version]
    shown: dict[str, Any] = {"key": {"type": version, "data": plain(decode(key_class, version, data), version)}, "value": None}
    if value is not None:
        value_version, data = _versioned(value)
        shown["value"] = {"version": value_version, "data": plain(_decode_known(value_class, value_version, data), value_version)}
    return shown


def show_transactions(record: Record) -> Shown:
    """A record of __transaction_state."""
    return _guarded(record, lambda: _show_transactions(record))


def _show_transactions(record: Record) -> Shown:
    if record.key is None:
        raise ProtocolError("a record of the transactions topic has no key")
    version, key = _versioned(record.key)
    if version not in TransactionLogKey.versions:
        return Shown(f"unknown::version={version}", None)
    shown_key = f"transaction_metadata::transactionalId={decode(TransactionLogKey, version, key).transactional_id}"
    if record.value is None:
        return Shown(shown_key, DELETED)
    value_version, encoded = _versioned(record.value)
    value = _decode_known(TransactionLogValue, value_version, encoded)
    status = value.transaction_status
    state = _TRANSACTION_STATES[status] if 0 <= status < len(_TRANSACTION_STATES) else f"Unknown({status})"
    partitions = [f"{topic.topic}-{partition}" for topic in value.transaction_partitions or [] for partition in topic.partition_ids]
    return Shown(
        shown_key,
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={state},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},txnTimeoutMs={value.transaction_timeout_ms}",
    )


def _show_metadata(record: Record) -> Shown:
    return Shown(None, show_metadata(record))


_DECODERS: dict[Decoder, Callable[[Record], Shown]] = {
    Decoder.OFFSETS: show_offsets,
    Decoder.TRANSACTIONS: show_transactions,
    Decoder.SHARE_STATE: show_share_state,
    Decoder.METADATA: _show_metadata,
}


def _versioned(data: bytes) -> tuple[int, bytes]:
    """The version at the start of a key or value, and the rest."""
    if len(data) < 2:
        raise ProtocolError(f"a version needs more than {amount(len(data), 'byte')}")
    return int.from_bytes(data[:2], "big", signed=True), data[2:]


def _decode_known(cls: type[M], version: int, data: bytes) -> M:
    if version not in cls.versions:
        raise ProtocolError(f"{cls.__name__} has the unknown version {version}; known are {cls.versions}")
    return decode(cls, version, data)


def _open(member: dict[str, Any], name: str, cls: type[Data]) -> None:
    """Replace a member's bytes by their content, if it can be decoded. Newer versions are decoded as the newest known one."""
    try:
        version, data = _versioned(base64.b64decode(member[name]))
        version = min(version, cls.versions.high)
        member[name] = plain(_decode_known(cls, version, data), version)
    except ProtocolError:
        return
