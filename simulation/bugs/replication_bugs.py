"""Mistakes in replication: the in-sync replicas, the high watermark, fetching, truncation, and what clients may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.broker.event_wiring import EventWiring
from txbroker.cluster import offset_lookup, replica_fetcher
from txbroker.cluster.follower_session import Wanted
from txbroker.cluster.followers import Followers
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.local_replica import Leadership
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.cluster.replica_fetcher import ReplicaFetcher
from txbroker.errors import ErrorCode
from txbroker.log.log_results import TimestampOffset


def acknowledged_by_leader_alone() -> list[Patch]:
    """The high watermark does not wait for the in-sync replicas: acks=all is acknowledged before they have the record."""
    return [Patch(Followers, "high_watermark", lambda self, own_end, settled_end, now_s: settled_end)]


def slowest_replica_ignored() -> list[Patch]:
    """The high watermark waits for all in-sync replicas but the slowest one."""

    def broken(self: Followers, own_end: int, settled_end: int, now_s: float) -> int:
        ends = sorted([settled_end, *(state.end_offset for replica, state in self._states.items() if replica in self.maximal)])
        return ends[1] if len(ends) > 1 else ends[0]

    return [Patch(Followers, "high_watermark", broken)]


def shrink_counts_before_the_answer() -> list[Patch]:
    """A smaller ISR counts when it is proposed, not when the controller has confirmed it (KAFKA-13091)."""
    maximal = property(lambda self: self.committed if self.proposed is None else self.proposed.members)
    return [Patch(Followers, "maximal", maximal)]


def join_counts_after_the_answer() -> list[Patch]:
    """A replica that joins the ISR does not hold the high watermark back until the leader knows that it has joined (KIP-497)."""

    def high_watermark(self: Followers, own_end: int, settled_end: int, now_s: float) -> int:
        ends = [state.end_offset for replica, state in self._states.items() if replica in self.committed]
        return min([settled_end, *ends])

    return [Patch(Followers, "maximal", property(lambda self: self.committed)), Patch(Followers, "high_watermark", high_watermark)]


def join_without_catching_up() -> list[Patch]:
    """A replica joins the ISR with its first fetch, wherever it is."""

    def broken(self: Followers, replica: int, high_watermark: int) -> Any:
        state = self._states.get(replica)
        if self.proposed is not None or state is None or replica in self.committed:
            return None
        return self._propose(self.committed | {replica})

    return [Patch(Followers, "propose_join", broken)]


def isr_change_not_repeated() -> list[Patch]:
    """An ISR change whose answer is lost is not sent again, and blocks all that follow."""
    return [Patch(IsrRequests, "_failed", lambda self, sent, failure: None)]


def leader_commits_its_log_at_once() -> list[Patch]:
    """A new leader takes its whole log for committed."""
    lead = Partition.lead

    def broken(self: Partition, state: Leadership) -> bool:
        was_leader = self.is_leader
        new = lead(self, state)
        if not was_leader:
            self.high_watermark = self.log.log_end_offset
        return new

    return [Patch(Partition, "lead", broken)]


def truncation_to_high_watermark() -> list[Patch]:
    """A follower truncates to its own high watermark when the leader changes (KIP-101)."""
    follow = Partition.follow

    def broken(self: Partition, state: Leadership) -> bool:
        changed = follow(self, state)
        if changed and state.leader >= 0:
            self.truncate_to(self.high_watermark)
        return changed

    return [Patch(Partition, "follow", broken)]


def no_truncation() -> list[Patch]:
    """A follower whose log differs from the leader's is not truncated: it skips the check of epochs."""

    def broken(topic_id: bytes, epoch: int, offset: int, last_epoch: int, start: int) -> Wanted:
        return Wanted(topic_id, epoch, offset, -1, start)

    return [Patch(replica_fetcher, "Wanted", broken)]


def truncation_one_too_far() -> list[Patch]:
    """A follower is truncated to one record below the point of divergence."""
    divergence = replica_fetcher.divergence
    return [Patch(replica_fetcher, "divergence", lambda partition, leader: max(0, divergence(partition, leader) - 1))]


def watermark_before_truncation() -> list[Patch]:
    """A follower takes the leader's high watermark from an answer that has it truncate, and truncates later (KAFKA-14704)."""
    fetched = ReplicaFetcher._fetched
    delayed: set[tuple[int, int]] = set()

    def broken(self: ReplicaFetcher, one: Any, data: Any) -> None:
        if not data.error_code and data.diverging_epoch.epoch != -1:
            partition = one.partition
            partition.high_watermark = max(partition.high_watermark, min(data.high_watermark, partition.log.log_end_offset))
            if (id(partition), partition.leader_epoch) not in delayed:
                delayed.add((id(partition), partition.leader_epoch))
                self.touch(partition.topic_partition)
                return
        fetched(self, one, data)

    return [Patch(ReplicaFetcher, "_fetched", broken)]


def out_of_range_empties_the_log() -> list[Patch]:
    """OFFSET_OUT_OF_RANGE makes a follower begin again at the leader's first offset, without a second look (KAFKA-2143)."""
    found = ReplicaFetcher._found

    def broken(self: ReplicaFetcher, name: Any, error_code: int, offset: int) -> None:
        one = self._followed.get(name)
        if one is not None and not error_code and one.step is replica_fetcher._Step.FIND_START:
            one.step, one.searched = replica_fetcher._Step.FETCH, True
            one.partition.restart_at(offset, self._now_ms())
            self.touch(name)
            return
        found(self, name, error_code, offset)

    def refused(self: ReplicaFetcher, one: Any, error_code: int) -> None:
        one.step = replica_fetcher._Step.FIND_START  # any error begins the search

    return [Patch(ReplicaFetcher, "_found", broken), Patch(ReplicaFetcher, "_refused", refused)]


def fetch_above_high_watermark() -> list[Patch]:
    """Consumers read up to the end of the log."""
    return [Patch(Partition, "end_for", lambda self, isolation, replica=-1: self.log.log_end_offset)]


def latest_offset_of_a_new_leader() -> list[Patch]:
    """A new leader answers ListOffsets before its high watermark has reached its epoch: the latest offset goes back (KIP-207)."""
    find = offset_lookup._find

    def broken(partition: Partition, timestamp: int, isolation: int | None) -> Any:
        if timestamp == offset_lookup.LATEST_TIMESTAMP and isolation is not None:
            return TimestampOffset(-1, partition.end_for(isolation), partition.leader_epoch)
        return find(partition, timestamp, isolation)

    return [Patch(offset_lookup, "_find", broken)]


def epochs_not_fenced() -> list[Patch]:
    """The leader epoch of a request is not compared (KIP-320)."""
    return [Patch(Partition, "check_epoch", lambda self, epoch: None)]


def pending_append_of_an_old_epoch() -> list[Patch]:
    """A waiting acks=all is acknowledged when the high watermark passes its offset, also after another leader has written there."""

    def broken(self: PendingAppend, *, all_in_sync: bool = True) -> ErrorCode | None:
        return ErrorCode.NONE if self.partition.high_watermark > self.last_offset else None

    return [Patch(PendingAppend, "outcome", broken)]


def leader_keeps_leading() -> list[Patch]:
    """A leader ignores that it has become a follower."""
    follow = Partition.follow
    return [Patch(Partition, "follow", lambda self, state: False if self.is_leader else follow(self, state))]


def follower_of_yesterday() -> list[Patch]:
    """A follower does not notice a new leader epoch of the same leader, nor a new leader."""
    return [Patch(EventWiring, "following", lambda self, partition: None)]


def failed_fetch_ends_the_copying() -> list[Patch]:
    """A partition with an error is not copied any more."""
    return [Patch(ReplicaFetcher, "_pause", lambda self, one, share=1.0: self.forget(one.partition.topic_partition))]


def full_disk_ends_the_copying() -> list[Patch]:
    """A follower whose disk was full does not copy the partition again until the controller's next request."""
    return [Patch(ReplicaFetcher, "_disk_failed", lambda self, one, error: self.forget(one.partition.topic_partition))]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        acknowledged_by_leader_alone,
        slowest_replica_ignored,
        shrink_counts_before_the_answer,
        join_counts_after_the_answer,
        join_without_catching_up,
        isr_change_not_repeated,
        leader_commits_its_log_at_once,
        truncation_to_high_watermark,
        no_truncation,
        truncation_one_too_far,
        watermark_before_truncation,
        out_of_range_empties_the_log,
        fetch_above_high_watermark,
        latest_offset_of_a_new_leader,
        epochs_not_fenced,
        pending_append_of_an_old_epoch,
        leader_keeps_leading,
        follower_of_yesterday,
        failed_fetch_ends_the_copying,
        full_disk_ends_the_copying,
    )
}
