"""Translates server.properties into the settings of logs, the coordinators and the transport."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from txbroker.cluster.controller.leader_balance import BalanceSettings
from txbroker.config.listener_keys import CREATION_RATE, listener_prefix
from txbroker.config.listeners import connections_per_ip_overrides
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import TopicSettings
from txbroker.groups.group_config import MINUTE_MS, GroupConfig
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.log_config import LogConfig
from txbroker.transactions.transaction_config import TransactionConfig
from txbroker.transport.limits import Limits
from txbroker.wire.compression import Codec
from txbroker.wire.records import WALK_IS_COMPILED

CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
OFFSETS_CODECS = {int(codec): codec for codec in Codec}  # offsets.topic.compression.codec is a number

QUEUED_BYTES_MAX = 512 << 20  # if queued.max.request.bytes is not set

_CONVERTED = {
    "cleanup_policy",
    "compression_type",
    "message_timestamp_log_append",
    "compaction_strategy",
    "record_validation_full",
    "leader_replication_throttled_replicas",
    "follower_replication_throttled_replicas",
}
_SAME = [field.name for field in dataclasses.fields(LogConfig) if field.init and field.name not in _CONVERTED]


def log_config(settings: TopicSettings, *, is_internal: bool = False) -> LogConfig:
    """The settings of a topic's logs.

    Internal topics are always compacted by offset, whatever the default strategy is: their last record for a key is the valid one.
    """
    order = CompactionOrder.of_topic(settings.compaction_strategy, settings.compaction_strategy_header)
    return LogConfig(
        compaction_strategy=Strategy.OFFSET if is_internal else order.strategy,
        cleanup_policy=frozenset(settings.cleanup_policy),
        compression_type=CODECS.get(settings.compression_type),  # "producer": None
        message_timestamp_log_append=settings.message_timestamp_type == "LogAppendTime",
        record_validation_full=settings.txbroker_record_validation == "full"
        or (settings.txbroker_record_validation == "auto" and WALK_IS_COMPILED),
        leader_replication_throttled_replicas=frozenset(settings.leader_replication_throttled_replicas),
        follower_replication_throttled_replicas=frozenset(settings.follower_replication_throttled_replicas),
        **{name: getattr(settings, name) for name in _SAME},
    )


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


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """The transaction coordinator's settings."""
    return TransactionConfig(
        timeout_max_ms=config.int("transaction.max.timeout.ms"),
        id_expiration_ms=config.int("transactional.id.expiration.ms"),
        abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


def leader_balance(config: BrokerConfig) -> BalanceSettings | None:
    """How the controller moves leadership back to preferred leaders; None if it does not."""
    if not config.boolean("auto.leader.rebalance.enable"):
        return None
    return BalanceSettings(
        interval_s=config.int("leader.imbalance.check.interval.seconds"), percentage=config.int("leader.imbalance.per.broker.percentage")
    )


def limits(config: BrokerConfig) -> Limits:
    """The transport's limits."""
    return Limits(
        request_bytes_max=config.int("socket.request.max.bytes"),
        queued_request_bytes_max=_queued_bytes(config),
        connections_max=config.int("max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        connections_per_ip_overrides=connections_per_ip_overrides(config),
        login_ms_max=config.int("txbroker.login.timeout.ms"),
        logins_per_ip_max=config.int("txbroker.login.connections.per.ip"),
        idle_ms_max=config.int("connections.max.idle.ms"),
        send_buffer_bytes=config.int("socket.send.buffer.bytes"),
        receive_buffer_bytes=_receive_buffer(config),
    )


def creation_rates(config: BrokerConfig, listeners: Iterable[str]) -> dict[str, int]:
    """max.connection.creation.rate of the listeners that have one of their own."""
    found = {name: config.prefixed(listener_prefix(name) + CREATION_RATE) for name in listeners}
    return {name: rate for name, rate in found.items() if isinstance(rate, int)}


def _queued_bytes(config: BrokerConfig) -> int:
    # Kafka has no limit by default: a few dozen clients that send large requests slowly, or stop in the middle, can use all memory.
    # The limit does not slow down others: a thousand clients that send at once are as fast with 512 MiB, or 64 MiB.
    if "queued.max.request.bytes" not in config.static.values:
        return max(QUEUED_BYTES_MAX, config.int("socket.request.max.bytes"))
    return config.int("queued.max.request.bytes") if config.int("queued.max.request.bytes") > 0 else -1


def _receive_buffer(config: BrokerConfig) -> int:
    # The operating system's default receives a large produce request with less than half the CPU time of Kafka's default (100 KiB), so
    # the key is used only if it is set. For the send buffer Kafka's default is better: its data is still in the CPU cache when it is read.
    name = "socket.receive.buffer.bytes"
    return config.int(name) if name in config.static.values else -1
