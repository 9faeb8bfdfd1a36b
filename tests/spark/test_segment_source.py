"""The format `txbroker-segments`: Apache Kafka's sample logs as its own consumer reads them, several replicas, options, a live broker."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cleaner.logs import NOW, LogMaker
from tests.spark.kafka_samples import EXPECTED, unpack
from tests.spark.producing import PARTITIONS, produce
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.segment_plan import FORMAT
from txbroker.spark.segment_source import register
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.topic_source import TopicSource


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories that Apache Kafka 3.9.1 wrote."""
    return unpack(tmp_path_factory.mktemp("samples") / "data")


def segments(spark: Any, path: object, **options: object) -> Any:
    register(spark)
    reader = spark.read.format(FORMAT)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def digests(frame: Any) -> dict[str, dict[str, Any]]:
    """As EXPECTED has them, by partition."""
    lines: dict[str, list[str]] = {}
    for row in frame.orderBy("topic", "partition", "offset").collect():
        key, value = ("None" if content is None else bytes(content).hex() for content in (row.key, row.value))
        lines.setdefault(f"{row.topic}-{row.partition}", []).append(f"{row.offset} {row.timestamp_ms} {key} {value}\n")
    return {name: {"records": len(some), "digest": hashlib.sha256("".join(some).encode()).hexdigest()[:16]} for name, some in lines.items()}


@pytest.mark.parametrize(("level", "topics"), [
    ("read_committed", "s-txn,s-compact,s-logappend,s-recompressed"),
    ("read_uncommitted", "s-txn,s-gzip,s-mixed,s-v0-lz4,s-v0-none,s-v1-gzip,s-v1-logappend"),
])  # fmt: skip
def test_the_logs_of_apache_kafka(spark: Any, samples: Path, level: str, topics: str) -> None:
    columns = "topic,partition,offset,timestamp_ms,key,value"
    found = digests(segments(spark, samples, isolationLevel=level, topic=topics, columns=columns))
    expected = {name: one[level] for name, one in EXPECTED.items() if name.rpartition("-")[0] in topics.split(",")}
    assert found == expected


def test_a_task_for_each_segment_and_only_the_wanted_ones(spark: Any, samples: Path) -> None:
    everything = segments(spark, samples, topic="s-segments", columns="offset,segment")
    files = sorted((samples / "s-segments-0").glob("*.log"))
    assert everything.rdd.getNumPartitions() == len(files) > 2
    base = int(files[1].stem)
    one = segments(spark, samples, topic="s-segments", startingOffset=base, endingOffset=base + 2, columns="offset,segment")
    assert one.rdd.getNumPartitions() == 1
    assert [(row.offset, row.segment) for row in one.collect()] == [(base, str(files[1])), (base + 1, str(files[1]))]
    ranges = json.dumps({"s-segments": {"0": [base, base + 1]}, "s-none": {"0": [0, 3]}})
    assert sorted(tuple(row) for row in segments(spark, samples, offsets=ranges, columns="topic,offset").collect()) == [
        *(("s-none", i) for i in range(3)), ("s-segments", base)]
    assert segments(spark, samples, topic="there-is-none").count() == 0


def test_replicas_on_shared_storage(spark: Any, tmp_path: Path) -> None:
    for broker, count in ((1, 3), (2, 2)):
        directory = tmp_path / f"broker-{broker}"
        directory.mkdir()
        log = LogMaker()
        for i in range(count):
            log.data([(b"k", b"value %d" % i, NOW)])
        log.write(directory / "t-0")
        (directory / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        (directory / "meta.properties").write_text("version=0\n")
    frame = segments(spark, f"first={tmp_path}/broker-1,{tmp_path}/broker-2")
    assert sorted((row.replica, row.offset, bytes(row.value)) for row in frame.collect()) == [
        (str(tmp_path / "broker-2"), 1, b"value 1"), ("first", 1, b"value 1"), ("first", 2, b"value 2")]


def test_the_same_rows_as_from_the_broker(spark: Any, broker: Server, name: str) -> None:
    create_topic(broker, name, PARTITIONS)
    produce(broker, name, 300)
    source = TopicSource(broker.address, [name])
    ranges = [(index, found.log_start, found.end) for index, found in source.snapshot().topics[0].partitions.items()]
    columns = ["topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers"]
    files = segments(spark, broker.data, topic=name, columns=",".join(columns))
    fetched = source.records(spark, [OffsetRange(name, *one) for one in ranges])
    assert files.dtypes == fetched.dtypes
    assert files.count() == 300 and files.exceptAll(fetched).count() == 0 and fetched.exceptAll(files).count() == 0


@pytest.mark.parametrize(("options", "problem"), [
    ({"colums": "key"}, "has no option colums; it has path, topic"),
    ({"columns": "kee"}, "no column 'kee'; there are topic"),
    ({"partition": "one"}, "must be a whole number"),
    ({"damage": "skip"}, "must be fail or report"),
    ({"offsets": '{"t": [1]}'}, "must be JSON such as"),
    ({"path": "relative"}, "absolute paths"),
    ({"path": "/etc"}, "is not a log directory"),
])  # fmt: skip
def test_options_are_checked(spark: Any, samples: Path, options: dict[str, str], problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem), spark_failures():
        segments(spark, options.get("path", samples), **{name: value for name, value in options.items() if name != "path"}).count()
