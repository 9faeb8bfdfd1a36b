"""Kafka's segment files as a DataFrame, a task for each segment: a Python data source over `txbroker.log` and `txbroker.wire`.

    register(spark)
    spark.read.format("txbroker-segments").option("topic", "orders").load("/var/lib/kafka")
    spark.read.format("txbroker-segments").option("topic", "orders").load("broker-1=/srv/1,broker-2=/srv/2")

Options; as in all of Spark, their names are case-insensitive:

- path: directories of log.dirs, or of single partitions, comma-separated, each after `NAME=` if it has a name; names may repeat.
- topic, partition: comma-separated topics, and a partition's number; default: all.
- startingOffset, endingOffset: of every partition, the end exclusive; default: from the log start offset in the directory's checkpoint.
- offsets: ranges by partition as JSON, `{"orders": {"0": [5, 20]}}`; partitions without a range are left out.
- startingTimestamp, endingTimestamp: in ms, the end exclusive.
- columns: comma-separated, of `segment_rows.COLUMNS`.
- isolationLevel: read_committed (default), or read_uncommitted.
- controlRecords: true: control records too.
- damage: fail (default), or report: rows with a `problem`.

A broker may be using the directories. They are only read; a segment that the broker replaces meanwhile fails its task. What the broker has
written and not replicated yet is read too: give `endingOffset` or `offsets` where that matters. `txbroker` must be installed on executors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from txbroker.spark.segment_plan import FORMAT, Ranges


def register(spark: Any) -> None:
    """Make the format known to a session."""
    from txbroker.spark.segment_format import SegmentSource

    spark.dataSource.register(SegmentSource)


def read(spark: Any, path: str, offsets: Ranges, *, columns: Sequence[str], damage: str, **options: str) -> Any:
    """A DataFrame of these offsets, by the options of this format."""
    register(spark)
    given = {"offsets": json.dumps(offsets), "columns": ",".join(columns), "damage": damage, **options}
    return spark.read.format(FORMAT).options(**given).load(path)
