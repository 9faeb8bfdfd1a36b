"""Which offsets a job has to read: those of the snapshot that its table does not have yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed
from txbroker.names import amount
from txbroker.spark.snapshot import Snapshot


class WrongData(CommandFailed):
    """The data, not the command, is wrong: exit status 1."""


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.end - self.start


class TableOffsets(NamedTuple):
    """What a table has of a cluster's topics. `offsets`: by topic and partition, the offset after the last one that was loaded."""

    cluster_id: str
    topic_ids: Mapping[str, str]
    offsets: Mapping[str, Mapping[int, int]]

    @property
    def version(self) -> int:
        """A number that grows with every load: the sum of all end offsets."""
        return sum(end for partitions in self.offsets.values() for end in partitions.values())

    def ids(self) -> dict[str, Any]:
        """The ids of the cluster and of the topics."""
        return {"cluster_id": self.cluster_id, "topic_ids": dict(self.topic_ids)}

    def after(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> TableOffsets:
        """The same with these ranges loaded."""
        offsets = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for one in ranges:
            offsets.setdefault(one.topic, {})[one.partition] = one.end
        return TableOffsets(self.cluster_id, {**self.topic_ids, **topic_ids}, offsets)


class Plan(NamedTuple):
    """`ranges`: what is to be read. `expired`: what the table lacks and the broker has deleted, with `--on-expired skip`."""

    ranges: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]


def plan(snapshot: Snapshot, table: TableOffsets | None, *, skip_expired: bool, can_rebase: bool = False) -> Plan:
    """The ranges to read. A partition that the table does not have yet begins at the first offset that the broker has.

    `can_rebase`: whether the job has the flag --rebase.

    CommandFailed for a table of another cluster or topic, and for offsets that are gone; WrongData for a log that became shorter.
    """
    rebase = "; --rebase continues if the same offsets have the same records" if can_rebase else ""
    if table is not None and table.cluster_id != snapshot.cluster_id:
        raise CommandFailed(f"the table has data of the cluster {table.cluster_id}, and this is {snapshot.cluster_id}; "
                            f"correct --bootstrap-server, or specify another --table{rebase}")
    ranges, expired = [], []
    for topic in snapshot.topics:
        known = {} if table is None else table.offsets.get(topic.name, {})
        loaded_id = None if table is None else table.topic_ids.get(topic.name)
        if loaded_id is not None and loaded_id != topic.topic_id:
            raise CommandFailed(f"topic {topic.name} was deleted and created again: the table has data of the topic id {loaded_id}, and "
                                f"the topic has {topic.topic_id}, with new offsets; specify another --table{rebase}")
        lost = sorted(known.keys() - topic.partitions.keys())
        if lost:
            raise WrongData(f"topic {topic.name} has no partition {lost[0]}, of which the table has offsets; look at the brokers' logs")
        for index, found in sorted(topic.partitions.items()):
            start = known.get(index, found.log_start)
            if found.high_watermark < start:
                raise WrongData(f"{topic.name}-{index} ends at offset {found.high_watermark}, and the table has it up to {start}: "
                                "the log lost records; compare with `txbroker get-offsets`, and look at the brokers' logs")
            if start < found.log_start:
                if not skip_expired:
                    raise CommandFailed(f"{topic.name}-{index} begins at offset {found.log_start}, and the table has it up to {start}: "
                                        f"deleted before they were read: {amount(found.log_start - start, 'offset')}; "
                                        "--on-expired skip goes on without them")
                expired.append(OffsetRange(topic.name, index, start, found.log_start))
                start = found.log_start
            if start < found.end:
                ranges.append(OffsetRange(topic.name, index, start, found.end))
    return Plan(ranges, expired)
