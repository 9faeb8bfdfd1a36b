"""Limits for the traffic of reassignments, as dynamic configurations of brokers and topics (KIP-73)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txbroker.cli.configs import Entity, alter
from txbroker.cli.ongoing_reassignments import Ongoing
from txbroker.cli.results import Results
from txbroker.names import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")  # bytes per second
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class Moves:
    """Which brokers reassignments copy from and to: `sources` and `destinations` of each partition.

    Reassignments in progress are included: the list of throttled replicas of a topic replaces the one before it.
    """

    def __init__(
        self,
        targets: Mapping[TopicPartition, Sequence[int]],
        replicas: Mapping[TopicPartition, Sequence[int]],
        ongoing: Mapping[TopicPartition, Ongoing],
    ) -> None:
        self.sources: dict[TopicPartition, set[int]] = {}
        self.destinations: dict[TopicPartition, set[int]] = {}
        for partition in {*targets, *ongoing}:
            running = ongoing[partition] if partition in ongoing else Ongoing(replicas[partition], (), ())
            sources = set(running.replicas) - set(running.adding)
            self.sources[partition] = sources
            self.destinations[partition] = {*targets.get(partition, ()), *running.adding} - sources

    @property
    def brokers(self) -> list[int]:
        """All of these brokers."""
        return sorted({broker for moves in (self.sources, self.destinations) for brokers in moves.values() for broker in brokers})


def limit(admin: Any, shown: Results, moves: Moves, rate: int) -> None:
    """Limit the traffic of the moves, to and from each broker, to so many bytes per second."""
    for key, brokers_of in ((LEADERS, moves.sources), (FOLLOWERS, moves.destinations)):
        by_topic: dict[str, list[str]] = defaultdict(list)
        for partition, brokers in sorted(brokers_of.items()):
            by_topic[partition.topic] += [f"{partition.partition}:{broker}" for broker in sorted(brokers)]
        for topic, replicas in by_topic.items():
            alter(admin, Entity("topics", topic), {key: ",".join(replicas)})
    for broker in moves.brokers:
        alter(admin, Entity("brokers", str(broker)), dict.fromkeys(RATES, str(rate)))
    _say(shown, f"The inter-broker throttle limit was set to {rate} B/s")


def limit_directories(admin: Any, shown: Results, brokers: Iterable[int], rate: int) -> None:
    """Limit the moves between log directories of these brokers."""
    for broker in sorted(set(brokers)):
        alter(admin, Entity("brokers", str(broker)), {DIRECTORY_RATE: str(rate)})
    _say(shown, f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear(admin: Any, shown: Results, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Remove all of these limits from brokers and topics."""
    for what, entities, keys in (
        ("broker", [Entity("brokers", str(broker)) for broker in sorted(set(brokers))], (*RATES, DIRECTORY_RATE)),
        ("topic", [Entity("topics", topic) for topic in sorted(set(topics))], (LEADERS, FOLLOWERS)),
    ):
        if entities:
            several = "s" if len(entities) > 1 else ""
            _say(shown, f"Clearing {what}-level throttles on {what}{several} {','.join(entity.name for entity in entities)}")
        for entity in entities:
            alter(admin, entity, dict.fromkeys(keys))


def _say(shown: Results, sentence: str) -> None:
    if not shown.as_json:
        shown.line(sentence)
