"""The effective settings of a topic, and the checks that topic configurations must pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txbroker.config.resolve import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The value of every topic key; a field is named as its key with `_` for `.`. Sizes in bytes, times in ms, -1 is no limit."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool


def topic_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic with these overrides on this broker. Overrides that are not valid are left out."""
    raise NotImplementedError


def validate_topic_configs(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """BrokerError(INVALID_CONFIG, sentence) unless all these overrides together make a valid topic (a null value is refused)."""
    raise NotImplementedError
