"""Topics as a DataFrame, by Spark's own Kafka source, with exact offsets.

With `earliest` and `latest` each task resolves its own end, and a task that runs twice may read something else. Numbers prevent that, and
only with them does `maxRecordsPerPartition` divide a range.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.console.failures import BadUsage
from txbroker.spark.offset_ranges import OffsetRange

POLL_TIMEOUT_MS = 30_000
# Each task of Spark's asks for the log's start and end, behind a fetch of its consumer that waits at the end of the log for records that no
# task reads: with Kafka's default of 500 ms a task takes that much longer.
FETCH_WAIT_MS = 10
# Spark sets these itself and refuses them as options.
_RESERVED = frozenset({"bootstrap.servers", "group.id", "auto.offset.reset", "key.deserializer", "value.deserializer", "key.serializer",
                       "value.serializer", "enable.auto.commit", "interceptor.classes", "isolation.level"})  # fmt: skip
SCHEMA = """topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_ms BIGINT, timestamp_type INT,
key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"""
"""The columns of `records`, and of tables: everything that a record has. `timestamp_type`: 0 set by the producer, 1 by the broker."""
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers")


def client_options(properties: Mapping[str, str]) -> dict[str, str]:
    """A client's properties as options of the source; BadUsage for one that the source sets itself."""
    refused = sorted(_RESERVED.intersection(properties))
    if refused:
        raise BadUsage(f"{refused[0]} cannot be set in the client's properties: the job sets it; remove it")
    return {f"kafka.{key}": value for key, value in {"fetch.max.wait.ms": str(FETCH_WAIT_MS), **properties}.items()}


def offsets_json(ranges: Sequence[OffsetRange], *, end: bool) -> str:
    """The option startingOffsets or endingOffsets: `{"topic": {"0": 5}}`."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for one in ranges:
        found[one.topic][str(one.partition)] = one.end if end else one.start
    return json.dumps(found)


def records(
    spark: Any, servers: str, ranges: Sequence[OffsetRange], isolation_level: str, properties: Mapping[str, str], split: int | None = None
) -> Any:
    """A DataFrame of `SCHEMA` with the records of these ranges: a task for each, or tasks of at most `split` offsets.

    A range must not be empty. An offset that is below the log's start when the task runs fails the job.
    """
    partitions: dict[str, list[int]] = defaultdict(list)
    for one in ranges:
        partitions[one.topic].append(one.partition)
    reader = spark.read.format("kafka").options(**client_options(properties))
    for key, value in {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": isolation_level,
        "assign": json.dumps(partitions),
        "startingOffsets": offsets_json(ranges, end=False),
        "endingOffsets": offsets_json(ranges, end=True),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MS),
        **({} if split is None else {"maxRecordsPerPartition": str(split)}),
    }.items():
        reader = reader.option(key, value)
    return reader.load().selectExpr("topic", "partition", "offset", "timestamp", "unix_millis(timestamp) AS timestamp_ms",
                                    "timestampType AS timestamp_type", "key", "value", "headers")
