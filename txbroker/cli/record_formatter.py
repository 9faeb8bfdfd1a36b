"""Records as `txbroker consume` prints them, by the properties of Kafka's console consumer (class DefaultMessageFormatter)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from txbroker.cli.property_flags import from_properties

_TYPE_NAMES = {0: "CreateTime", 1: "LogAppendTime"}
_CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
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
class RecordFormat:
    """What is printed of a record, in this order, divided by `key_separator`: timestamp, partition, offset, headers, key, value."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"

    def text(self, record: Any) -> bytes:
        """The text of a record of kafka-python, with its end."""
        parts = []
        if self.print_timestamp:
            template = _TIMESTAMPS.get(record.timestamp_type)
            parts.append(b"NO_TIMESTAMP" if template is None else template % record.timestamp)
        if self.print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.print_headers:
            headers = [b"%b:%b" % (key.encode(), self._or_null(value)) for key, value in record.headers]
            parts.append(self.headers_separator.join(headers) or b"NO_HEADERS")
        if self.print_key:
            parts.append(self._or_null(record.key))
        if self.print_value:
            parts.append(self._or_null(record.value))
        return self.key_separator.join(parts) + self.line_separator

    def _or_null(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data


def json_line(record: Any) -> bytes:
    """A record of kafka-python as a line with a JSON object."""
    return json_record(record.topic, record.partition, record, _TYPE_NAMES.get(record.timestamp_type))


def json_record(topic: str, partition: int, record: AnyRecord, timestamp_type: str | None) -> bytes:
    """A record as a line with a JSON object in UTF-8. `timestamp_type` None: the record has no timestamp."""
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp if timestamp_type is not None and record.timestamp >= 0 else None,
        "timestamp_type": timestamp_type,
        "headers": [{"key": key, "value": json_value(value)} for key, value in record.headers],
        "key": json_value(record.key),
        "value": json_value(record.value),
    }
    # A header key that is not UTF-8 has surrogates, which JSON can only have as escapes.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as a JSON value: text if they are UTF-8 without control characters (but tabs and line ends), else {"base64": ...}."""
    if data is None:
        return None
    if _CONTROL_CHARACTERS.search(data) is None:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return {"base64": base64.b64encode(data).decode()}


def record_format(properties: Mapping[str, str]) -> RecordFormat:
    """From --property flags; BadUsage."""
    return from_properties(RecordFormat, properties, may_be_empty="line_separator")
