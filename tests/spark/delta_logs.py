"""Delta's log as it is long after the commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def forget_offsets(spark: Any, table: Path) -> None:
    """Remove the commits from Delta's log, as Delta does after 30 days."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(table)).checkpoint()
    for path in table.glob("_delta_log/*.json"):
        path.write_text("".join(line for line in path.read_text().splitlines(True) if "userMetadata" not in line))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
