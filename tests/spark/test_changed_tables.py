"""Tables that something else has changed since the last run: the jobs see the table as it is, and not only its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.delta_logs import forget_offsets
from tests.spark.loads import Load, offsets, whole
from tests.spark.producing import PARTITIONS, produce
from tests.spark.test_upsert import Change, rows, send
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.brokers import Brokers
from txbroker.spark.decoding.decoding import Decoding
from txbroker.spark.topic_source import TopicSource
from txbroker.spark.upsert import UpsertOptions, UpsertReport, upsert


def newest(spark: Any, table: Path) -> tuple[int, Any]:
    """The version of a table, and its time."""
    row = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()[0]
    return row.version, row.timestamp


def restore(spark: Any, table: Path, point: str) -> None:
    spark.sql(f"RESTORE TABLE delta.`{table}` TO {point}").collect()


def rename(spark: Any, table: Path, column: str, other: str) -> None:
    properties = "'delta.columnMapping.mode'='name', 'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN {column} TO {other}")


@pytest.mark.parametrize("by", ["version", "time"])
def test_what_a_restore_took_back_is_loaded_again(spark: Any, broker: Server, topic: str, table: Path, loading: Load, by: str) -> None:
    loading()
    version, time = newest(spark, table)
    for _ in range(2):
        produce(broker, topic, 2 * PARTITIONS)
        loading()
    restore(spark, table, f"VERSION AS OF {version}" if by == "version" else f"TIMESTAMP AS OF '{time}'")
    assert offsets(spark, table) == whole(topic, 10)
    loading()
    assert offsets(spark, table) == whole(topic, 14)
    assert not loading().loaded


def test_a_restore_of_a_restored_table(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    versions = []
    for count in (10, 12, 14):
        if count > 10:
            produce(broker, topic, 2 * PARTITIONS)
        loading()
        versions.append(newest(spark, table)[0])
    restore(spark, table, f"VERSION AS OF {versions[0]}")
    loading()
    restore(spark, table, f"VERSION AS OF {versions[1]}")
    assert offsets(spark, table) == whole(topic, 12)
    loading()
    assert offsets(spark, table) == whole(topic, 14)
    restore(spark, table, f"VERSION AS OF {versions[2]}")
    assert not loading().loaded
    assert offsets(spark, table) == whole(topic, 14)


def test_a_restore_that_the_log_does_not_have_any_more(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    """A load after the restore keeps its version in the table's properties; without such a load the next one refuses, and says the way."""
    loading()
    version, _ = newest(spark, table)
    produce(broker, topic, 2 * PARTITIONS)
    loading()
    restore(spark, table, f"VERSION AS OF {version}")
    forget_offsets(spark, table)
    for path in table.glob("_delta_log/*.json"):
        path.write_text("".join(line for line in path.read_text().splitlines(True) if '"RESTORE"' not in line))
    with pytest.raises(CommandFailed, match=r"was loaded beyond offset 10, which is not in the table now.*: ALTER TABLE") as refused:
        loading()
    assert offsets(spark, table) == whole(topic, 10)
    spark.sql(str(refused.value)[str(refused.value).index("ALTER TABLE") :])
    loading()
    assert offsets(spark, table) == whole(topic, 12)


def test_what_a_restore_took_back_is_merged_again(spark: Any, broker: Server, topic: str, table: Path) -> None:
    def merge() -> UpsertReport:
        source = TopicSource(broker.address, [topic])
        return upsert(spark, UpsertOptions(source, str(table), brokers=Brokers.of(broker.address), buckets=2, by_timestamp=True))

    merge()
    version, _ = newest(spark, table)
    send(broker, topic, [Change(b"later", b"1", 1)])
    merge()
    restore(spark, table, f"VERSION AS OF {version}")
    assert b"later" not in rows(spark, table)
    merge()
    assert rows(spark, table)[b"later"].value == b"1"
    assert merge().ranges == []


def test_a_renamed_column_is_refused(spark: Any, broker: Server, topic: str, table: Path, loading: Load) -> None:
    loading()
    rename(spark, table, "value", "payload")
    produce(broker, topic, PARTITIONS)
    with pytest.raises(CommandFailed, match=r"the column value of the table .* was renamed to payload; rename it back \(ALTER") as refused:
        loading()
    assert offsets(spark, table) == whole(topic, 10)
    statement = str(refused.value).partition("(")[2].partition("), or")[0]
    spark.sql(statement)
    loading()
    assert offsets(spark, table) == whole(topic, 11)
    assert spark.read.format("delta").load(str(table)).where("value IS NULL").count() == 0


@pytest.mark.parametrize(("column", "other"), [("decode_error", "problem"), ("decoded.n", "number")])
def test_a_renamed_decoded_column_is_refused(
    spark: Any, broker: Server, topic: str, table: Path, loading: Load, tmp_path: Path, column: str, other: str
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    loading(decoding=Decoding("json", str(schema)))
    rename(spark, table, column, other)
    produce(broker, topic, PARTITIONS)
    renamed = column.replace(column.rpartition(".")[2], other)
    with pytest.raises(CommandFailed, match=rf"the column {column} of the table .* was renamed to {renamed};"):
        loading(decoding=Decoding("json", str(schema)))
    assert offsets(spark, table) == whole(topic, 10)


def test_a_column_of_an_upsert_that_is_missing_is_refused(spark: Any, broker: Server, topic: str, table: Path) -> None:
    def merge() -> UpsertReport:
        source = TopicSource(broker.address, [topic])
        return upsert(spark, UpsertOptions(source, str(table), brokers=Brokers.of(broker.address), buckets=2, by_timestamp=True))

    merge()
    rename(spark, table, "headers", "h")
    with pytest.raises(CommandFailed, match=r"the column headers of the table .* was renamed to h;"):
        merge()
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN h")
    with pytest.raises(CommandFailed, match="has no column headers, which this job writes"):
        merge()
