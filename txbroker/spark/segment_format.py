"""The classes of the format `txbroker-segments` that PySpark's interface for data sources asks for; `segment_source` describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from txbroker.console.failures import CommandFailed
from txbroker.errors import CorruptRecords, StorageError
from txbroker.log.os_disk import OsDisk
from txbroker.spark.segment_plan import FORMAT, SegmentOptions, Task, plan
from txbroker.spark.segment_rows import COLUMNS, read_segment


class _SegmentTask(InputPartition):  # type: ignore[misc]
    """One task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.segment.path)
        self.task = task


class SegmentSource(DataSource):  # type: ignore[misc]
    """The format `txbroker-segments`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = SegmentOptions.of(options)

    @classmethod
    def name(cls) -> str:
        """For `spark.read.format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns that were asked for."""
        return ", ".join(f"{name} {COLUMNS[name]}" for name in self._options.wanted.columns)

    def reader(self, schema: Any) -> _Reader:
        """The reader of the segments."""
        return _Reader(self._options)


class _Reader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """A task for each segment that may have selected offsets."""
        return [_SegmentTask(task) for task in plan(OsDisk(), self._options)]

    def read(self, partition: Any) -> Iterator[Any]:
        """The rows of one segment; none without a segment."""
        if partition is None:
            return iter(())
        return _reporting(lambda: read_segment(OsDisk(), *partition.task))


def _reporting(read: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The disk's errors, and a damaged transaction index, as errors of the job."""
    try:
        yield from read()
    except StorageError as error:
        raise CommandFailed(f"{error}; correct that and run this again") from error
    except CorruptRecords as error:
        raise CommandFailed(f"{error.message}; see `txbroker log verify`, or set isolationLevel to read_uncommitted") from error
