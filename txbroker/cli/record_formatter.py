"""Formatters of records for `txbroker consume`: Kafka's, by the names of their classes, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from txbroker.cli.deserializers import Deserializer, NotDeserialized
from txbroker.cli.property_flags import from_properties
from txbroker.console.failures import BadUsage
from txbroker.console.texts import json_value
from txbroker.errors import ProtocolError

if TYPE_CHECKING:
    from txbroker.logtools.dump.decoders import Kinds

FLAG = "--formatter-property"

_TYPE_NAMES = {0: "CreateTime", 1: "LogAppendTime"}
_TIMESTAMPS = {number: f"{name}:%d".encode() for number, name in _TYPE_NAMES.items()}


class AnyRecord(Protocol):
    """A record of kafka-python, or of `wire/records.py`. The timestamp is in ms."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatterProperties:
    """The properties of DefaultMessageFormatter."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key_deserializer: str | None = None
    value_deserializer: str | None = None
    headers_deserializer: str | None = None

    def deserializer(self, field: str) -> Deserializer | None:
        """That of "key", "value" or "headers"; None if it is not set: bytes are printed as they are. BadUsage."""
        name: str | None = getattr(self, f"{field}_deserializer")
        return None if name is None else Deserializer(name, f"{FLAG} {field}.deserializer")


Formatter = Callable[[Any], bytes]
"""The text of a record of kafka-python, with its end; NotDeserialized."""


class DefaultFormatter:
    """Prints, separated by key.separator, those that are chosen of: timestamp, partition, offset, epoch, headers, key, value."""

    def __init__(self, properties: FormatterProperties) -> None:
        self._properties = properties
        self._key = self._field(properties.deserializer("key"))
        self._value = self._field(properties.deserializer("value"))
        self._header = self._field(properties.deserializer("headers"))

    def __call__(self, record: Any) -> bytes:
        p = self._properties
        parts = []
        if p.print_timestamp:
            template = _TIMESTAMPS.get(record.timestamp_type)
            parts.append(b"NO_TIMESTAMP" if template is None else template % record.timestamp)
        if p.print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if p.print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if p.print_epoch:
            known = record.leader_epoch is not None and record.leader_epoch >= 0
            parts.append(b"Epoch:%d" % record.leader_epoch if known else b"Epoch:NOT_PRESENT")
        if p.print_headers:
            headers = [b"%b:%b" % (key.encode(), self._header(value)) for key, value in record.headers]
            parts.append(p.headers_separator.join(headers) or b"NO_HEADERS")
        if p.print_key:
            parts.append(self._key(record.key))
        if p.print_value:
            parts.append(self._value(record.value))
        return p.key_separator.join(parts) + p.line_separator

    def _field(self, deserializer: Deserializer | None) -> Callable[[bytes | None], bytes]:
        null = self._properties.null_literal
        if deserializer is None:
            return lambda data: null if data is None else data
        text = deserializer.text
        return lambda data: null if data is None else text(data)


class JsonFormatter:
    """Prints an object for each record; what is deserialized is a JSON value of its type."""

    def __init__(self, properties: FormatterProperties) -> None:
        self._key = _json_field(properties.deserializer("key"))
        self._value = _json_field(properties.deserializer("value"))
        self._header = _json_field(properties.deserializer("headers"))

    def __call__(self, record: Any) -> bytes:
        headers = [{"key": key, "value": self._header(value)} for key, value in record.headers]
        timestamp_type = _TYPE_NAMES.get(record.timestamp_type)
        return json_row(record.topic, record.partition, record, timestamp_type, headers, self._key(record.key), self._value(record.value))


def _json_field(deserializer: Deserializer | None) -> Callable[[bytes | None], Any]:
    if deserializer is None:
        return json_value

    def field(data: bytes | None) -> Any:
        value = None if data is None else deserializer.value(data)
        return json_value(value) if isinstance(value, bytes) else value

    return field


class CoordinatorFormatter:
    """Prints the records of an internal topic whose keys have one of these `versions`, as JSON in the shape of Kafka's message schemas."""

    def __init__(self, kinds: Kinds, versions: Collection[int]) -> None:
        self._kinds = kinds
        self._versions = versions

    def __call__(self, record: Any) -> bytes:
        from txbroker.logtools.dump.decoders import keyed_record
        from txbroker.logtools.dump.message_json import to_json

        if record.key is None or int.from_bytes(record.key[:2], "big", signed=True) not in self._versions:
            return b""
        try:
            return to_json(keyed_record(record.key, record.value, self._kinds)).encode() + b"\n"
        except ProtocolError as error:
            raise NotDeserialized(str(error)) from None


def formatter(name: str | None, properties: FormatterProperties, *, as_json: bool) -> Formatter:
    """The formatter of a class name, with or without its package; None is the default. BadUsage."""
    plain_name = "DefaultMessageFormatter" if name is None else re.split(r"[.$]", name)[-1]
    if plain_name == "DefaultMessageFormatter":
        return JsonFormatter(properties) if as_json else DefaultFormatter(properties)
    if plain_name == "NoOpMessageFormatter":
        return lambda record: b""
    if plain_name not in _COORDINATOR_FORMATTERS:
        known = ", ".join(("DefaultMessageFormatter", "NoOpMessageFormatter", *_COORDINATOR_FORMATTERS))
        raise BadUsage(f"--formatter {name} is not available: this command cannot load Java classes; use one of {known}")
    from txbroker.logtools.dump import decoders

    kinds, versions = _COORDINATOR_FORMATTERS[plain_name]
    return CoordinatorFormatter(getattr(decoders, kinds), versions)


# The records of txbroker.logtools.dump.decoders, and the versions of their keys, by the names of Kafka's classes.
_COORDINATOR_FORMATTERS: Mapping[str, tuple[str, Collection[int]]] = {
    "OffsetsMessageFormatter": ("OFFSETS_RECORDS", (0, 1)),
    "GroupMetadataMessageFormatter": ("OFFSETS_RECORDS", (2,)),
    "TransactionLogMessageFormatter": ("TRANSACTION_RECORDS", (0,)),
}


def json_record(topic: str, partition: int, record: AnyRecord, timestamp_type: str | None) -> bytes:
    """A record as a line with a JSON object in UTF-8. `timestamp_type` None: the record has no timestamp."""
    headers = [{"key": key, "value": json_value(value)} for key, value in record.headers]
    return json_row(topic, partition, record, timestamp_type, headers, json_value(record.key), json_value(record.value))


def json_row(
    topic: str, partition: int, record: AnyRecord, timestamp_type: str | None, headers: list[dict[str, Any]], key: Any, value: Any
) -> bytes:
    """The same, with headers, key and value as they are to be shown."""
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp if timestamp_type is not None and record.timestamp >= 0 else None,
        "timestamp_type": timestamp_type,
        "headers": headers,
        "key": key,
        "value": value,
    }
    # A header key that is not UTF-8 has surrogates, which JSON can only have as escapes.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def formatter_properties(properties: Mapping[str, str]) -> FormatterProperties:
    """BadUsage for an unknown or invalid one."""
    # Kafka's tool documents the singular, and its class reads the plural.
    renamed = {"headers.deserializer" if key == "header.deserializer" else key: text for key, text in properties.items()}
    return from_properties(FormatterProperties, renamed, FLAG, may_be_empty="line_separator")
