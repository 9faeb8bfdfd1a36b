"""Writes records as JSON lines, Arrow or Parquet."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Protocol, Self

from txbroker.cli.record_formatter import json_record
from txbroker.console.failures import BadUsage, CommandFailed, missing_library

if TYPE_CHECKING:
    from types import TracebackType
    from typing import BinaryIO

    from txbroker.logtools.extract import Extracted
    from txbroker.names import TopicPartition

ENDINGS = (".jsonl", ".arrow", ".parquet")
# Limits of a record batch of Arrow, or row group of Parquet.
ROWS_MAX = 64 * 1024
BYTES_MAX = 32 * 1024 * 1024


class NotText(Exception):
    """A key or value for a text column is not UTF-8."""


class RecordOutput(Protocol):
    """Receives records. A file has the suffix .partial until it is complete."""

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def open_records(path: str | None, *, key_text: bool, value_text: bool) -> RecordOutput:
    """The output for this file name; None: JSON lines on standard output. BadUsage, CommandFailed.

    `key_text`, `value_text`: Arrow and Parquet columns are text instead of binary.
    """
    if path is not None and not path.endswith(ENDINGS):
        raise BadUsage(f"--output is {path!r}; it must end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if (key_text or value_text) and (path is None or path.endswith(".jsonl")):
        raise BadUsage("--key-encoding and --value-encoding require --output FILE.arrow or FILE.parquet")
    try:
        return _JsonLines(path) if path is None or path.endswith(".jsonl") else _ArrowFile(path, key_text, value_text)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror or error}; choose another --output") from None


def _text(data: bytes, what: str, topic_partition: TopicPartition, offset: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        which = what.partition(" ")[0]
        raise NotText(f"the {what} of {topic_partition} at offset {offset} is not UTF-8; use --{which}-encoding binary") from None


class _File:
    """A file that is renamed to `path` when it is complete; None: standard output."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._partial = f"{path}.partial"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._close(whole=kind is None)
        finally:
            if self._path is not None and kind is not None:
                os.remove(self._partial)
        if self._path is not None and kind is None:
            os.replace(self._partial, self._path)

    def _close(self, *, whole: bool) -> None:
        raise NotImplementedError


class _JsonLines(_File):
    """The same lines as those of `txbroker consume --json`."""

    def __init__(self, path: str | None) -> None:
        super().__init__(path)
        self._stream: BinaryIO = sys.stdout.buffer if path is None else open(self._partial, "wb")  # noqa: SIM115

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None:
        """Write one record."""
        line = json_record(topic_partition.topic, topic_partition.partition, extracted.record, extracted.timestamp_type)
        self._stream.write(line)

    def _close(self, *, whole: bool) -> None:
        if self._path is None:
            self._stream.flush()
        else:
            self._stream.close()


class _ArrowFile(_File):
    def __init__(self, path: str, key_text: bool, value_text: bool) -> None:
        super().__init__(path)
        try:
            import pyarrow
        except ImportError:
            raise missing_library("an Arrow or Parquet file", "pyarrow") from None
        self._arrow: Any = pyarrow
        self._key_text, self._value_text = key_text, value_text
        self._schema = _schema(pyarrow, key_text, value_text)
        if path.endswith(".parquet"):
            import pyarrow.parquet

            self._writer: Any = pyarrow.parquet.ParquetWriter(self._partial, self._schema, compression="zstd")
        else:
            self._writer = pyarrow.ipc.new_file(self._partial, self._schema)
        self._bytes = 0
        self._columns: list[list[Any]] = [[] for _ in self._schema]

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None:
        """Add one record."""
        record = extracted.record

        def shown(data: bytes | None, as_text: bool, what: str) -> str | bytes | None:
            if data is None or not as_text:
                return data
            return _text(data, what, topic_partition, record.offset)

        headers = [
            {"key": name.encode("utf-8", "backslashreplace").decode(), "value": shown(value, self._value_text, "value of a header")}
            for name, value in record.headers
        ]
        row = (
            topic_partition.topic,
            topic_partition.partition,
            record.offset,
            record.timestamp if extracted.timestamp_type is not None and record.timestamp >= 0 else None,
            extracted.timestamp_type,
            shown(record.key, self._key_text, "key"),
            shown(record.value, self._value_text, "value"),
            headers,
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._bytes += 100 + len(record.key or b"") + len(record.value or b"") + sum(100 + len(value or b"") for _, value in record.headers)
        if self._bytes >= BYTES_MAX or len(self._columns[0]) >= ROWS_MAX:
            self._write()

    def _write(self) -> None:
        arrays = [self._arrow.array(column, type=field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        self._writer.write(self._arrow.record_batch(arrays, schema=self._schema))
        self._columns = [[] for _ in self._schema]
        self._bytes = 0

    def _close(self, *, whole: bool) -> None:
        if whole and self._columns[0]:
            self._write()
        self._writer.close()


def _schema(arrow: Any, key_text: bool, value_text: bool) -> Any:
    key, value = (arrow.string() if text else arrow.binary() for text in (key_text, value_text))
    return arrow.schema([
        ("topic", arrow.string()), ("partition", arrow.int32()), ("offset", arrow.int64()), ("timestamp", arrow.timestamp("ms", tz="UTC")),
        ("timestamp_type", arrow.string()), ("key", key), ("value", value),
        ("headers", arrow.list_(arrow.struct([("key", arrow.string()), ("value", value)]))),
    ])  # fmt: skip
