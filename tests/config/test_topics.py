from __future__ import annotations

import dataclasses
import logging

import pytest

from tests.config.configs import broker_config
from txbroker.broker.settings import log_config
from txbroker.config.topic_keys import TOPIC_KEYS
from txbroker.config.topics import NEEDS_HEADER, TopicSettings, field_name, topic_settings, validate_topic_configs
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.cleaner.cleaning_job import Strategy


def test_each_key_has_a_field() -> None:
    assert [field.name for field in dataclasses.fields(TopicSettings)] == [field_name(name) for name in TOPIC_KEYS]


def test_defaults() -> None:
    settings = topic_settings(broker_config(), {})
    assert settings.cleanup_policy == ("delete",)
    assert settings.retention_ms == 604_800_000
    assert settings.segment_ms == 604_800_000
    assert settings.segment_jitter_ms == 0
    assert settings.flush_ms == 2**63 - 1
    assert settings.min_cleanable_dirty_ratio == 0.5
    assert settings.preallocate is False
    assert settings.leader_replication_throttled_replicas == ()
    assert settings.max_message_bytes == 1_048_588


def test_every_field_has_its_declared_type() -> None:
    settings = topic_settings(broker_config(), {})
    kinds = {"int": int, "bool": bool, "str": str, "float": float, "tuple[str, ...]": tuple}
    for field in dataclasses.fields(TopicSettings):
        assert type(getattr(settings, field.name)) is kinds[str(field.type)], field.name


def test_topic_overrides_have_precedence_over_the_broker() -> None:
    config = broker_config("log.retention.hours=1\nlog.cleanup.policy=compact\nlog.segment.bytes=1000\nmin.insync.replicas=2")
    config.set_dynamic({"log.segment.bytes": "2000"}, {"log.cleanup.policy": "compact,delete"})
    settings = topic_settings(config, {"min.insync.replicas": "3", "flush.messages": "1"})
    assert (settings.retention_ms, settings.cleanup_policy, settings.segment_bytes) == (3_600_000, ("compact", "delete"), 2000)
    assert (settings.min_insync_replicas, settings.flush_messages) == (3, 1)


def test_invalid_stored_overrides_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "txbroker.config"):
        settings = topic_settings(broker_config(), {"segment.bytes": "13", "unheard.of": "1", "retention.ms": "5"})
    assert (settings.segment_bytes, settings.retention_ms) == (1 << 30, 5)
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring a topic configuration: segment.bytes is '13'; it must be at least 14",
        "ignoring a topic configuration: unknown key unheard.of",
    ]


@pytest.mark.parametrize(
    ("overrides", "before", "after"),
    [
        ({}, 2**63 - 1, 2**63 - 1),
        ({"message.timestamp.difference.max.ms": "5"}, 5, 5),
        ({"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"}, 5, 7),
        ({"message.timestamp.before.max.ms": "6"}, 6, 2**63 - 1),
    ],
)
def test_the_older_timestamp_limit_is_the_default_of_the_newer_ones(overrides: dict[str, str], before: int, after: int) -> None:
    settings = topic_settings(broker_config(), overrides)
    assert (settings.message_timestamp_before_max_ms, settings.message_timestamp_after_max_ms) == (before, after)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"cleanup.policy": ""},
        {"compaction.strategy": ""},
        {"compaction.strategy": "timestamp"},
        {"compaction.strategy": "header", "compaction.strategy.header": "version"},
        {"compaction.strategy.header": "version", "compaction.strategy": "header"},
        {"compaction.strategy.header": "version"},
        {"cleanup.policy": "compact ,  delete"},
        {"cleanup.policy": "delete,delete"},
        {"preallocate": "TRUE"},
        {"segment.bytes": " 1048576 "},
        {"segment.bytes": "+2000"},
        {"min.cleanable.dirty.ratio": ".5"},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": ""},
        {"message.format.version": "0.10.0"},
        {"max.message.bytes": "2147483647"},
        {"local.retention.ms": "2000", "retention.ms": "1000"},
        {"remote.storage.enable": "false"},
    ],
)
def test_accepted_values(overrides: dict[str, str]) -> None:
    validate_topic_configs(broker_config(), overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"nope": "1"}, "Unknown topic configuration 'nope'"),
        ({"log.retention.ms": "1"}, "Unknown topic configuration 'log.retention.ms' (did you mean retention.ms?)"),
        ({"log.retention.hours": "1"}, "Unknown topic configuration 'log.retention.hours' (did you mean retention.ms?)"),
        ({"message.max.bytes": "1"}, "Unknown topic configuration 'message.max.bytes' (did you mean max.message.bytes?)"),
        ({"cleanup.polcy": "1"}, "Unknown topic configuration 'cleanup.polcy' (did you mean cleanup.policy?)"),
        ({"retention.ms": None}, "retention.ms must not be null"),
        ({"retention.ms": "abc"}, "retention.ms is 'abc'; it must be a whole number from -9223372036854775808 to 9223372036854775807"),
        ({"retention.ms": "-2"}, "retention.ms is '-2'; it must be at least -1"),
        ({"cleanup.policy": "foo"}, "cleanup.policy is 'foo'; it must be a list of compact, delete"),
        ({"compaction.strategy": "latest"}, "compaction.strategy is 'latest'; it must be one of offset, timestamp, header"),
        ({"compaction.strategy": "OFFSET"}, "compaction.strategy is 'OFFSET'; it must be one of offset, timestamp, header"),
        ({"compaction.strategy": "header"}, NEEDS_HEADER),
        ({"compaction.strategy.header": " ", "compaction.strategy": "header"}, NEEDS_HEADER),
        ({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"},
         "min.compaction.lag.ms (100) must not be above max.compaction.lag.ms (10)"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level is '0'; it must be from 1 to 9, or -1"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level is '23'; it must be from -131072 to 22"),
        ({"compression.lz4.level": "0"}, "compression.lz4.level is '0'; it must be from 1 to 17"),
        ({"compression.type": "LZ4"}, "compression.type is 'LZ4'; it must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"segment.bytes": "13"}, "segment.bytes is '13'; it must be at least 14"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "min.cleanable.dirty.ratio is '1.5'; it must be from 0 to 1"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable is 'true'; it must be false: tiered storage is not supported"),
        ({"message.timestamp.type": "createtime"}, "message.timestamp.type is 'createtime'; it must be one of CreateTime, LogAppendTime"),
        ({"unclean.leader.election.enable": ""}, "unclean.leader.election.enable is ''; it must be true or false"),
    ],
)
def test_refused_values(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(BrokerError) as caught:
        validate_topic_configs(broker_config(), overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == message


def test_values_are_validated_with_the_defaults_of_the_broker() -> None:
    config = broker_config("log.cleaner.max.compaction.lag.ms=10")
    with pytest.raises(BrokerError, match=r"min\.compaction\.lag\.ms \(11\) must not be above max\.compaction\.lag\.ms \(10\)"):
        validate_topic_configs(config, {"min.compaction.lag.ms": "11"})
    validate_topic_configs(config, {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "11"})


def test_the_compaction_strategy_is_validated_with_the_defaults_of_the_broker() -> None:
    config = broker_config("log.cleaner.compaction.strategy=header\nlog.cleaner.compaction.strategy.header=version")
    validate_topic_configs(config, {})
    validate_topic_configs(config, {"compaction.strategy": "header"})
    with pytest.raises(BrokerError, match=NEEDS_HEADER):
        validate_topic_configs(config, {"compaction.strategy.header": ""})
    named = broker_config("log.cleaner.compaction.strategy.header=version")
    validate_topic_configs(named, {"compaction.strategy": "header"})
    assert topic_settings(named, {"compaction.strategy": "header"}).compaction_strategy_header == "version"


def test_a_strategy_without_its_header_key_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "txbroker.config"):
        settings = topic_settings(broker_config(), {"compaction.strategy": "header"})
    assert log_config(settings).compaction_strategy is Strategy.OFFSET
    assert "compacting a topic by offset" in caplog.text


@pytest.mark.parametrize(
    ("strategy", "header", "expected"),
    [
        ("", "", Strategy.OFFSET),
        ("offset", "v", Strategy.OFFSET),
        ("timestamp", "", Strategy.TIMESTAMP),
        ("header", "v", Strategy.HEADER),
    ],
)
def test_logs_get_their_compaction_strategy(strategy: str, header: str, expected: Strategy) -> None:
    settings = topic_settings(broker_config(), {"compaction.strategy": strategy, "compaction.strategy.header": header})
    made = log_config(settings)
    assert (made.compaction_strategy, made.compaction_strategy_header) == (expected, header)
    assert log_config(settings, is_internal=True).compaction_strategy is Strategy.OFFSET
