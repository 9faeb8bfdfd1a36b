"""The settings of one log: Kafka's topic configuration, typed, with Kafka's defaults (TopicConfig, LogConfig)."""

from __future__ import annotations

from dataclasses import field

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.wire.compression import Codec
from txbroker.wire.records import WALK_IS_COMPILED

FOREVER_MS = 2**63 - 1
_UNPACKED_BYTES_MIN = 64 << 20
DAY_MS = 24 * 60 * 60 * 1000


# What a topic requires of each batch, for `produced_batch.prepare`: its largest size, and that of its records once decompressed, in bytes;
# how far its timestamps may be before and after now, in milliseconds; whether all records have keys; the codec of all batches (-1: the
# producers choose); whether validation is full.
Limits = tuple[int, int, int, int, bool, int, bool]


@lazy_dataclass(slots=True, frozen=True, kw_only=True)
class LogConfig:
    """One topic's settings. Each field is the topic key with `.` as `_`; sizes in bytes, times in milliseconds.

    Exceptions: `compression_type` is None for `producer`; `message_timestamp_log_append` stands for
    message.timestamp.type=LogAppendTime; `record_validation_full` for txbroker.record.validation=full, or `auto` where the walk over
    records is compiled; `roll_ms` is how long a segment stays active, which max.compaction.lag.ms may shorten (KIP-354); `limits` is
    None with LogAppendTime, for which every batch is changed.
    `unpacked_bytes_max` limits the memory of one batch's records once decompressed. `preallocate` has no field, because files
    are written at their ends.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    retention_precise: bool = False
    record_validation_full: bool = WALK_IS_COMPILED
    max_message_bytes: int = (1 << 20) + 12
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    flush_messages: int = 2**63 - 1
    flush_ms: int = FOREVER_MS
    file_delete_delay_ms: int = 60_000
    message_timestamp_log_append: bool = False
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = FOREVER_MS
    compression_type: Codec | None = None
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    compaction_strategy: Strategy = Strategy.OFFSET
    compaction_strategy_header: str = ""
    txbroker_mirror_source: str = ""
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()

    compact: bool = field(init=False)
    delete: bool = field(init=False)
    roll_ms: int = field(init=False)
    unpacked_bytes_max: int = field(init=False)
    limits: Limits | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compact", "compact" in self.cleanup_policy)
        object.__setattr__(self, "delete", "delete" in self.cleanup_policy)
        object.__setattr__(self, "unpacked_bytes_max", max(_UNPACKED_BYTES_MIN, 4 * self.max_message_bytes))
        object.__setattr__(self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms)
        limits = (
            min(self.max_message_bytes, self.segment_bytes),
            self.unpacked_bytes_max,
            self.message_timestamp_before_max_ms,
            self.message_timestamp_after_max_ms,
            self.compact,
            -1 if self.compression_type is None else self.compression_type,
            self.record_validation_full,
        )
        object.__setattr__(self, "limits", None if self.message_timestamp_log_append else limits)

    @property
    def compression_level(self) -> int | None:
        """The level at which the broker compresses, for codecs that have one."""
        match self.compression_type:
            case Codec.GZIP:
                return self.compression_gzip_level
            case Codec.LZ4:
                return self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

