"""A local Spark that reads and writes Kafka topics."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat.samples import ANY_TIME, Record
from tests.support import cache

_COLUMNS = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT"


class Spark:
    """A session, and a broker's address."""

    def __init__(self, address: str, place: Path) -> None:
        self.address = address
        self.place = place
        os.environ["PYSPARK_PYTHON"] = sys.executable
        sys.path.append(str(cache.pyspark()))
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("txbroker-compat")
        for key, value in _settings(place).items():
            builder = builder.config(key, value)
        self.session: Any = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.version = str(self.session.version)

    def source(self, topic: str, *, stream: bool = False, **options: Any) -> Any:
        """A data frame of a topic's records; options of the source, with `__` for dots in their names."""
        reader = self.session.readStream if stream else self.session.read
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.address)
        for key, value in options.items():
            reader = reader.option(key.replace("__", "."), value)
        return reader.option("subscribe", topic).option("includeHeaders", "true").load()

    def read(self, topic: str, **options: Any) -> list[Record]:
        """All records of a topic, or those that the options select."""
        rows = self.source(topic, **options).orderBy("partition", "offset").collect()
        return [Record(row.partition, row.offset, round(row.timestamp.timestamp() * 1000), _bytes(row.key), _bytes(row.value),
                       tuple((header.key, _bytes(header.value)) for header in row.headers or ())) for row in rows]

    def write(self, topic: str, records: Sequence[Record], **options: object) -> list[Record]:
        """Write records in order; returns them without timestamps, which Spark cannot set."""
        rows = [(record.key, record.value, list(record.headers) or None, record.partition) for record in records]
        frame = self.session.createDataFrame(rows, _COLUMNS).coalesce(1)
        self.sink(frame.write, topic, **options).save()
        return [record._replace(timestamp=ANY_TIME) for record in records]

    def sink(self, writer: Any, topic: str, **options: object) -> Any:
        """A writer of a frame or a stream, into a topic."""
        writer = writer.format("kafka").option("kafka.bootstrap.servers", self.address).option("topic", topic)
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        return writer.option("includeHeaders", "true")

    def close(self) -> None:
        """End the session."""
        self.session.stop()


def offsets(topic: str, by_partition: dict[int, int]) -> str:
    """Offsets as the source's options need them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in by_partition.items()}})


def _settings(place: Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, cache.jars(cache.SPARK))), "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(place / "local"), "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.streaming.pollingDelay": "50ms",
    }  # fmt: skip


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
