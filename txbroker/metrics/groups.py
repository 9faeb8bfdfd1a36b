"""Metrics of groups: their states, committed offsets and lag, with the names of kafka_exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from txbroker.groups.group_states import GroupState
from txbroker.metrics.families import Piece, Sample, gathered, gauge, gauges, labels
from txbroker.metrics.sources import MetricSources


def states(sources: MetricSources) -> Iterator[Piece]:
    """kafka.coordinator.group:type=GroupMetadataManager."""
    hosted = list(sources.coordinator.groups())
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    yield from gauge(f"{prefix}_numgroups", "Groups that this broker coordinates", len(hosted))
    yield from gauge(f"{prefix}_numoffsets", "Committed offsets of all groups", sum(len(one.offsets) for one in hosted))
    counts = Counter(one.group.state for one in hosted)
    for state in GroupState:
        yield from gauge(f"{prefix}_numgroups{state.value.lower()}", f"Groups in state {state.value}", counts[state])


def consumers(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """Committed offsets of each group, and its lag in partitions on this broker."""
    hosted = sorted(sources.coordinator.groups(), key=lambda one: one.group.group_id)
    members = [(labels(consumergroup=one.group.group_id), len(one.group.roster)) for one in islice(hosted, labels_max)]
    yield from gauges("kafka_consumergroup_members", "Members of the group", members)
    every = (_Committed(one.group.group_id, *place, offset.offset) for one in hosted for place, offset in sorted(one.offsets))
    offsets: list[tuple[_Committed, int]] = []
    yield from gathered(((committed, committed.offset) for committed in islice(every, labels_max)), offsets)
    lags = [(committed, lag) for committed, _ in offsets if (lag := _lag(sources, committed)) is not None]
    for name, documentation, values in (
        ("current_offset", "Committed offset of the group", offsets),
        ("lag", "Lag of the group: high watermark minus committed offset", lags),
    ):
        yield from gauges(f"kafka_consumergroup_{name}", documentation, ((committed.labels, value) for committed, value in values))
        sums: Counter[str] = Counter()
        for committed, value in values:
            sums[labels(consumergroup=committed.group, topic=committed.topic)] += value
        yield from gauges(f"kafka_consumergroup_{name}_sum", f"{documentation}, sum of all partitions of the topic", sums.items())


class _Committed(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int

    @property
    def labels(self) -> str:
        return labels(consumergroup=self.group, topic=self.topic, partition=str(self.partition))


def _lag(sources: MetricSources, committed: _Committed) -> int | None:
    """The lag, if the partition is on this broker."""
    partition = sources.replicas.find(committed.topic, committed.partition)
    return None if partition is None or committed.offset < 0 else max(partition.high_watermark - committed.offset, 0)


def left_out(sources: MetricSources, labels_max: int) -> list[Sample]:
    """The number of groups and committed offsets above `labels_max`."""
    hosted = list(sources.coordinator.groups())
    counts = {"group": len(hosted), "committed_offset": sum(len(one.offsets) for one in hosted)}
    return [(labels(kind=kind), max(count - labels_max, 0)) for kind, count in counts.items()]
