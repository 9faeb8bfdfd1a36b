"""Partitions that are not cleaned because their last passes failed: until the next round, or as uncleanable until their logs change.

Kafka's cleaner keeps a partition uncleanable until the broker restarts. Here the mark also ends when the log is truncated, loses segments
at its start, or moves to another directory, and when an operator requests a cleaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from txbroker.log.log import Log
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")

CRASHES_MAX = 2


class _Uncleanable(NamedTuple):
    """The reason, and the state of the log when it was marked."""

    reason: str
    log: Log
    generation: int
    first_offset: int

    def holds_for(self, candidate: Log) -> bool:
        first = candidate.segments[0].base_offset
        return candidate is self.log and (candidate.generation, first) == (self.generation, self.first_offset)


class FailedPartitions:
    """For the reactor's thread only."""

    def __init__(self) -> None:
        self._uncleanable: dict[TopicPartition, _Uncleanable] = {}
        self._crashes: dict[TopicPartition, int] = {}  # workers in a row that crashed or hung
        self._backing_off: set[TopicPartition] = set()

    def back_off(self, topic_partition: TopicPartition) -> None:
        """Do not clean a partition again before the next round."""
        self._backing_off.add(topic_partition)

    def backs_off(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition waits for the next round."""
        return topic_partition in self._backing_off

    def begin_round(self, exists: Callable[[TopicPartition], bool]) -> None:
        """End all backoffs, and forget partitions that have no log here any more."""
        self._backing_off.clear()
        for topic_partition in self._uncleanable.keys() | self._crashes.keys():
            if not exists(topic_partition):
                self.clear(topic_partition)

    def mark_uncleanable(self, bad: Log, reason: str) -> None:
        """Do not clean a log until it changes."""
        log.error("%s is uncleanable until its log changes or an operator requests a cleaning: %s", bad.topic_partition, reason)
        self._uncleanable[bad.topic_partition] = _Uncleanable(reason, bad, bad.generation, bad.segments[0].base_offset)

    def worker_lost(self, candidate: Log, reason: str) -> None:
        """A worker crashed or hung while it cleaned a log; after CRASHES_MAX of them in a row the log is uncleanable."""
        crashes = self._crashes[candidate.topic_partition] = self._crashes.get(candidate.topic_partition, 0) + 1
        if crashes >= CRASHES_MAX:
            self.mark_uncleanable(candidate, f"{crashes} workers in a row crashed or hung while they cleaned it; the last one: {reason}")

    def why_uncleanable(self, candidate: Log) -> str | None:
        """The reason why a log is uncleanable; None when it is not."""
        found = self._uncleanable.get(candidate.topic_partition)
        if found is None:
            return None
        if not found.holds_for(candidate):
            del self._uncleanable[candidate.topic_partition]
            return None
        return found.reason

    def clear(self, topic_partition: TopicPartition) -> None:
        """A pass succeeded, or an operator requests another one."""
        self._crashes.pop(topic_partition, None)
        self._uncleanable.pop(topic_partition, None)
        self._backing_off.discard(topic_partition)

    def uncleanable(self) -> list[TopicPartition]:
        """The partitions that are marked, including those whose logs have changed since."""
        return list(self._uncleanable)
