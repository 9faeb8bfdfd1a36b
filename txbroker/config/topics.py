"""The effective settings of a topic, and the validation of topic configurations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from txbroker.config.broker_keys import synonyms
from txbroker.config.keys import LONG_MAX, InvalidValue, Value
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import similar_names

logger = logging.getLogger("txbroker.config")

NEEDS_HEADER = "compaction.strategy is header, so compaction.strategy.header must name the header"


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The values of all topic keys; a field is named as its key with `_` for `.`. Sizes in bytes, times in ms, -1 is no limit."""

    cleanup_policy: tuple[str, ...]
    compaction_strategy: str
    compaction_strategy_header: str
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
    retention_precise: bool
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    txbroker_mirror_source: str
    txbroker_record_validation: str
    unclean_leader_election_enable: bool


def topic_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic with these overrides on this broker.

    Invalid overrides are logged and ignored; they were checked when they were stored. If the timestamp limits `before` and `after` are
    not set, `message.timestamp.difference.max.ms` is used (KIP-937, as in Kafka 3.9).
    """
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_KEYS[name].parse(text)
        except InvalidValue as error:
            logger.warning("ignoring a topic configuration: %s", error)
        except KeyError:
            logger.warning("ignoring a topic configuration: unknown key %s", name)
    settings = _settings(config, values)
    if _lacks_header(settings):  # the broker's default has changed since the override was stored
        logger.warning("compacting a topic by offset instead: %s", NEEDS_HEADER)
    return settings


def validate_topic_configs(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """Check the overrides of a topic, alone and together; a null value is invalid. BrokerError (INVALID_CONFIG)."""
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise _invalid(f"Unknown topic configuration {name[:200]!r}{_suggestion(name[:200])}")
        if text is None:
            raise _invalid(f"{name} must not be null")
        try:
            values[name] = key.parse(text)
        except InvalidValue as error:
            raise _invalid(str(error)) from None
    settings = _settings(config, values)
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise _invalid(
            f"min.compaction.lag.ms ({settings.min_compaction_lag_ms}) must not be above "
            f"max.compaction.lag.ms ({settings.max_compaction_lag_ms})"
        )
    if _lacks_header(settings):
        raise _invalid(NEEDS_HEADER)


def _suggestion(name: str) -> str:
    of_broker = [key for key, server in SERVER_KEYS.items() if name in {synonym.name for synonym in synonyms(server)}]
    similar = [*of_broker, *similar_names(name, TOPIC_KEYS, cutoff=0.85)]
    return f" (did you mean {similar[0]}?)" if similar else ""


def _lacks_header(settings: TopicSettings) -> bool:
    return settings.compaction_strategy == "header" and not settings.compaction_strategy_header


def _settings(config: BrokerConfig, overrides: Mapping[str, Value]) -> TopicSettings:
    values: dict[str, Any] = {}  # the keys' types are those of the fields
    for name, key in TOPIC_KEYS.items():
        value = overrides.get(name)
        if value is None and name in SERVER_KEYS:
            value = config.value(SERVER_KEYS[name])
        values[field_name(name)] = key.default if value is None else value
    for limit in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
        if values[limit] == LONG_MAX:
            values[limit] = values["message_timestamp_difference_max_ms"]
    return TopicSettings(**values)


def field_name(key: str) -> str:
    """The field of TopicSettings for a topic key."""
    return key.replace(".", "_")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, message)
