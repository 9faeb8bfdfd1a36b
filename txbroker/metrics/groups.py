"""Groups: how many in which state, what they have committed, and how far behind they are, under kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from txbroker.groups.group_states import GroupState
from txbroker.metrics.families import Piece, Sample, gathered, gauge, gauges, labels
from txbroker.metrics.watched import Watched


def states(watched: Watched) -> Iterator[Piece]:
    """kafka.coordinator.group:type=GroupMetadataManager."""
    hosted = list(watched.coordinator.groups())
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    yield from gauge(f"{prefix}_numgroups", "Groups that this broker coordinates", len(hosted))
    yield from gauge(f"{prefix}_numoffsets", "Offsets that they have committed", sum(len(one.offsets) for one in hosted))
    counts = Counter(one.group.state for one in hosted)
    for state in GroupState:
        yield from gauge(f"{prefix}_numgroups{state.value.lower()}", f"Groups in the state {state.value}", counts[state])


def consumers(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """Committed offsets and lag of each group, in partitions that are here, up to the high watermark."""
    hosted = sorted(watched.coordinator.groups(), key=lambda one: one.group.group_id)
    members = [(labels(consumergroup=one.group.group_id), len(one.group.roster)) for one in islice(hosted, labels_max)]
    yield from gauges("kafka_consumergroup_members", "Members of a group", members)
    every = (_Committed(one.group.group_id, *place, offset.offset) for one in hosted for place, offset in sorted(one.offsets))
    offsets: list[tuple[_Committed, int]] = []
    yield from gathered(((committed, committed.offset) for committed in islice(every, labels_max)), offsets)
    lags = [(committed, lag) for committed, _ in offsets if (lag := _lag(watched, committed)) is not None]
    for name, documentation, values in (
        ("current_offset", "The offset that a group has committed", offsets),
        ("lag", "Records between what a group has committed and the high watermark", lags),
    ):
        yield from gauges(f"kafka_consumergroup_{name}", documentation, ((committed.labels, value) for committed, value in values))
        sums: Counter[str] = Counter()
        for committed, value in values:
            sums[labels(consumergroup=committed.group, topic=committed.topic)] += value
        yield from gauges(f"kafka_consumergroup_{name}_sum", f"{documentation}, all partitions of a topic together", sums.items())


class _Committed(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int

    @property
    def labels(self) -> str:
        return labels(consumergroup=self.group, topic=self.topic, partition=str(self.partition))


def _lag(watched: Watched, committed: _Committed) -> int | None:
    """Of a partition that is here."""
    partition = watched.replicas.find(committed.topic, committed.partition)
    return None if partition is None or committed.offset < 0 else max(partition.high_watermark - committed.offset, 0)


def left_out(watched: Watched, labels_max: int) -> list[Sample]:
    """How many groups and committed offsets are too many to be told each on its own."""
    hosted = list(watched.coordinator.groups())
    counts = {"group": len(hosted), "committed_offset": sum(len(one.offsets) for one in hosted)}
    return [(labels(kind=kind), max(count - labels_max, 0)) for kind, count in counts.items()]
