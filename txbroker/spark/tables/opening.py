"""Opens the table in a folder, in the format that it has."""

from __future__ import annotations

from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.session import has_delta
from txbroker.spark.tables.delta import DeltaTable
from txbroker.spark.tables.parquet import ParquetTable
from txbroker.spark.tables.table import Table
from txbroker.spark.tables.table_folder import DELTA, PARQUET, folder, format_of


def open_table(spark: Any, location: str, wanted: str | None = None) -> Table:
    """The table, which may not exist yet.

    `wanted`: its format; by default that of the table, and for a new one Delta if the session has it.
    CommandFailed for a folder that has something else, and for a table of another format; BadUsage.
    """
    path = folder(location)
    there = format_of(path)
    if there is not None and wanted is not None and there != wanted:
        raise CommandFailed(f"the table {path} has the format {there}; leave out --format {wanted}, or specify another --table")
    chosen = there or wanted or (DELTA if has_delta(spark) else PARQUET)
    return DeltaTable(spark, path) if chosen == DELTA else ParquetTable(spark, path)
