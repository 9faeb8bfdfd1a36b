"""Records on their way out of a log: as JSON lines, or as a file of Arrow or Parquet, a piece at a time."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol, Self

from txbroker.cli.failures import BadUsage, CommandFailed, missing_library

if TYPE_CHECKING:
    from types import TracebackType
    from typing import BinaryIO

    from txbroker.logtools.extract import Extracted
    from txbroker.names import TopicPartition

ENDINGS = (".jsonl", ".arrow", ".parquet")
# What is kept until it is written as one piece (a row group of Parquet).
ROWS_MAX = 64 * 1024
BYTES_MAX = 32 * 1024 * 1024


class NotText(Exception):
    """A key or value that is not UTF-8, where text is wanted."""


class RecordOutput(Protocol):
    """Where records go. A file gets its name once it is whole."""

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def open_records(path: str | None, key_encoding: str, value_encoding: str) -> RecordOutput:
    """By the file's ending; None: standard output. BadUsage, CommandFailed."""
    if path is None:
        return _JsonLines(None, key_encoding, value_encoding)
    if not path.endswith(ENDINGS):
        raise BadUsage(f"--output is {path!r}; it must end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    try:
        if path.endswith(".jsonl"):
            return _JsonLines(path, key_encoding, value_encoding)
        return _ArrowFile(path, key_encoding, value_encoding)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror or error}; choose another --output") from None


def _text(data: bytes, what: str, topic_partition: TopicPartition, offset: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        which = what.partition(" ")[0]
        raise NotText(f"the {what} of {topic_partition} at offset {offset} is not UTF-8; use --{which}-encoding base64") from None


class _File:
    """A file that has another name until it is whole; standard output where `path` is None."""

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
    def __init__(self, path: str | None, key_encoding: str, value_encoding: str) -> None:
        super().__init__(path)
        self._stream: BinaryIO = sys.stdout.buffer if path is None else open(self._partial, "wb")  # noqa: SIM115
        self._key_text, self._value_text = key_encoding == "utf-8", value_encoding == "utf-8"

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None:
        """One record."""
        record = extracted.record

        def shown(data: bytes | None, as_text: bool, what: str) -> str | None:
            if data is None:
                return None
            return _text(data, what, topic_partition, record.offset) if as_text else base64.b64encode(data).decode("ascii")

        row = {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
            "timestamp_type": extracted.timestamp_type,
            "key": shown(record.key, self._key_text, "key"),
            "value": shown(record.value, self._value_text, "value"),
            "headers": [{"key": name, "value": shown(value, self._value_text, "value of a header")} for name, value in record.headers],
        }
        # A header's name that is not UTF-8 has surrogates, which JSON can write as escapes.
        self._stream.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    def _close(self, *, whole: bool) -> None:
        if self._path is None:
            self._stream.flush()
        else:
            self._stream.close()


class _ArrowFile(_File):
    def __init__(self, path: str, key_encoding: str, value_encoding: str) -> None:
        super().__init__(path)
        try:
            import pyarrow
        except ImportError:
            raise missing_library("an Arrow or Parquet file", "pyarrow") from None
        self._arrow: Any = pyarrow
        self._key_text, self._value_text = key_encoding == "utf-8", value_encoding == "utf-8"
        self._schema = _schema(pyarrow, self._key_text, self._value_text)
        if path.endswith(".parquet"):
            import pyarrow.parquet

            self._writer: Any = pyarrow.parquet.ParquetWriter(self._partial, self._schema, compression="zstd")
        else:
            self._writer = pyarrow.ipc.new_file(self._partial, self._schema)
        self._bytes = 0
        self._columns: list[list[Any]] = [[] for _ in self._schema]

    def add(self, topic_partition: TopicPartition, extracted: Extracted) -> None:
        """One record; a piece is written when it is large enough."""
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
            record.timestamp if record.timestamp >= 0 else None,
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
