"""An append of a leader whose answer has to wait."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.cluster.partition import Partition
from txbroker.errors import ErrorCode


class PendingAppend(NamedTuple):
    """An append that waits for other replicas, or for a sync."""

    partition: Partition
    leadership: int  # the partition's `leadership` at the append
    last_offset: int

    def outcome(self, *, all_in_sync: bool = True) -> ErrorCode | None:
        """NONE when it may be acknowledged, or why it will not be; None: it has to wait.

        NOT_LEADER_OR_FOLLOWER if this replica has not been the leader all the time since: the offsets may belong to other records, even if
        it leads again. In a new leader epoch of the same leader its log is as it was, and followers copy it (Kafka's DelayedProduce).
        """
        partition = self.partition
        if not partition.is_leader or partition.leadership != self.leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.acknowledged(self.last_offset, all_in_sync=all_in_sync):
            return None
        return ErrorCode.NONE if partition.enough_in_sync or not all_in_sync else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
