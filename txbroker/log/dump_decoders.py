"""How the dump shows keys and values: as text, or as the records of Kafka's internal topics."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from txbroker.errors import ProtocolError
from txbroker.log.dump_run import Decoder
from txbroker.names import id_to_text
from txbroker.wire.codec import decode
from txbroker.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from txbroker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from txbroker.wire.messages.group_metadata_key import GroupMetadataKey
from txbroker.wire.messages.group_metadata_value import GroupMetadataValue
from txbroker.wire.messages.offset_commit_key import OffsetCommitKey
from txbroker.wire.messages.offset_commit_value import OffsetCommitValue
from txbroker.wire.messages.transaction_log_key import TransactionLogKey
from txbroker.wire.messages.transaction_log_value import TransactionLogValue
from txbroker.wire.records import Record
from txbroker.wire.schema import Data, Struct, field_types

M = TypeVar("M", bound=Data)

DELETED = "<DELETE>"  # for the value of a tombstone

# The version of a key tells what the record is.
_OFFSETS_RECORDS: tuple[tuple[type[Data], type[Data]], ...] = (
    (OffsetCommitKey, OffsetCommitValue),
    (GroupMetadataKey, GroupMetadataValue),
)
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
    """What stands for a record's key and value; None where nothing does."""

    key: str | None
    payload: str | None


def show_text(record: Record) -> Shown:
    """Key and value as UTF-8, where they are there."""
    return Shown(_text(record.key), _text(record.value))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def show_offsets(record: Record) -> Shown:
    """A record of __consumer_offsets, as JSON in the shape of Kafka's message schemas."""
    try:
        return _show_offsets(record)
    except ProtocolError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)


def _show_offsets(record: Record) -> Shown:
    if record.key is None:
        raise ProtocolError("a record of the offsets topic has no key")
    version, key = _versioned(record.key)
    kinds = [(key_class, value_class) for key_class, value_class in _OFFSETS_RECORDS if version in key_class.versions]
    if not kinds:
        return Shown(f"Unknown record type {version} at offset {record.offset}, skipping.", None)
    key_class, value_class = kinds[0]
    shown_key = _json({"type": str(version), "data": plain(decode(key_class, version, key), version)})
    if record.value is None:
        return Shown(shown_key, DELETED)
    value_version, encoded = _versioned(record.value)
    value = _decode_known(value_class, value_version, encoded)
    data = plain(value, value_version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        for member in data["members"]:
            _open(member, "subscription", ConsumerProtocolSubscription)
            _open(member, "assignment", ConsumerProtocolAssignment)
    return Shown(shown_key, _json({"version": str(value_version), "data": data}))


def show_transactions(record: Record) -> Shown:
    """A record of __transaction_state."""
    try:
        return _show_transactions(record)
    except ProtocolError as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)


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


DECODERS: dict[Decoder, Callable[[Record], Shown]] = {
    Decoder.TEXT: show_text,
    Decoder.OFFSETS: show_offsets,
    Decoder.TRANSACTIONS: show_transactions,
}


def _versioned(data: bytes) -> tuple[int, bytes]:
    """The version that stands at the front, and what it is the version of."""
    if len(data) < 2:
        raise ProtocolError(f"{len(data)} bytes are too few for a version")
    return int.from_bytes(data[:2], "big", signed=True), data[2:]


def _decode_known(cls: type[M], version: int, data: bytes) -> M:
    if version not in cls.versions:
        raise ProtocolError(f"{cls.__name__} has version {version}, and {cls.versions} are known")
    return decode(cls, version, data)


def _open(member: dict[str, Any], name: str, cls: type[Data]) -> None:
    """Replace a member's bytes by what they hold, if that can be read; consumers keep to the newest version that is known."""
    try:
        version, data = _versioned(base64.b64decode(member[name]))
        version = min(version, cls.versions.high)
        member[name] = plain(_decode_known(cls, version, data), version)
    except ProtocolError:
        return


def plain(message: Struct, version: int) -> dict[str, Any]:
    """A message as Kafka's JSON converters show it: the fields of this version, tagged ones only where not the default."""
    shown: dict[str, Any] = {}
    types = field_types(type(message))
    for name, field in type(message).__fields__.items():
        value = getattr(message, name)
        if version not in field.versions or (field.tag is not None and version in field.tagged and value == field.default):
            continue
        first, *others = name.split("_")
        shown["".join([first, *map(str.capitalize, others)])] = _plain_value(value, types[name], version)
    return shown


def _plain_value(value: Any, annotation: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, list):
        return [_plain_value(one, None, version) for one in value]
    if isinstance(value, bytes):
        is_id = "uuid" in getattr(annotation, "__metadata__", ())
        return id_to_text(value) if is_id else base64.b64encode(value).decode("ascii")
    return value


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
