"""A consumer group for `perf-consume --group`: kafka-python keeps the membership and the offsets, and fetches nothing itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txbroker.cli import clients

KEEP_EVERY_S = 0.1
# kafka-python 3.0.12 forgets an assignment that arrives in the instant in which a poll ends: a long one while it joins.
_JOIN_POLL_MS = 1000


class Membership:
    """A member of a group, subscribed to one topic."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self.joining_ms = 0
        self._consumer = consumer
        self._assigned: set[Any] = set()
        self._next_s = 0.0
        self._without_since_s: float | None = time.monotonic()
        consumer.partitions_for_topic(topic)  # a leader that does not know the partitions yet would assign none of them
        consumer.subscribe([topic])

    def keep(self, offsets: Mapping[int, int], *, joining: bool = False) -> dict[int, int | None] | None:
        """Do what a member has to do now and then; a new assignment as partition → committed offset (None: there is none), if it changed.

        Kafka's time for rebalances is the time from which a consumer waits for partitions until it has them.
        """
        now_s = time.monotonic()
        if not joining and now_s < self._next_s:
            return None
        self._consumer.poll(_JOIN_POLL_MS if joining else 0)
        self._next_s = time.monotonic() + KEEP_EVERY_S
        assigned = set(self._consumer.assignment())
        if assigned:
            self._consumer.pause(*assigned)
        if assigned == self._assigned:
            return None
        fresh = assigned - self._assigned
        self._assigned = assigned
        since_s = self._without_since_s if self._without_since_s is not None else now_s
        self.joining_ms += int((time.monotonic() - since_s) * 1000)
        self._without_since_s = None if assigned else time.monotonic()
        return {
            place.partition: self._consumer.committed(place) if place in fresh else offsets.get(place.partition) for place in assigned
        }

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit what was read, as far as it is still ours; as auto-commit, it does not complain when the group moved on."""
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        ours = {place: OffsetAndMetadata(offsets[place.partition], "", -1) for place in self._assigned if place.partition in offsets}
        try:
            if ours:
                self._consumer.commit(ours)
        except KafkaError:
            pass


@contextmanager
def member(servers: str, topic: str, group: str, client_id: str) -> Iterator[Membership]:
    """Join; leave at the end. CommandFailed as any command of kafka-python's clients."""
    flags = {"group_id": group, "enable_auto_commit": False, "client_id": client_id, "allow_auto_create_topics": False}
    with clients.connected("KafkaConsumer", servers, {}, flags=flags) as consumer:
        yield Membership(consumer, topic)
