"""The configuration in the terms of each room: what a log, the coordinator and the transport are told of server.properties."""

from __future__ import annotations

import dataclasses

from txbroker.config.listeners import connections_per_ip_overrides
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import TopicSettings
from txbroker.groups.group_config import MINUTE_MS, GroupConfig
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log_config import LogConfig
from txbroker.transport.limits import Limits
from txbroker.wire.compression import Codec
from txbroker.wire.records import WALK_IS_COMPILED

CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
OFFSETS_CODECS = {int(codec): codec for codec in Codec}  # offsets.topic.compression.codec is a number

QUEUED_BYTES_MAX = 512 << 20  # where queued.max.request.bytes is not set

_CONVERTED = {"cleanup_policy", "compression_type", "message_timestamp_log_append", "compaction_strategy", "record_validation_full"}
_SAME = [field.name for field in dataclasses.fields(LogConfig) if field.init and field.name not in _CONVERTED]


def log_config(settings: TopicSettings, *, is_internal: bool = False) -> LogConfig:
    """What a topic's logs must know of its settings.

    The broker's own topics are compacted by offset whatever the broker's default says: with them, what was written last holds.
    """
    return LogConfig(
        compaction_strategy=Strategy.OFFSET if is_internal else _strategy(settings),
        cleanup_policy=frozenset(settings.cleanup_policy),
        compression_type=CODECS.get(settings.compression_type),  # "producer": None
        message_timestamp_log_append=settings.message_timestamp_type == "LogAppendTime",
        record_validation_full=settings.txbroker_record_validation == "full"
        or (settings.txbroker_record_validation == "auto" and WALK_IS_COMPILED),
        **{name: getattr(settings, name) for name in _SAME},
    )


def _strategy(settings: TopicSettings) -> Strategy:
    # Without a header's name no record has a version, and the offset decides: so it does, with less memory.
    if settings.compaction_strategy == "header" and not settings.compaction_strategy_header:
        return Strategy.OFFSET
    return Strategy(settings.compaction_strategy or "offset")


def group_config(config: BrokerConfig) -> GroupConfig:
    """The group coordinator's settings."""
    return GroupConfig(
        session_timeout_min_ms=config.int("group.min.session.timeout.ms"),
        session_timeout_max_ms=config.int("group.max.session.timeout.ms"),
        size_max=config.int("group.max.size"),
        initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        member_metadata_max=config.int("message.max.bytes"),
        offset_metadata_max=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
    )


def limits(config: BrokerConfig) -> Limits:
    """The transport's limits."""
    return Limits(
        request_bytes_max=config.int("socket.request.max.bytes"),
        queued_request_bytes_max=_queued_bytes(config),
        connections_max=config.int("max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        connections_per_ip_overrides=connections_per_ip_overrides(config),
        idle_ms_max=config.int("connections.max.idle.ms"),
        send_buffer_bytes=config.int("socket.send.buffer.bytes"),
        receive_buffer_bytes=_receive_buffer(config),
    )


def _queued_bytes(config: BrokerConfig) -> int:
    # Kafka's default is no limit, so that a few dozen clients which send large requests slowly, or stop within them, take all memory
    # there is. A limit costs honest clients nothing: a thousand that send at once are served no slower within 512 MiB, or 64.
    if "queued.max.request.bytes" not in config.static.values:
        return max(QUEUED_BYTES_MAX, config.int("socket.request.max.bytes"))
    return config.int("queued.max.request.bytes") if config.int("queued.max.request.bytes") > 0 else -1


def _receive_buffer(config: BrokerConfig) -> int:
    # The system's own choice takes a large produce for less than half the CPU that Kafka's default costs: only what somebody set counts.
    # With the send buffer it is the other way round: what waits in a small one is still in the processor's cache when the peer takes it.
    name = "socket.receive.buffer.bytes"
    return config.int(name) if name in config.static.values else -1
