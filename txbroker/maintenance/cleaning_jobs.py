"""Makes the job of a pass from a log and the configuration."""

from __future__ import annotations

from txbroker.config.resolve import BrokerConfig
from txbroker.log.cleaner.cleanable import Cleanable
from txbroker.log.cleaner.cleaning_job import CleaningJob, CleaningSettings
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig

MAP_BYTES_MAX = 2**31 - 1


def make_job(chosen: Log, cleanable: Cleanable, config: BrokerConfig, *, now_ms: int, seed: int) -> CleaningJob:
    """The job that cleans all of `cleanable`, without its producers. StorageError."""
    return CleaningJob(
        directory=chosen.directory,
        topic=chosen.topic_partition.topic,
        partition=chosen.topic_partition.partition,
        segments=tuple(chosen.closed_below(cleanable.first_uncleanable_offset)),
        log_start_offset=chosen.log_start_offset,
        log_end_offset=chosen.log_end_offset,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
        now_ms=now_ms,
        seed=seed,
        settings=_settings(chosen.config, config),
    )


def _settings(topic: LogConfig, config: BrokerConfig) -> CleaningSettings:
    """The topic's settings, and one worker's share of the broker's memory and bandwidth."""
    threads = max(config.int("log.cleaner.threads"), 1)
    return CleaningSettings(
        strategy=topic.compaction_strategy,
        header=topic.compaction_strategy_header,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        delete_retention_ms=topic.delete_retention_ms,
        max_message_bytes=max(topic.max_message_bytes, config.int("message.max.bytes")),
        map_bytes=min(config.int("log.cleaner.dedupe.buffer.size") // threads, MAP_BYTES_MAX),
        load_factor=config.double("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.int("log.cleaner.io.buffer.size") // threads // 2,
        io_bytes_per_second=config.double("log.cleaner.io.max.bytes.per.second") / threads,
    )
