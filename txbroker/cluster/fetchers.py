"""Which leader this broker copies each of its follower partitions from. The loops that do are imported in a cluster only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txbroker.cluster.partition import Partition
from txbroker.names import TopicPartition

if TYPE_CHECKING:
    from txbroker.cluster.fetcher_loop import FetcherLoop


class Fetchers:
    """The loops of all leaders. `make_loop` makes the loop of a leader.

    A loop lives as long as a partition follows its leader, also while its fetcher does not copy the partition: a fetcher forgets a
    partition that the leader has fenced, until the controller's next request for it.
    """

    def __init__(self, make_loop: Callable[[int], FetcherLoop]) -> None:
        self._make_loop = make_loop
        self._loops: dict[int, FetcherLoop] = {}
        self._followers: dict[int, set[TopicPartition]] = {}  # of each loop
        self._leaders: dict[TopicPartition, int] = {}
        self._leaving = False

    def leave(self) -> None:
        """This broker is about to stop: copy no partition from a new leader.

        That leader's high watermark would wait for this replica, as for any that may join the ISR (`ReplicaManager.makeFollowers`).
        """
        self._leaving = True

    def follow(self, partition: Partition) -> None:
        """Copy a partition from the leader that it follows now, in its present leader epoch."""
        name, leader_id = partition.topic_partition, partition.state.leader
        if self._leaders.get(name) != leader_id:
            self.forget(name)
            if self._leaving:
                return
        loop = self._loops.get(leader_id)
        if loop is None:
            loop = self._loops[leader_id] = self._make_loop(leader_id)
            self._followers[leader_id] = set()
        self._leaders[name] = leader_id
        self._followers[leader_id].add(name)
        loop.fetcher.follow(partition)
        loop.wake()

    def forget(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer; a loop without partitions ends."""
        leader_id = self._leaders.pop(topic_partition, None)
        if leader_id is None:
            return
        self._loops[leader_id].fetcher.forget(topic_partition)
        followers = self._followers[leader_id]
        followers.remove(topic_partition)
        if not followers:
            del self._followers[leader_id]
            self._loops.pop(leader_id).stop()

    def moved(self, topic_partition: TopicPartition) -> None:
        """The log of a follower has moved, or is synced."""
        leader_id = self._leaders.get(topic_partition)
        if leader_id is not None:
            self._loops[leader_id].moved(topic_partition)

    def stop(self) -> None:
        """End all loops."""
        for loop in list(self._loops.values()):
            loop.stop()
        self._loops.clear()
        self._followers.clear()
        self._leaders.clear()
