"""The joints between rooms that do not know each other: who is told when a partition, a directory or the image changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import StorageError
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.log.log import Log
from txbroker.names import OFFSETS_TOPIC, TopicPartition
from txbroker.purgatory import Purgatory

log = logging.getLogger("txbroker.broker")


class Joints:
    """Told by `Replicas` and `LogDirectories`; tells the purgatories, the coordinator and the top floor. Wired after construction."""

    _replicas: Replicas
    _coordinator: GroupCoordinator
    _sessions: FetchSessions

    def __init__(
        self,
        actions: ActionQueue,
        produce: Purgatory,
        fetch: Purgatory,
        *,
        directory_lost: Callable[[], None],
        fatal: Callable[[str], None],
    ) -> None:
        """`directory_lost`: the controller must hear of it; `fatal`: the broker cannot go on."""
        self._actions = actions
        self._produce = produce
        self._fetch = fetch
        self._directory_lost = directory_lost
        self._fatal = fatal

    def wire(self, replicas: Replicas, coordinator: GroupCoordinator, sessions: FetchSessions) -> None:
        """Whom to tell; before anything happens."""
        self._sessions = sessions
        self._replicas = replicas
        self._coordinator = coordinator

    # ReplicasObserver

    def moved(self, partition: Partition) -> None:
        """Only note it: the caller is in the middle of an append. Requests that wait are completed at the end of the turn."""
        key = partition.topic_partition
        self._sessions.moved(key)
        self._actions.add(key, self._complete)

    def _complete(self, key: TopicPartition) -> None:
        """Complete the requests that wait for this partition: producers first, then fetches of sessions, then other fetches."""
        self._produce.check(key)
        for session in self._sessions.take_moved():
            self._fetch.check(session)
        self._fetch.check(key)

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """Its directory goes offline, which comes back as `directory_failed`."""
        self._replicas.storage_failed(partition, error)

    def leading(self, partition: Partition) -> None:
        """A partition of `__consumer_offsets` makes this broker a coordinator."""
        topic, index = partition.topic_partition
        if topic == OFFSETS_TOPIC:
            _log_failure(self._coordinator.load(index), f"groups of {partition.topic_partition}")

    def resigned(self, topic_partition: TopicPartition) -> None:
        """Not the coordinator of its groups any longer."""
        if topic_partition.topic == OFFSETS_TOPIC:
            self._coordinator.unload(topic_partition.partition)

    # LogDirectories' observer

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """The rest serves on."""
        self._replicas.directory_failed(directory, partitions)
        self._directory_lost()

    def all_directories_failed(self) -> None:
        """Nothing is left to serve."""
        self._fatal("all log directories have failed: the broker stops")

    def log_moved(self, topic_partition: TopicPartition, moved: Log) -> None:
        """The partition goes on with the log in its new directory."""
        self._replicas.log_moved(topic_partition, moved)


def _log_failure(done: Deferred[None], what: str) -> None:
    done.addErrback(lambda failure: log.error("%s were not loaded: %s", what, failure.getTraceback()))
