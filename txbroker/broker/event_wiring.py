"""Connects components that do not know each other: events of partitions and log directories reach the components that need them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.cluster.fetchers import Fetchers
from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import StorageError
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.log.log import Log
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.transactions.coordinator import TransactionCoordinator

log = logging.getLogger("txbroker.broker")


class EventWiring:
    """The observer of `Replicas` and `LogDirectories`; it notifies the purgatories, the coordinators and the controller."""

    _isr_requests: IsrRequests
    _replicas: Replicas
    _coordinator: GroupCoordinator
    _transactions: TransactionCoordinator
    _fetchers: Fetchers
    _sessions: FetchSessions

    def __init__(
        self,
        actions: ActionQueue,
        produce: Purgatory,
        fetch: Purgatory,
        deletes: Purgatory,
        *,
        directory_lost: Callable[[], None],
        fatal: Callable[[str], None],
    ) -> None:
        """`deletes`: DeleteRecords. `directory_lost` notifies the controller of an offline directory; `fatal` stops the broker."""
        self._actions = actions
        self._produce = produce
        self._fetch = fetch
        self._deletes = deletes
        self._directory_lost = directory_lost
        self._fatal = fatal

    def wire(
        self,
        replicas: Replicas,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
        sessions: FetchSessions,
        isr_requests: IsrRequests,
        fetchers: Fetchers,
    ) -> None:
        """Set the components that are constructed later; call it before the first event."""
        self._isr_requests = isr_requests
        self._fetchers = fetchers
        self._sessions = sessions
        self._replicas = replicas
        self._coordinator = coordinator
        self._transactions = transactions

    # ReplicasObserver

    def moved(self, partition: Partition) -> None:
        """Only note it, as the caller is in the middle of an append: waiting requests are completed at the end of the turn."""
        key = partition.topic_partition
        if not partition.is_leader:
            self._fetchers.moved(key)
        watched = key in self._sessions.watched
        if watched:
            self._sessions.moved(key)
        if watched or key in self._produce.watched or key in self._fetch.watched or key in self._deletes.watched:
            self._actions.add(key, self._complete)

    def committed(self, partition: Partition) -> None:
        """As `moved`, but for followers, whose fetches need not end for a new high watermark."""
        key = partition.topic_partition
        if key in self._sessions.watched:
            self._sessions.committed(key)
        self._actions.add(key, self._complete)

    def _complete(self, key: TopicPartition) -> None:
        """Complete the requests that wait for this partition: producers, then fetches of sessions, other fetches, and deletions."""
        if key in self._produce.watched:
            self._produce.check(key)
        sessions = self._sessions.take_moved()
        if sessions:
            self._fetch.check(*sessions)
        if key in self._fetch.watched:
            self._fetch.check(key)
        if key in self._deletes.watched:
            self._deletes.check(key)

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """Take its directory offline, which is then reported as `directory_failed`."""
        self._replicas.storage_failed(partition, error)

    def truncated(self, partition: Partition) -> None:
        """A follower has removed records that its leader does not have."""
        self._replicas.truncated(partition)

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        """A leader proposes another ISR: send it to the controller."""
        self._isr_requests.propose(partition, proposal)

    def leading(self, partition: Partition) -> None:
        """This broker leads the partition. With one of an internal topic it becomes the coordinator of its groups or transactional ids."""
        self._fetchers.forget(partition.topic_partition)
        topic, index = partition.topic_partition
        if topic == OFFSETS_TOPIC:
            _log_failure(self._coordinator.load(index), f"groups of {partition.topic_partition}")
        elif topic == TRANSACTIONS_TOPIC:
            _log_failure(self._transactions.load(index, partition.leader_epoch), f"transactional ids of {partition.topic_partition}")

    def resigned(self, topic_partition: TopicPartition) -> None:
        """This broker no longer leads the partition, and is no longer the coordinator of its groups or transactional ids."""
        if topic_partition.topic == OFFSETS_TOPIC:
            self._coordinator.unload(topic_partition.partition)
        elif topic_partition.topic == TRANSACTIONS_TOPIC:
            self._transactions.unload(topic_partition.partition)

    def following(self, partition: Partition) -> None:
        """Copy the partition from its leader, if it has one."""
        if partition.state.leader >= 0:
            self._fetchers.follow(partition)
        else:
            self._fetchers.forget(partition.topic_partition)

    def stopped(self, topic_partition: TopicPartition) -> None:
        """Copy the partition no longer."""
        self._fetchers.forget(topic_partition)

    # LogDirectories' observer

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """A directory is offline; partitions in other directories stay online."""
        self._replicas.directory_failed(directory, partitions)
        self._directory_lost()

    def all_directories_failed(self) -> None:
        """No partition can be served: stop the broker."""
        self._fatal("all log directories have failed; the broker stops")

    def log_moved(self, topic_partition: TopicPartition, moved: Log) -> None:
        """The partition's log is in its new directory."""
        self._replicas.log_moved(topic_partition, moved)


def _log_failure(done: Deferred[None], what: str) -> None:
    done.addErrback(lambda failure: log.error("cannot load %s: %s", what, failure.getTraceback()))
