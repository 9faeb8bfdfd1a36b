"""Which committed offsets of a group have expired (KIP-211)."""

from __future__ import annotations

from txbroker.groups.group import Group
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.group_results import CommittedOffset
from txbroker.groups.group_states import GroupState
from txbroker.names import TopicPartition


def expired(group: Group, offsets: GroupOffsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets have expired at `now_ms` (wall clock). `retention_ms` counts:

    - in a group that never had members: from each offset's commit;
    - in a group that has become empty: from that date, or from the commit if an old record does not have it;
    - in a stable group of consumers: from the commit, for topics that no member subscribes to;
    - in any other group nothing expires.

    An offset that was committed with its own retention time (OffsetCommit v2-v4) uses that one instead.
    """
    since_ms: int | None = None
    spared: frozenset[str] = frozenset()
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since_ms = group.state_ms
    elif group.is_consumer_group and group.state is GroupState.STABLE and group.subscribed_topics is not None:
        spared = group.subscribed_topics
    elif group.protocol_type is not None:
        return []

    def is_over(offset: CommittedOffset) -> bool:
        if offset.expire_ms is not None:
            return now_ms >= offset.expire_ms
        return now_ms - (offset.commit_ms if since_ms is None else since_ms) >= retention_ms

    return [p for p, offset in offsets if p.topic not in spared and is_over(offset) and not offsets.is_unstable(p)]
