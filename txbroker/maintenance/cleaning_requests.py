"""Requests to clean partitions now. A request may take several passes, and several requests may share them."""

from __future__ import annotations

from dataclasses import field

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_status import Totals
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_candidates import Candidates
from txbroker.names import TopicPartition


@lazy_dataclass(slots=True)
class _Requested:
    """The offset up to which a partition is to be clean, the totals of the passes since the first request, and the waiting requests."""

    target: int = 0
    totals: Totals = field(default_factory=Totals)
    waiting: list[Deferred[Totals]] = field(default_factory=list)


class CleaningRequests:
    """The requests that are not complete."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._requested: dict[TopicPartition, _Requested] = {}

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._requested

    def partitions(self) -> list[TopicPartition]:
        """The partitions that requests wait for."""
        return list(self._requested)

    def add(self, requested: Log) -> Deferred[Totals]:
        """One more request, complete when the log is clean up to all that can be cleaned now. BrokerError when it cannot be assessed."""
        target = self._candidates.assess_and_act(requested, whole=True).first_uncleanable_offset
        entry = self._requested.setdefault(requested.topic_partition, _Requested())
        entry.target = max(entry.target, target)
        done: Deferred[Totals] = Deferred()
        entry.waiting.append(done)
        return done

    def pass_succeeded(self, topic_partition: TopicPartition, totals: Totals) -> None:
        """Add the totals of a pass."""
        entry = self._requested.get(topic_partition)
        if entry is not None:
            entry.totals += totals

    def complete(self, topic_partition: TopicPartition, current: Log | None) -> None:
        """Complete the requests for a partition if nothing is left to clean, or fail them. No pass may be running.

        `current`: the partition's log; None when it has none here.
        """
        entry = self._requested.get(topic_partition)
        if entry is None:
            return
        if current is None or not current.config.compact:
            gone = "its log is no longer on this broker" if current is None else "its cleanup.policy no longer has compact"
            self.fail(topic_partition, BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone))
            return
        try:
            cleanable = self._candidates.assess_and_act(current, whole=True)
        except BrokerError as error:
            self.fail(topic_partition, error)
            return
        if cleanable.first_dirty_offset >= entry.target or not cleanable.cleanable_bytes:
            del self._requested[topic_partition]
            for waiting in entry.waiting:
                waiting.callback(entry.totals + Totals(end_offset=cleanable.first_dirty_offset))

    def fail(self, topic_partition: TopicPartition, error: BrokerError) -> None:
        """Fail all requests for a partition."""
        entry = self._requested.pop(topic_partition, None)
        for waiting in entry.waiting if entry is not None else ():
            waiting.errback(error)
