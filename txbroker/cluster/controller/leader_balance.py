"""Automatic preferred leader election: moves leadership back to the first replicas (`auto.leader.rebalance.enable`).

As in Kafka, a broker's imbalance is the share of the partitions that prefer it and that another broker leads. It is checked soon after the
election of the controller and then periodically, so that a broker that has just returned has time to catch up and warm up.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from txbroker.clock import DelayedCall
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.elect_leaders import ElectionType, elect_leaders
from txbroker.cluster.controller.election_rules import elect_preferred
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition, amount

log = logging.getLogger("txbroker.controller")

FIRST_CHECK_S = 5.0


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class BalanceSettings:
    """`leader.imbalance.check.interval.seconds` and `leader.imbalance.per.broker.percentage`."""

    interval_s: float
    percentage: int


class LeaderBalance:
    """The checks of one controller term."""

    def __init__(
        self,
        settings: BalanceSettings,
        context: ControllerContext,
        leadership: Leadership,
        outbox: OutgoingRequests,
        call_later: Callable[[float, Callable[[], None]], DelayedCall],
        enqueue: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        """`enqueue` calls a handler as a step of the controller."""
        self._settings = settings
        self._context = context
        self._leadership = leadership
        self._outbox = outbox
        self._call_later = call_later
        self._enqueue = enqueue
        self._next: DelayedCall | None = None

    def start(self) -> None:
        """Schedule the first check."""
        self._next = self._call_later(FIRST_CHECK_S, self._due)

    def stop(self) -> None:
        """Cancel the next check."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _due(self) -> None:
        self._next = self._call_later(self._settings.interval_s, self._due)
        self._enqueue(self.check)

    async def check(self) -> None:
        """Elect the preferred leaders of the brokers whose imbalance exceeds the percentage."""
        by_preferred: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic_partition in self._context.partitions():
            if topic_partition.topic not in self._context.deleting:
                by_preferred[self._context.assignment(topic_partition).replicas[0]].append(topic_partition)
        wanted: list[TopicPartition] = []
        for broker_id, partitions in by_preferred.items():
            if broker_id not in self._context.brokers:
                continue
            elsewhere = [tp for tp in partitions if tp in self._context.states and self._context.states[tp].leader != broker_id]
            if len(elsewhere) * 100 > self._settings.percentage * len(partitions):
                wanted += [tp for tp in elsewhere if self._can_lead(tp)]
        if wanted:
            log.info("electing the preferred leaders of %s", amount(len(wanted), "partition"))
            await elect_leaders(ElectionType.PREFERRED, wanted, self._context, self._leadership, self._outbox)

    def _can_lead(self, topic_partition: TopicPartition) -> bool:
        replicas = self._context.assignment(topic_partition).replicas
        online = set(self._context.online(topic_partition)) - self._context.suspected
        return elect_preferred(self._context.states[topic_partition], replicas, online) is not None
