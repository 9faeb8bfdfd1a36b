"""The columns of a table, and rows of another load brought to them: decoded columns grow with their schema, and never change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.console.failures import CommandFailed


def widened(table: Any, rows: Any, path: Sequence[str] = ()) -> Any:
    """The StructType of a table with the columns of new rows added, in structs too; CommandFailed if the type of one changed."""
    from pyspark.sql.types import StructField, StructType

    fields = {field.name: field.dataType for field in table.fields}
    for field in rows.fields:
        known = fields.get(field.name)
        where = [*path, field.name]
        if isinstance(known, StructType) and isinstance(field.dataType, StructType):
            fields[field.name] = widened(known, field.dataType, where)
        elif known is None:
            fields[field.name] = field.dataType
        elif known.simpleString() != field.dataType.simpleString():
            raise CommandFailed(f"the column {'.'.join(where)} is {known.simpleString()} in the table, and "
                                f"{field.dataType.simpleString()} by the schema of this load; specify a schema that only adds fields, "
                                "or another --table")
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def aligned(rows: Any, schema: Any) -> Any:
    """A DataFrame with exactly these columns: what it lacks is null."""
    from pyspark.sql import functions as f

    there = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(*(
        _aligned(f.col(f"`{field.name}`"), there.get(field.name), field.dataType).alias(field.name) for field in schema.fields
    ))  # fmt: skip


def _aligned(column: Any, there: Any, wanted: Any) -> Any:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if there is None:
        return f.lit(None).cast(wanted)
    if not isinstance(wanted, StructType) or there.simpleString() == wanted.simpleString():
        return column
    known = {field.name: field.dataType for field in there.fields}
    fields = (_aligned(column.getField(field.name), known.get(field.name), field.dataType).alias(field.name) for field in wanted.fields)
    return f.when(column.isNotNull(), f.struct(*fields))
