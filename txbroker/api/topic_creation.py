"""Automatic creation of topics: by Metadata requests, and of internal topics (Kafka's AutoTopicCreationManager).

Kafka responds to such a request at once, with an error on which the client retries. Here creation takes milliseconds in most cases, so
the response waits a little. A creation that takes longer goes on after the response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import topic_created
from txbroker.api.request_context import RequestContext
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.client_quotas.mutations import UNLIMITED, Mutations
from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS

log = logging.getLogger("txbroker.api")

# Later requests of the connection wait with the response. Clients retry after 100 ms (retry.backoff.ms), so none loses time by it.
WAIT_MS = 100
# Topics that are being created at the same time. A client that names more of them gets the error, and retries.
CREATIONS_MAX = 10_000
# Topics whose failure is remembered; beyond this many the oldest is forgotten and may be logged again.
LOGGED_MAX = 1000


class _Creation:
    """A topic that is being created. `partition_count` is 0 until it is written to the tree; `error`: why it cannot be created."""

    def __init__(self) -> None:
        self.partition_count = 0
        self.error: BrokerError | None = None


class TopicCreation:
    """Creates missing topics. `enabled`: the value of auto.create.topics.enable; `internal_topic`: how an internal topic is created.

    `mutations`: the quota of changes under which a creation for a request counts. It delays no creation, as in Kafka.
    """

    def __init__(
        self,
        admin: TopicAdmin,
        waiting: TopicWaiting,
        *,
        enabled: Callable[[], bool],
        internal_topic: Callable[[str], NewTopic],
        mutations: Callable[[RequestContext], Mutations] = lambda context: UNLIMITED,
    ) -> None:
        self._admin = admin
        self._waiting = waiting
        self._enabled = enabled
        self._internal_topic = internal_topic
        self._mutations = mutations
        self._creations: dict[str, _Creation] = {}
        self._logged: dict[str, str] = {}  # why topics cannot be created, as logged last

    def on_demand(self, names: Iterable[str], context: RequestContext) -> Deferred[Mapping[str, ErrorCode]] | None:
        """Create topics that a client has requested. None if that is not allowed.

        Fires when they have leaders, at the latest after WAIT_MS, with those that cannot be created and their errors.
        """
        if not self._enabled():
            return None
        creations = self._begin(names, self._mutations(context))

        def failures(_: bool) -> Mapping[str, ErrorCode]:
            return {name: creation.error.code for name, creation in creations.items() if creation.error is not None}

        return self._ready(creations).addCallback(failures)

    def automatic(self, name: str) -> None:
        """Create a topic that this broker itself needs, if auto.create.topics.enable is true. A failure is logged."""
        if self._enabled():
            self._begin([name], UNLIMITED)

    def internal(self, name: str) -> Deferred[None]:
        """Create an internal topic; fails with BrokerError when it cannot be created, or has no leaders after WAIT_MS."""
        creations = self._begin([name], UNLIMITED)

        def check(ready: bool) -> None:
            for creation in creations.values():
                if creation.error is not None:
                    raise creation.error
            if not ready:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} has no leaders yet")

        return self._ready(creations).addCallback(check)

    def _begin(self, names: Iterable[str], mutations: Mutations) -> dict[str, _Creation]:
        """The creations of these topics, of those that are in progress and new ones, as far as CREATIONS_MAX allows."""
        wanted: dict[str, _Creation] = {}
        new: dict[str, _Creation] = {}
        for name in names:
            creation = self._creations.get(name)
            if creation is None:
                if len(self._creations) >= CREATIONS_MAX:
                    continue
                creation = new[name] = self._creations[name] = _Creation()
            wanted[name] = creation
        if new:
            made = Deferred.fromCoroutine(self._create(new, mutations))
            made.addErrback(lambda failure: log.error("internal error: %s", failure.getTraceback()))
        return wanted

    async def _create(self, new: Mapping[str, _Creation], mutations: Mutations) -> None:
        try:
            for name, creation in new.items():
                try:
                    creation.partition_count = await self._make(self._new_topic(name), mutations)
                except BrokerError as error:
                    self._log_failure(name, str(error))
                    creation.error = error
                else:
                    self._logged.pop(name, None)
                del self._creations[name]
                self._waiting.changed([name])
        finally:
            for name in new:
                self._creations.pop(name, None)

    def _log_failure(self, name: str, why: str) -> None:
        """Log why a topic cannot be created, once: clients repeat their requests several times a second."""
        if self._logged.get(name) != why:
            if name not in self._logged and len(self._logged) >= LOGGED_MAX:
                del self._logged[next(iter(self._logged))]
            self._logged[name] = why
            log.warning("topic %r cannot be created automatically: %s", name, why)

    def _new_topic(self, name: str) -> NewTopic:
        return self._internal_topic(name) if name in INTERNAL_TOPICS else NewTopic(name=name)

    async def _make(self, topic: NewTopic, mutations: Mutations) -> int:
        """The number of partitions to wait for."""
        try:
            created = await self._admin.create(topic, admit=mutations.spend)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return 1  # another request has created it meanwhile
        topic_created(created.name, created.partition_count, created.replication_factor, created.configs, None)
        return created.partition_count

    def _ready(self, creations: Mapping[str, _Creation]) -> Deferred[bool]:
        """Fires with True when each of these topics has failed or has leaders; with False after WAIT_MS."""

        def ended(name: str, creation: _Creation) -> bool:
            return creation.error is not None or (creation.partition_count > 0 and self._waiting.has(name, creation.partition_count))

        return self._waiting.until(creations, lambda: all(ended(name, creation) for name, creation in creations.items()), WAIT_MS)
