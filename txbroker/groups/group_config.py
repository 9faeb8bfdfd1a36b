"""The settings of the group coordinator, by the names and defaults of Kafka 3.9."""

from __future__ import annotations

from txbroker.lazy_dataclass import lazy_dataclass

MINUTE_MS = 60_000


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of groups, with their keys. Times in milliseconds, sizes in bytes."""

    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    size_max: int = 2_147_483_647  # group.max.size, in members
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    member_metadata_max: int = 1_048_588  # message.max.bytes: a record must hold one member's metadata for all its protocols
    offset_metadata_max: int = 4_096  # offset.metadata.max.bytes, which Kafka counts in characters
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS  # offsets.retention.check.interval.ms
    new_member_join_timeout_ms: int = 5 * MINUTE_MS  # how long a new member may wait in JoinGroup; Kafka has no key for it
    pending_members_max: int = 10_000  # member ids of one group that have not joined yet (KIP-394); Kafka has no limit
