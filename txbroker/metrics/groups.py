"""Groups: how many in which state, what they have committed, and how far behind they are, under kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from txbroker.groups.states import GroupState
from txbroker.metrics.families import Piece, Sample, gauge, gauges
from txbroker.metrics.watched import Watched


def states(watched: Watched) -> Iterator[Piece]:
    """kafka.coordinator.group:type=GroupMetadataManager."""
    held = list(watched.coordinator.held())
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    yield from gauge(f"{prefix}_numgroups", "Groups that this broker coordinates", len(held))
    yield from gauge(f"{prefix}_numoffsets", "Offsets that they have committed", sum(len(one.offsets) for one in held))
    counts = Counter(one.group.state for one in held)
    for state in GroupState:
        yield from gauge(f"{prefix}_numgroups{state.value.lower()}", f"Groups in the state {state.value}", counts[state])


def consumers(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """Committed offsets and lag of each group, in partitions that are here, up to the high watermark."""
    held = sorted(watched.coordinator.held(), key=lambda one: one.group.group_id)
    members = [({"consumergroup": one.group.group_id}, len(one.group.roster)) for one in islice(held, labels_max)]
    yield from gauges("kafka_consumergroup_members", "Members of a group", members)
    committed = (
        ({"consumergroup": one.group.group_id, "topic": topic, "partition": str(index)}, offset.offset, watched.replicas.find(topic, index))
        for one in held
        for (topic, index), offset in sorted(one.offsets)
    )
    rows = list(islice(committed, labels_max))
    offsets: list[Sample] = [(labels, offset) for labels, offset, _ in rows]
    yield from gauges("kafka_consumergroup_current_offset", "The offset that a group has committed", offsets)
    lags: list[Sample] = [
        (labels, max(partition.high_watermark - offset, 0)) for labels, offset, partition in rows if partition is not None and offset >= 0
    ]
    yield from gauges("kafka_consumergroup_lag", "Records between what a group has committed and the high watermark", lags)
    for name, documentation, samples in (
        ("kafka_consumergroup_current_offset_sum", "The offsets that a group has committed in a topic, together", offsets),
        ("kafka_consumergroup_lag_sum", "What a group lags behind in a topic, all partitions together", lags),
    ):
        sums: Counter[tuple[str, str]] = Counter()
        for labels, value in samples:
            sums[labels["consumergroup"], labels["topic"]] += int(value)
        told: list[Sample] = [({"consumergroup": group, "topic": topic}, total) for (group, topic), total in sums.items()]
        yield from gauges(name, documentation, told)


def left_out(watched: Watched, labels_max: int) -> list[Sample]:
    """How many groups and committed offsets are too many to be told each on its own."""
    held = list(watched.coordinator.held())
    counts = {"group": len(held), "committed_offset": sum(len(one.offsets) for one in held)}
    return [({"kind": kind}, max(count - labels_max, 0)) for kind, count in counts.items()]
