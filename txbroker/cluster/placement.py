"""Replica placement for new partitions: Kafka's round robin (class `AdminUtils`), with and without racks.

First replicas are assigned round robin from a random start, so that leaders are spread evenly. The other replicas follow at a shift that
grows by one each time that the first replicas have gone round once, so that the partitions of one leader have their followers on
different brokers. With racks, the brokers are first put in an order that alternates between racks, and a partition takes no second
replica in a rack before it has one in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from txbroker.errors import BrokerError, ErrorCode


def place(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    random: Random,
    *,
    first_partition: int = 0,
    after_leader: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """The replicas of `partition_count` partitions, numbered from `first_partition`; each on `replication_factor` different brokers.

    `brokers` are the live ones with their racks. For partitions that are added, `after_leader` is the first replica of partition 0: its
    place among the brokers in the order of their ids, also if there are racks (as in Kafka's AdminZkClient), takes the place of the random
    start. INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR; INVALID_REPLICATION_ASSIGNMENT if only some brokers have a rack.
    """
    _check(len(brokers), partition_count, replication_factor)
    racks = {broker: rack for broker, rack in sorted(brokers.items()) if rack is not None}
    if racks and len(racks) < len(brokers):
        raise _without_rack(sorted(brokers.keys() - racks.keys()))
    order = _alternating(racks) if racks else sorted(brokers)
    if after_leader is None:
        start, shift = random.randrange(len(order)), random.randrange(len(order))
    else:
        start = shift = next((i for i, broker in enumerate(sorted(brokers)) if broker >= after_leader), 0)
    placed: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        placed[partition] = _replicas(order, racks, (partition + start) % len(order), shift, replication_factor)
    return placed


def _check(broker_count: int, partition_count: int, replication_factor: int) -> None:
    if partition_count <= 0:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, "The number of partitions must be at least 1.")
    if replication_factor <= 0:
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must be at least 1.")
    if replication_factor > broker_count:
        message = f"The replication factor is {replication_factor}, but the number of available brokers is {broker_count}."
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _without_rack(brokers: list[int]) -> BrokerError:
    """Kafka refuses this, too, though with UNKNOWN_SERVER_ERROR: replicas that ignore racks would have to be moved later."""
    message = (
        f"Not all brokers have rack information for replica rack aware assignment: set broker.rack of brokers {brokers}, "
        "or specify the replicas of each partition."
    )
    return BrokerError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, message)


def _replicas(order: list[int], racks: Mapping[int, str], first: int, shift: int, count: int) -> tuple[int, ...]:
    """The brokers of one partition: `order[first]`, then those at growing distances, from `shift` on, that fit."""
    replicas = [order[first]]
    racks_used = {racks.get(order[first])}
    rack_count = max(1, len(set(racks.values())))
    distance = shift * rack_count
    while len(replicas) < count:
        broker = order[(first + 1 + distance % (len(order) - 1)) % len(order)]
        distance += 1
        new_rack = racks.get(broker) not in racks_used or len(racks_used) == rack_count
        if broker not in replicas and new_rack:
            replicas.append(broker)
            racks_used.add(racks.get(broker))
    return tuple(replicas)


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order that takes one of each rack in turn: racks a {0, 1}, b {2, 3} give 0 2 1 3."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in racks.items():
        by_rack.setdefault(rack, []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]
