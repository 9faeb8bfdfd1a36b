"""Which of several records of a key is the latest, by a topic's `compaction.strategy`, as SQL over the columns of `kafka_source.SCHEMA`.

The rule is the log cleaner's, `CompactionOrder`. Both are tested with the same records (`tests/cleaner/latest_of_key.json`).
"""

from __future__ import annotations

from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import NO_VERSION, VERSION_BYTES, CompactionOrder


def version(order: CompactionOrder, row: str = "") -> str:
    """SQL for a record's version, a BIGINT: null without one, and where the strategy compares no versions. `row`: the table's alias."""
    if order.strategy is not Strategy.HEADER:
        return "CAST(NULL AS BIGINT)"
    headers = _column(row, "headers")
    last = f"try_element_at(filter({headers}, header -> header.key = {literal(order.header)}), -1).value"
    # `conv` reads sixteen hexadecimal digits as an unsigned number, and a negative base writes it as a signed one.
    return f"CASE WHEN octet_length({last}) = {VERSION_BYTES} THEN CAST(conv(hex({last}), 16, -10) AS BIGINT) END"


def rank(order: CompactionOrder, row: str = "", *, version_column: str | None = None) -> str:
    """SQL for `CompactionOrder.rank`, a struct without nulls: of two records of a key the one with the larger rank is the latest.

    For `max_by(value, rank)`, which needs no sort, or for comparisons. Records of several partitions are compared too; of equal ones the
    larger partition wins, so that the result does not depend on the order of rows. `version_column`: has `version`, if it is stored.
    """
    first, has_version = f"{NO_VERSION + 1}L - 1L", "false"  # the smallest number has no literal of its own
    if order.strategy is Strategy.TIMESTAMP:
        first = _column(row, "timestamp_ms")
    elif order.strategy is Strategy.HEADER:
        found = version(order, row) if version_column is None else _column(row, version_column)
        first, has_version = f"coalesce({found}, {first})", f"{found} IS NOT NULL"
    return f"struct({first}, {has_version}, {_column(row, 'offset')}, {_column(row, 'partition')})"


def literal(text: str) -> str:
    """A string of SQL. As bytes, since Spark replaces `${name}` in SQL, also in quotes."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _column(row: str, name: str) -> str:
    return f"{row}.{name}" if row else name
