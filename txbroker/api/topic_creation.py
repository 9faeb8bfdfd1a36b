"""Automatic creation of topics: by Metadata requests, and of internal topics.

Kafka responds to such a request at once, with an error on which the client retries. Here the response waits until the topic has leaders,
which takes milliseconds.
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

# Longer than a controller needs for a topic with many partitions, shorter than the request timeout of any client.
WAIT_MS = 5_000


class TopicCreation:
    """Creates missing topics. `enabled`: the value of auto.create.topics.enable; `offsets_topic`: how `__consumer_offsets` is created."""

    def __init__(
        self, admin: TopicAdmin, waiting: TopicWaiting, *, enabled: Callable[[], bool], offsets_topic: Callable[[], NewTopic]
    ) -> None:
        self._admin = admin
        self._waiting = waiting
        self._enabled = enabled
        self._offsets_topic = offsets_topic

    def on_demand(self, names: Iterable[str]) -> Deferred[Mapping[str, ErrorCode]] | None:
        """Create topics that a client has requested; fires with those that cannot be created and their errors. None if not allowed."""
        if not self._enabled():
            return None
        return Deferred.fromCoroutine(self._on_demand(list(dict.fromkeys(names))))

    def internal(self, name: str) -> Deferred[None]:
        """Create an internal topic; fails with BrokerError when it cannot be created."""
        return Deferred.fromCoroutine(self._internal(name))

    async def _on_demand(self, names: list[str]) -> Mapping[str, ErrorCode]:
        failures: dict[str, ErrorCode] = {}
        counts: dict[str, int] = {}
        for name in names:
            try:
                counts[name] = await self._make(self._offsets_topic() if name == OFFSETS_TOPIC else NewTopic(name=name))
            except BrokerError as error:
                log.info("topic %r cannot be created automatically: %s", name, error)
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
            return 1  # another request has created it meanwhile
