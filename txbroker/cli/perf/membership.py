"""A consumer group for `perf-consume --group`: kafka-python keeps the membership and the offsets, and does not fetch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txbroker.cli import clients

KEEP_EVERY_S = 0.1
# kafka-python 3.0.12 drops an assignment that arrives just when a poll ends: polls are long while it joins.
_JOIN_POLL_MS = 1000


class Membership:
    """A member of a group, subscribed to one topic."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self.joining_ms = 0
        self._consumer = consumer
        self._assigned: set[Any] = set()
        self._next_s = 0.0
        self._without_since_s: float | None = time.monotonic()
        consumer.partitions_for_topic(topic)  # without metadata, the group leader would assign no partitions
        consumer.subscribe([topic])

    def keep(self, offsets: Mapping[int, int], *, joining: bool = False) -> dict[int, int | None] | None:
        """Keep the membership alive; call it often. After a new assignment: its partitions with their committed offsets, None without one.

        `joining_ms` counts, as in Kafka's tool, the time from the loss of an assignment to the next one.
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
            each.partition: self._consumer.committed(each) if each in fresh else offsets.get(each.partition) for each in assigned
        }

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of partitions that are still assigned; as with auto-commit, an error is ignored."""
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        ours = {each: OffsetAndMetadata(offsets[each.partition], "", -1) for each in self._assigned if each.partition in offsets}
        try:
            if ours:
                self._consumer.commit(ours)
        except KafkaError:
            pass


@contextmanager
def member(servers: str, topic: str, group: str, client_id: str, security: Mapping[str, str]) -> Iterator[Membership]:
    """Join the group; leave it at the end. `security`: the properties of TLS and SASL. CommandFailed."""
    flags = {"group_id": group, "enable_auto_commit": False, "client_id": client_id, "allow_auto_create_topics": False}
    with clients.connected("KafkaConsumer", servers, security, flags=flags) as consumer:
        yield Membership(consumer, topic)
