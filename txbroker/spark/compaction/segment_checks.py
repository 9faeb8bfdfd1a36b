"""Segment files against their indexes, and against what the broker delivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.log.os_disk import OsDisk
from txbroker.logtools.findings import Severity
from txbroker.logtools.partition_check import PartitionCheck
from txbroker.names import TopicPartition
from txbroker.spark.checksum import CONTENT
from txbroker.spark.partition_directories import Place

TASKS_MAX = 1024


class FileFault(NamedTuple):
    """A fault in a file of a partition."""

    replica: str
    topic: str
    partition: int
    path: str
    problem: str


class Difference(NamedTuple):
    """Offsets of a partition whose records in the files are not those that the broker delivers."""

    replica: str
    topic: str
    partition: int
    problem: str
    records: int
    first_offset: int


def check_files(spark: Any, places: Sequence[Place], faults_max: int) -> list[FileFault]:
    """The faults in all files of these partitions, at most so many of each; executors read them, a partition a task."""
    tasks = min(len(places), TASKS_MAX)
    rows = spark.sparkContext.parallelize(places, tasks).mapPartitions(_FileFaults(faults_max)).collect()
    return [FileFault(*row) for row in rows]


class _FileFaults:
    """Checks batches, records, offset, time and transaction indexes, snapshots, and leader epochs."""

    def __init__(self, faults_max: int) -> None:
        self._faults_max = faults_max

    def __call__(self, places: Iterable[Place]) -> Iterator[tuple[str, str, int, str, str]]:
        for place in places:
            known = TopicPartition(place.topic, place.partition)
            check = PartitionCheck(OsDisk(), place.path, known, live=place.live, clean=place.clean, advance=lambda size, records: None)
            faults = [one for one in check.run().findings.kept if one.severity is Severity.FAULT]
            for fault in faults[: self._faults_max]:
                where = "" if fault.start is None else f"at position {fault.start}: "
                yield place.replica, place.topic, place.partition, fault.path, where + fault.problem


def compare(files: Any, delivered: Any, replica_of: Mapping[tuple[str, int], str]) -> list[Difference]:
    """Digests of the files and of a broker, for the partitions of which `replica_of` names the leader's replica."""
    from pyspark.sql import functions as f

    spark = files.sparkSession
    chosen = [(topic, partition, replica) for (topic, partition), replica in replica_of.items()]
    leaders = f.broadcast(spark.createDataFrame(chosen, "topic STRING, partition INT, replica STRING"))
    on, first = ["topic", "partition", "offset"], CONTENT[0]
    stored = files.join(leaders, ["topic", "partition", "replica"]).selectExpr(*on, *(f"{name} AS file_{name}" for name in CONTENT))
    sent = delivered.drop("replica").join(leaders, ["topic", "partition"]).selectExpr(*on, *(f"{name} AS sent_{name}" for name in CONTENT))
    differs = " OR ".join(f"file_{name} != sent_{name}" for name in CONTENT)
    problem = (f"CASE WHEN sent_{first} IS NULL THEN 'in the files, and not delivered by the broker' "
               f"WHEN file_{first} IS NULL THEN 'delivered by the broker, and not in the files' "
               f"WHEN {differs} THEN 'different in the files and as delivered' END AS problem")  # fmt: skip
    both = stored.join(sent, on, "full_outer").selectExpr(*on, problem).where("problem IS NOT NULL")
    sums = both.groupBy("topic", "partition", "problem").agg(f.count("*"), f.min("offset"))
    rows = sums.orderBy("topic", "partition", "problem").collect()
    return [Difference(replica_of[row[0], row[1]], row[0], row[1], row[2], row[3], row[4]) for row in rows]
