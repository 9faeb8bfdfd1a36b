"""The result of an audit as an Arrow or Parquet file, with one row for each key and group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from txbroker.cli.audit.audit import Page
from txbroker.cli.audit.latest_versions import DELETED, VERSIONED, Ints, Rows
from txbroker.console.failures import BadUsage, CommandFailed, missing_library

FORMATS = (".arrow", ".parquet")


def check_name(path: str) -> None:
    """BadUsage unless the file's name has the suffix of a supported format."""
    if not path.endswith(FORMATS):
        raise BadUsage(f"--output is {path!r}; it must end with {' or '.join(FORMATS)}")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise missing_library("an Arrow or Parquet file", "pyarrow") from None
    return pyarrow


class AnswerFile:
    """A file under a temporary name, renamed when it is complete, removed after an error."""

    def __init__(self, path: str, topic: str) -> None:
        check_name(path)
        self._arrow = _pyarrow()
        self._topic = topic
        self._path = path
        self._partial = f"{path}.partial"
        self._schema = _schema(self._arrow)
        try:
            if path.endswith(".parquet"):
                import pyarrow.parquet

                self._writer: Any = pyarrow.parquet.ParquetWriter(self._partial, self._schema, compression="zstd")
            else:
                self._writer = self._arrow.ipc.new_file(self._partial, self._schema)
        except OSError as error:
            raise CommandFailed(f"{path} cannot be written: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.close()
        if kind is None:
            os.replace(self._partial, self._path)
        else:
            os.remove(self._partial)

    def add(self, page: Page) -> None:
        """Write the rows of a page; without groups, one row for each key."""
        arrow = self._arrow
        count = len(page.latest)
        keys = [page.rows.key(int(index)) for index in page.latest]
        fixed = {
            "topic": arrow.repeat(arrow.scalar(self._topic), count),
            "partition": arrow.repeat(arrow.scalar(page.partition, arrow.int32()), count),
            "key": arrow.array(keys, arrow.binary()),
            **_columns(arrow, "", page.rows, page.latest),
        }
        for group, given in page.delivered.items() or ((None, None),):
            row = np.full(count, -1, np.int64) if given is None else given.row
            unseen = arrow.nulls(count, arrow.bool_()) if given is None else arrow.array(given.unseen)
            name = arrow.nulls(count, arrow.string()) if group is None else arrow.repeat(arrow.scalar(group), count)
            columns = {**fixed, "group": name, **_columns(arrow, "delivered_", page.rows, row), "unseen": unseen}
            self._writer.write(arrow.record_batch([columns[each.name] for each in self._schema], schema=self._schema))


def _schema(arrow: Any) -> Any:
    time = arrow.timestamp("ms", tz="UTC")
    return arrow.schema([
        ("topic", arrow.string()), ("partition", arrow.int32()), ("key", arrow.binary()),
        ("offset", arrow.int64()), ("timestamp", time), ("version", arrow.int64()), ("deleted", arrow.bool_()),
        ("group", arrow.string()), ("delivered_offset", arrow.int64()), ("delivered_timestamp", time),
        ("delivered_version", arrow.int64()), ("delivered_deleted", arrow.bool_()), ("unseen", arrow.bool_()),
    ])  # fmt: skip


def _columns(arrow: Any, prefix: str, rows: Rows, index: Ints) -> Mapping[str, Any]:
    """Offset, timestamp, version and whether it is a tombstone; null where the index is -1, or the record has none."""
    absent = index < 0
    flags, timestamp = rows.flags[index], rows.timestamp[index]
    milliseconds = arrow.array(timestamp, mask=absent | (timestamp < 0))
    return {
        f"{prefix}offset": arrow.array(rows.offset[index], mask=absent),
        f"{prefix}timestamp": milliseconds.cast(arrow.timestamp("ms", tz="UTC")),
        f"{prefix}version": arrow.array(rows.version[index], mask=absent | (flags & VERSIONED == 0)),
        f"{prefix}deleted": arrow.array(flags & DELETED != 0, mask=absent),
    }
