"""Topics that are made because somebody needs them: auto-creation by Metadata, and the broker's internal topics.

Kafka answers such a request at once, with an error that makes the client ask again; here the answer waits until the topic has
leaders, which with the controller at hand takes milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred

from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import OFFSETS_TOPIC

log = logging.getLogger("txbroker.api")

# Longer than a controller needs for a topic of many partitions, shorter than any client's request timeout.
WAIT_MS = 5_000


class TopicCreation:
    """Makes missing topics. `enabled` is auto.create.topics.enable now, `offsets_topic` what `__consumer_offsets` is made like."""

    def __init__(
        self, admin: TopicAdmin, waiting: TopicWaiting, *, enabled: Callable[[], bool], offsets_topic: Callable[[], NewTopic]
    ) -> None:
        self._admin = admin
        self._waiting = waiting
        self._enabled = enabled
        self._offsets_topic = offsets_topic

    def on_demand(self, names: Iterable[str]) -> Deferred[Mapping[str, ErrorCode]] | None:
        """Make topics that a client asked for; fires with those that could not be made and why. None when that is not allowed."""
        if not self._enabled():
            return None
        return Deferred.fromCoroutine(self._on_demand(list(dict.fromkeys(names))))

    def internal(self, name: str) -> Deferred[None]:
        """Make an internal topic; fails with BrokerError when it cannot be made."""
        return Deferred.fromCoroutine(self._internal(name))

    async def _on_demand(self, names: list[str]) -> Mapping[str, ErrorCode]:
        failures: dict[str, ErrorCode] = {}
        counts: dict[str, int] = {}
        for name in names:
            try:
                counts[name] = await self._make(self._offsets_topic() if name == OFFSETS_TOPIC else NewTopic(name=name))
            except BrokerError as error:
                log.info("topic %r is not created on demand: %s", name, error)
                failures[name] = error.code
        if counts and not await self._waiting.ready(counts, WAIT_MS):
            failures |= dict.fromkeys(counts, ErrorCode.LEADER_NOT_AVAILABLE)
        return failures

    async def _internal(self, name: str) -> None:
        assert name == OFFSETS_TOPIC, name
        count = await self._make(self._offsets_topic())
        if not await self._waiting.ready({name: count}, WAIT_MS):
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} has no leaders yet")

    async def _make(self, topic: NewTopic) -> int:
        """The number of partitions to wait for."""
        try:
            return (await self._admin.create(topic)).partition_count
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return 1  # somebody else was quicker
