"""What `load` needs of a table, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from txbroker.spark.offset_ranges import TableOffsets
from txbroker.spark.tables.load_commit import LoadCommit

SMALL_BYTES = 32 * 1024 * 1024
COMPACTED_BYTES = 128 * 1024 * 1024


class Loaded(NamedTuple):
    """`offsets`: what the table has. `unchecked`: its last commit, if the gaps in it are not classified yet.

    `transaction`: the version of the last commit, where its metadata is gone. `load_again`: the statement after which rows that the table
    had at that version, and has not now, are loaded again.
    """

    offsets: TableOffsets
    unchecked: LoadCommit | None
    transaction: int | None = None
    load_again: str = ""


class Table(Protocol):
    """A table in a folder. Methods raise CommandFailed, and whatever Spark raises. One load at a time: `table_folder.locked`."""

    path: Path
    format: str

    def loaded(self) -> Loaded | None:
        """What the table has; None if there is no table yet. CommandFailed if it is not a table of `load`."""

    def create(self, cluster_id: str, topic_ids: Mapping[str, str], rows: Any) -> None:
        """Create the table without data if there is none, and store the ids, instead of others. `rows`: the StructType of what comes.

        CommandFailed for columns that the format does not have; then nothing was created.
        """

    def schema(self) -> Any:
        """The table's columns, a StructType."""

    def append(self, data: Any, commit: LoadCommit) -> None:
        """Append a DataFrame and commit both in one step. CommandFailed if another load was first.

        The DataFrame has all columns of the table, and may have more, which the table gets.

        Another exception does not mean that nothing was committed; `has` shows it.
        """

    def append_check(self, commit: LoadCommit) -> None:
        """Commit what was found about the gaps of the commit before."""

    def has(self, commit: LoadCommit) -> bool:
        """Whether the newest commit of a load is this one."""

    def rows(self, commit: LoadCommit) -> Any | None:
        """A DataFrame of the rows that a commit added; None if the table's log does not have it any more."""

    def read(self) -> Any:
        """A DataFrame of the whole table, as it is now."""

    def compact(self, files_min: int) -> int:
        """Rewrite the files below SMALL_BYTES as files of about COMPACTED_BYTES if there are at least so many; how many were rewritten.

        The rows stay as they are. The last load must be checked.
        """
