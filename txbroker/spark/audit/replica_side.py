"""Two replicas of partitions as the sides of an audit, by their log directories. No broker needs to run.

What must be equal, in each partition:

- From the larger log start offset on, up to the smaller high watermark (of the checkpoint; the log end offset if that has none).
- From the larger cleaner checkpoint on, all records: also those of aborted and open transactions, and transaction markers.
- Below it, the committed records that both have. A replica may lack one only below its own cleaner checkpoint, and only if there is a
  later record of the key below that checkpoint, or the record is a tombstone.

Records below the log start offset of one of them, and above the high watermark of one of them, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.names import amount
from txbroker.spark import segment_source
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules, with_ranges
from txbroker.spark.compaction.facts import POLICY, rules_of_places
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.partition_directories import (
    Place,
    clean_ends_of_places,
    ends_of_places,
    find_places,
    has_only_grown,
    high_watermarks,
    segment_sizes,
)
from txbroker.spark.snapshot import PartitionOffsets, Snapshot, TopicSnapshot
from txbroker.spark.spark_failures import DAMAGED
from txbroker.wire.records import INT64_MAX

_PLACED = ("topic", "partition", "offset", "timestamp_ms", "segment", "position", "problem")
_READ = (*_PLACED, "key", "value", "headers")
_ADVICE = "; see `txbroker log verify`, and compare again after a repair."
_KINDS = {"committed": {"isolationLevel": "read_committed"}, "all": {"isolationLevel": "read_uncommitted", "controlRecords": "true"}}


class Offsets(NamedTuple):
    """Of a partition of a replica. `end`: the high watermark if it is known. `clean_end`: up to where the cleaner has come."""

    log_start: int
    end: int
    clean_end: int
    has_high_watermark: bool


class ReplicaFiles:
    """The partitions in the log directories of one broker, as they are now. BadUsage, CommandFailed."""

    def __init__(self, spark: Any, log_dirs: str, topics: Sequence[str], include: str | None, flag: str) -> None:
        self._spark = spark
        self._log_dirs = log_dirs
        places = find_places(log_dirs, topics, include, flag)
        self.places = {(place.topic, place.partition): place for place in places}
        if len(self.places) < len(places):
            raise BadUsage(f"{flag} has several directories of one partition; specify log.dirs of one broker")
        copies = [place.path for place in places if not place.data]
        if copies:
            raise CommandFailed(f"{flag} names the partition {copies[0]} without the checkpoints of a log directory; specify log.dirs")
        self._sizes = segment_sizes(places)
        ends, watermarks, clean_ends = ends_of_places(spark, places), high_watermarks(places), clean_ends_of_places(places)
        self.offsets: dict[Key, Offsets] = {}
        for key, place in self.places.items():
            found, watermark = ends[place.key], watermarks.get(place.key)
            end = found.log_end if watermark is None else watermark
            self.offsets[key] = Offsets(min(found.log_start, end), end, clean_ends[place.key], watermark is not None)
        self.name = ", ".join(dict.fromkeys(place.replica for place in places))

    def of_topic(self, topic: str) -> list[Place]:
        """The partitions of a topic."""
        return [place for (name, _), place in self.places.items() if name == topic]

    def records(self, ranges: Iterable[OffsetRange], columns: Sequence[str], what: str) -> Any:
        """The records of these ranges, `what` of `_KINDS`. A damaged range in them fails the job."""
        some = list(ranges)
        offsets: dict[str, dict[str, Sequence[int]]] = {}
        for one in some:
            offsets.setdefault(one.topic, {})[str(one.partition)] = (one.start, one.end)
        found = segment_source.read(self._spark, self._log_dirs, offsets, columns=columns, damage="report", **_KINDS[what])
        problem = f"concat('{DAMAGED}', segment, ' is damaged at position ', position, ': ', problem, '{_ADVICE}')"
        # In one expression with the range, so that Spark does not evaluate it for damage outside of the range.
        inside = "offset >= start AND offset < end"
        checked = f"CASE WHEN problem IS NULL OR NOT ({inside}) THEN {inside} ELSE CAST(raise_error({problem}) AS BOOLEAN) END"
        return with_ranges(self._spark, found, some).where(checked).drop("start", "end")

    def check_unchanged(self) -> None:
        """CommandFailed if a broker has cleaned or deleted segments meanwhile."""
        now = segment_sizes(list(self.places.values()))
        for path, before in self._sizes.items():
            if not has_only_grown(before, now[path]):
                raise CommandFailed(f"a broker has cleaned or expired {path} during the audit, which can show as differences; "
                                    "run this again, stop the broker before, or audit a snapshot of the file system")


class Replicas:
    """The log directories of two brokers, and what of their partitions is compared."""

    def __init__(self, spark: Any, log_dirs: str, against: str, topics: Sequence[str], include: str | None) -> None:
        self.written = ReplicaFiles(spark, log_dirs, topics, include, "--log-dir")
        self.delivered = ReplicaFiles(spark, against, topics, include, "--against-log-dir")
        self.common = sorted(self.written.places.keys() & self.delivered.places.keys())
        if not self.common:
            raise CommandFailed("the log directories have no partition in common; correct --log-dir or --against-log-dir")
        self.rules = self._rules()

    def _rules(self) -> TopicRules:
        """The strategy of the topics; CommandFailed if they differ, or the sides are of different topics."""
        orders: dict[CompactionOrder, str] = {}
        for topic in dict.fromkeys(topic for topic, _ in self.common):
            # Apache Kafka stores configurations elsewhere, and compacts by offset.
            one, other = (rules_of_places(files.of_topic(topic), {POLICY: "compact"})[topic] for files in (self.written, self.delivered))
            if one.topic_id and other.topic_id and one.topic_id != other.topic_id:
                raise CommandFailed(f"topic {topic} has the id {one.topic_id} in {self.written.name}, and {other.topic_id} in "
                                    f"{self.delivered.name}: these are different topics; correct --log-dir or --against-log-dir")
            orders[max(one.order, other.order, key=lambda order: order != CompactionOrder.of_topic("offset", ""))] = topic
        if len(orders) > 1:
            first, second, *_ = orders.values()
            raise CommandFailed(f"topics {first} and {second} have different compaction strategies; audit them in separate runs")
        return TopicRules(frozenset(), *orders)

    def clean_end(self, key: Key) -> int:
        """Up to where the cleaner of one of them has come."""
        return max(self.written.offsets[key].clean_end, self.delivered.offsets[key].clean_end)

    def records(self, files: ReplicaFiles, ranges: Sequence[OffsetRange], columns: Sequence[str] = _READ) -> Any:
        """Committed records where a cleaner has come, all records elsewhere."""
        from pyspark.sql import DataFrame

        split: dict[str, list[OffsetRange]] = {"committed": [], "all": []}
        for one in ranges:
            border = min(max(self.clean_end((one.topic, one.partition)), one.start), one.end)
            split["committed"].append(one._replace(end=border))
            split["all"].append(one._replace(start=border))
        parts = [(what, [one for one in some if one.size > 0]) for what, some in split.items()]
        return reduce(DataFrame.unionByName, [files.records(some, columns, what) for what, some in parts if some])

    def not_checked(self) -> list[str]:
        """What the audit says nothing about; sentences."""
        sentences = []
        for files, other in ((self.written, self.delivered), (self.delivered, self.written)):
            alone = sorted(files.places.keys() - other.places.keys())
            if alone:
                sentences.append(f"{amount(len(alone), 'partition')} that only {files.name} has, the first is {alone[0][0]}-{alone[0][1]}")
            unknown = [key for key in self.common if not files.offsets[key].has_high_watermark]
            if unknown:
                sentences.append(f"high watermarks of {amount(len(unknown), 'partition')} of {files.name}, which are in no checkpoint: the "
                                 "log end offset was taken instead")
            deleted = sum(max(other.offsets[key].log_start - files.offsets[key].log_start, 0) for key in self.common)
            if deleted:
                sentences.append(f"{amount(deleted, 'offset')} below the log start offsets of {other.name}, which {files.name} has still")
        return sentences

    def check_unchanged(self) -> None:
        """CommandFailed if a broker has cleaned or deleted segments meanwhile."""
        self.written.check_unchanged()
        self.delivered.check_unchanged()


class WrittenReplica:
    """The replica that the other one is compared with."""

    source = None

    def __init__(self, spark: Any, replicas: Replicas) -> None:
        self._spark = spark
        self._replicas = replicas
        topics = ", ".join(dict.fromkeys(topic for topic, _ in replicas.common))
        self.name = f"{topics} in {replicas.written.name}"

    def snapshot(self) -> Snapshot:
        """The offsets of the partitions that both have."""
        topics: dict[str, dict[int, PartitionOffsets]] = {}
        for topic, index in self._replicas.common:
            found = self._replicas.written.offsets[topic, index]
            topics.setdefault(topic, {})[index] = PartitionOffsets(found.log_start, found.end, found.end)
        return Snapshot("", [TopicSnapshot(topic, "", partitions) for topic, partitions in topics.items()])

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """Its records."""
        return self._replicas.records(self._replicas.written, ranges)

    def since(self, timestamp_ms: int) -> Mapping[Key, int]:
        """By the records' timestamps."""
        offsets = self._replicas.written.offsets
        ranges = [OffsetRange(*key, offsets[key].log_start, offsets[key].end) for key in self._replicas.common]
        found = {(one.topic, one.partition): one.end for one in ranges}
        some = [one for one in ranges if one.size > 0]
        if some:
            late = self._replicas.records(self._replicas.written, some, _PLACED).where(f"timestamp_ms >= {timestamp_ms}L")
            found |= {(row[0], row[1]): row[2] for row in late.groupBy("topic", "partition").agg({"offset": "min"}).collect()}
        return found

    def rules(self) -> TopicRules:
        """What the replicas lack is explained by the cleaners' checkpoints, and not by the topics' configurations."""
        return self._replicas.rules

    def command(self, topic: str, partition: int, offset: int) -> str:
        """`txbroker log extract`."""
        return _command(self._replicas.written, topic, partition, offset)


class DeliveredReplica:
    """The replica that is compared."""

    kind = "replica"
    same_offsets = True
    group = None
    latest_by = None

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.name = replicas.delivered.name

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """What both have, up to the smaller high watermark."""
        spans = {}
        for topic in snapshot.topics:
            for index, there in topic.partitions.items():
                found = self._replicas.delivered.offsets[topic.name, index]
                end = min(there.end, found.end)
                both = OffsetRange(topic.name, index, min(max(there.log_start, found.log_start), end), end)
                spans[topic.name, index] = Span(both, max(there.end, end), both)
        return spans

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """Its records."""
        return self._replicas.records(self._replicas.delivered, ranges)

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """The same offsets."""
        return written

    def rules(self, written: TopicRules) -> TopicRules:
        """The same topics."""
        return written

    def command(self, topic: str, partition: int, offset: int) -> str:
        """`txbroker log extract`."""
        return _command(self._replicas.delivered, topic, partition, offset)


def _command(files: ReplicaFiles, topic: str, partition: int, offset: int) -> str:
    end = "" if offset == INT64_MAX else f" --to-offset {offset + 1}"
    return f"txbroker log extract {files.places[topic, partition].path} --from-offset {offset}{end}"
