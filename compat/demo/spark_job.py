"""`python -m compat.demo.spark_job ADDRESS TOPIC PARTITION:END ...`: reads the topic by Spark's Kafka source and prints the records.

Each record is a line with partition, offset, length of key and of value (-1: null), then both unchanged and a newline.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from tests.support import cache
from tests.support.cache import Missing
from tests.support.java import java


def main(arguments: list[str]) -> int:
    """The exit status: 2, with a message, when Spark is not installed."""
    address, topic, *ends = arguments
    try:
        java()
        jars = cache.jars(cache.SPARK)
        sys.path.append(str(cache.pyspark()))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="txbroker-spark-") as place:
        _print_topic(address, topic, dict(end.split(":") for end in ends), jars, place, sys.stdout.buffer)
    return 0


def _print_topic(address: str, topic: str, ends: dict[str, str], jars: list[Path], place: str, out: BinaryIO) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.local.dir": place,
        "spark.sql.warehouse.dir": place,
    }
    builder = SparkSession.builder.master("local[2]").appName("txbroker-demo")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    frame = (
        session.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: dict.fromkeys(ends, 0)}))
        .option("endingOffsets", json.dumps({topic: {partition: int(end) for partition, end in ends.items()}}))
        .load().select("partition", "offset", "key", "value").orderBy("partition", "offset")
    )
    for row in frame.toLocalIterator():
        sizes = b"%d %d" % (_size(row.key), _size(row.value))
        out.write(b"%d %d %b\n%b%b\n" % (row.partition, row.offset, sizes, row.key or b"", row.value or b""))
    out.flush()
    session.stop()


def _size(data: bytearray | None) -> int:
    return -1 if data is None else len(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
