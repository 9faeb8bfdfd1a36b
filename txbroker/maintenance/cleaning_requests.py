"""Who waits for a partition to be cleaned: a request may take several passes, and several requests may share them."""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError
from txbroker.log.cleaner.cleaning_status import Totals
from txbroker.names import TopicPartition


@dataclass(slots=True)
class _Asked:
    """Up to where a partition is to be clean, what passes have won since that was first asked for, and who waits."""

    target: int = 0
    totals: Totals = field(default_factory=Totals)
    waiting: list[Deferred[Totals]] = field(default_factory=list)


class Requests:
    """What was asked for and is not done."""

    def __init__(self) -> None:
        self._asked: dict[TopicPartition, _Asked] = {}

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._asked

    def partitions(self) -> list[TopicPartition]:
        """For which somebody waits."""
        return list(self._asked)

    def add(self, topic_partition: TopicPartition, target: int) -> Deferred[Totals]:
        """One more who waits, until the partition is clean up to `target`."""
        asked = self._asked.setdefault(topic_partition, _Asked())
        asked.target = max(asked.target, target)
        done: Deferred[Totals] = Deferred()
        asked.waiting.append(done)
        return done

    def won(self, topic_partition: TopicPartition, totals: Totals) -> None:
        """A pass has ended."""
        asked = self._asked.get(topic_partition)
        if asked is not None:
            asked.totals += totals

    def reached(self, topic_partition: TopicPartition, offset: int, *, more: bool) -> None:
        """A partition is clean up to `offset`, and `more` could be cleaned; whoever wanted no more than that is told."""
        asked = self._asked[topic_partition]
        if offset >= asked.target or not more:
            del self._asked[topic_partition]
            for waiting in asked.waiting:
                waiting.callback(asked.totals + Totals(end_offset=offset))

    def refuse(self, topic_partition: TopicPartition, error: BrokerError) -> None:
        """All who wait for a partition wait in vain."""
        asked = self._asked.pop(topic_partition, None)
        for waiting in asked.waiting if asked is not None else ():
            waiting.errback(error)
