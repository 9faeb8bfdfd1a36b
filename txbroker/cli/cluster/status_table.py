"""The status of a cluster for people: a table that is printed again and again on a terminal, or lines about what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from txbroker.cli.cluster.cluster_status import NO_BROKER, ClusterStatus, PartitionStatus
from txbroker.cli.tables import table
from txbroker.names import INTERNAL_TOPICS, amount

_BROKERS = ("BROKER", "ADDRESS", "STATE", "LEADS", "REPLICAS", "IN SYNC", "BEHIND")
_PARTITIONS = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "BEHIND")
_FEWEST_ROWS = 3


def table_lines(status: ClusterStatus, states: Mapping[int, str], addresses: Mapping[int, str], width: int, height: int) -> list[str]:
    """At most `height` lines, if the terminal is not very low. `states` and `addresses` are those of the brokers, by their ids.

    Partitions that are out of sync come first, internal topics last; what does not fit is counted.
    """
    brokers = [_broker_row(status, broker_id, state, addresses[broker_id]) for broker_id, state in states.items()]
    lines = [*table(_BROKERS, brokers, width), ""]
    ordered = sorted(status.partitions, key=lambda each: (each.in_sync, each.topic in INTERNAL_TOPICS, each.topic, each.partition))
    room = max(height - len(lines) - 2, _FEWEST_ROWS)
    if not ordered:
        return [*lines, "no topics yet"]
    lines += table(_PARTITIONS, [_partition_row(each) for each in ordered[:room]], width)
    rest = ordered[room:]
    if rest:
        broken = sum(not each.in_sync for each in rest)
        lines.append(f"and {amount(len(rest), 'more partition')}, " + (f"{broken} of them out of sync" if broken else "all in sync"))
    return lines


def changes(before: ClusterStatus, before_states: Mapping[int, str], status: ClusterStatus, states: Mapping[int, str]) -> Iterator[str]:
    """A line for each broker, for the controller and for each topic that changed."""
    for broker_id, state in states.items():
        if before_states.get(broker_id) != state:
            yield f"broker {broker_id}: {state}"
    if status.controller != before.controller:
        yield "there is no controller" if status.controller == NO_BROKER else f"broker {status.controller} is the controller"
    if not status.answering:
        return
    old, new = _summaries(before.partitions), _summaries(status.partitions)
    for topic, text in new.items():
        if old.get(topic) != text:
            yield f"{topic}: {text}"
    yield from (f"{topic}: deleted" for topic in old if topic not in new and before.answering)


def _summaries(partitions: Sequence[PartitionStatus]) -> dict[str, str]:
    by_topic: dict[str, list[PartitionStatus]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each)
    return {topic: _summary(parts) for topic, parts in by_topic.items()}


def _summary(partitions: Sequence[PartitionStatus]) -> str:
    leaders = Counter(each.leader for each in partitions)
    texts = [f"{count} on {'no broker' if leader == NO_BROKER else f'broker {leader}'}" for leader, count in sorted(leaders.items())]
    behind = [f"{each.partition} (ISR {_ids(each.isr)} of {_ids(each.replicas)})" for each in partitions if not each.in_sync]
    shown = ", ".join(behind[:_FEWEST_ROWS]) + (", ..." if len(behind) > _FEWEST_ROWS else "")
    in_sync = f"{len(behind)} out of sync: {shown}" if behind else "all in sync"
    return f"{amount(len(partitions), 'partition')}, leaders: {', '.join(texts)}; {in_sync}"


def _broker_row(status: ClusterStatus, broker_id: int, state: str, address: str) -> list[str]:
    own = [each for each in status.partitions if broker_id in each.replicas]
    behind = sum(each.behind.get(broker_id, 0) for each in own)
    state = f"{state}, controller" if broker_id == status.controller and broker_id in status.answering else state
    counts = sum(each.leader == broker_id for each in own), len(own), sum(broker_id in each.isr for each in own), behind
    return [str(broker_id), address, state, *map(str, counts)]


def _partition_row(each: PartitionStatus) -> list[str]:
    behind = ", ".join(f"{broker_id}: {count}" for broker_id, count in sorted(each.behind.items()) if count)
    leader = "none" if each.leader == NO_BROKER else str(each.leader)
    return [each.topic, str(each.partition), leader, _ids(each.replicas), _ids(sorted(each.isr)), behind]


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"
