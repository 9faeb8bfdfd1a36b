from __future__ import annotations

import logging

import pytest

from tests.config.configs import broker_config
from txbroker.config.describe import Synonym, describe_broker, describe_default, describe_topic
from txbroker.config.keys import Type
from txbroker.config.resolve import BrokerConfig, Source
from txbroker.config.topic_keys import TOPIC_KEYS

TOPIC, BROKER, DEFAULT_BROKER, STATIC, DEFAULT = (
    Source.DYNAMIC_TOPIC_CONFIG, Source.DYNAMIC_BROKER_CONFIG, Source.DYNAMIC_DEFAULT_BROKER_CONFIG, Source.STATIC_BROKER_CONFIG,
    Source.DEFAULT_CONFIG,
)


def test_the_numbers_of_sources_and_types_are_those_of_describe_configs() -> None:
    assert [source.value for source in (TOPIC, BROKER, DEFAULT_BROKER, STATIC, DEFAULT)] == [1, 2, 3, 4, 5]
    assert [type_.name for type_ in sorted(Type)] == [
        "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
    ]


@pytest.mark.parametrize(
    ("static", "override", "default", "broker", "expected"),
    [
        ("", None, None, None, 1048588),
        ("message.max.bytes=1", None, None, None, 1),
        ("message.max.bytes=1", "2", None, None, 2),
        ("message.max.bytes=1", "2", "3", None, 3),
        ("message.max.bytes=1", "2", "3", "4", 4),
        ("", None, None, "4", 4),
        ("", None, "3", None, 3),
    ],
)
def test_precedence_on_the_broker(static: str, override: str | None, default: str | None, broker: str | None, expected: int) -> None:
    config = broker_config(static, *([f"message.max.bytes={override}"] if override else []))
    config.set_dynamic({"message.max.bytes": broker} if broker else {}, {"message.max.bytes": default} if default else {})
    assert config.int("message.max.bytes") == expected


def test_dynamic_values_are_replaced_as_a_whole() -> None:
    config = broker_config("max.connections=10")
    config.set_dynamic({"max.connections": "20"}, {"message.max.bytes": "5"})
    assert (config.int("max.connections"), config.int("message.max.bytes")) == (20, 5)
    config.set_dynamic({}, {})
    assert (config.int("max.connections"), config.int("message.max.bytes")) == (10, 1048588)


def test_a_candidate_does_not_change_the_configuration() -> None:
    config = broker_config()
    config.set_dynamic({"max.connections": "20"}, {"max.connections": "30"})
    assert config.candidate(broker={}).int("max.connections") == 30
    assert config.candidate(default={"max.connections": "40"}).int("max.connections") == 20
    assert config.candidate(broker={}, default={}).int("max.connections") == 2**31 - 1
    assert config.int("max.connections") == 20


def test_invalid_dynamic_values_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    config = broker_config()
    with caplog.at_level(logging.WARNING, "txbroker.config"):
        config.set_dynamic({"max.connections": "x", "num.partitions": "5", "unknown.key": "1"}, {"message.max.bytes": "7"})
    assert [config.int(name) for name in ("max.connections", "num.partitions", "message.max.bytes")] == [2**31 - 1, 1, 7]
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring a dynamic value: max.connections is 'x'; it must be a whole number from -2147483648 to 2147483647",
        "ignoring a dynamic value: num.partitions cannot be changed while the broker runs",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 168 * 3_600_000),
        ("log.retention.hours=1", 3_600_000),
        ("log.retention.hours=1\nlog.retention.minutes=2", 120_000),
        ("log.retention.ms=5\nlog.retention.hours=1\nlog.retention.minutes=2", 5),
        ("log.retention.hours=-1", -1),
        ("log.retention.minutes=-1\nlog.retention.hours=1", -1),
    ],
)
def test_synonyms_are_used_in_their_order(text: str, expected: int) -> None:
    assert broker_config(text).int("log.retention.ms") == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("log.roll.ms", "", 168 * 3_600_000),
        ("log.roll.ms", "log.roll.hours=2", 7_200_000),
        ("log.roll.ms", "log.roll.hours=2\nlog.roll.ms=3", 3),
        ("log.roll.jitter.ms", "", 0),
        ("log.roll.jitter.ms", "log.roll.jitter.hours=2", 7_200_000),
        ("log.flush.interval.ms", "", 2**63 - 1),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms=9", 9),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms=9\nlog.flush.interval.ms=8", 8),
    ],
)
def test_other_synonyms(name: str, text: str, expected: int) -> None:
    assert broker_config(text).int(name) == expected


def test_log_directories() -> None:
    assert broker_config("log.dir=/a").list("log.dirs") == ("/a",)
    assert broker_config("log.dirs=/b, /c\nlog.dir=/a").list("log.dirs") == ("/b", "/c")


def test_typed_access() -> None:
    config = broker_config("broker.rack=r1\nlog.cleanup.policy=compact,delete")
    assert config.boolean("delete.topic.enable") is True
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.text("broker.rack") == config.optional_text("broker.rack") == "r1"
    assert config.optional_text("inter.broker.listener.name") is None
    assert config.list("log.cleanup.policy") == ("compact", "delete")
    assert config.list("sasl.oauthbearer.expected.audience") == ()


def test_access_with_the_wrong_type_raises() -> None:
    config = broker_config()
    with pytest.raises(KeyError):
        config.int("no.such.key")
    for ask, name in [
        (config.int, "listeners"), (config.int, "delete.topic.enable"), (config.int, "zookeeper.connection.timeout.ms"),
        (config.boolean, "num.partitions"), (config.text, "num.partitions"), (config.text, "broker.rack"),
        (config.double, "num.partitions"), (config.list, "num.partitions"),
    ]:
        with pytest.raises(TypeError, match=name):
            ask(name)


def dynamic_config() -> BrokerConfig:
    config = broker_config("log.retention.hours=24\nlog.roll.ms=3600000\ncompression.type=lz4\nssl.keystore.password=hunter2\nfoo.bar=1")
    config.set_dynamic({"log.retention.bytes": " 55 ", "custom": "x"}, {"log.retention.ms": "777777", "message.max.bytes": "2000000"})
    return config


@pytest.mark.parametrize(
    ("name", "value", "synonyms"),
    [
        ("retention.ms", "777777", [("log.retention.ms", "777777", DEFAULT_BROKER), ("log.retention.hours", "24", STATIC),
                                    ("log.retention.hours", "168", DEFAULT)]),
        ("segment.ms", "3600000", [("log.roll.ms", "3600000", STATIC), ("log.roll.hours", "168", DEFAULT)]),
        ("compression.type", "lz4", [("compression.type", "lz4", STATIC), ("compression.type", "producer", DEFAULT)]),
        ("max.message.bytes", "2000000", [("message.max.bytes", "2000000", DEFAULT_BROKER), ("message.max.bytes", "1048588", DEFAULT)]),
        ("retention.bytes", "1000", [("retention.bytes", "1000", TOPIC), ("log.retention.bytes", "55", BROKER),
                                     ("log.retention.bytes", "-1", DEFAULT)]),
        ("min.cleanable.dirty.ratio", "0.5",
         [("min.cleanable.dirty.ratio", "0.5", TOPIC), ("log.cleaner.min.cleanable.ratio", "0.5", DEFAULT)]),
        ("preallocate", "true", [("preallocate", "true", TOPIC), ("log.preallocate", "false", DEFAULT)]),
        ("cleanup.policy", "compact,delete", [("cleanup.policy", "compact,delete", TOPIC), ("log.cleanup.policy", "delete", DEFAULT)]),
        ("segment.jitter.ms", "0", [("log.roll.jitter.hours", "0", DEFAULT)]),
        ("leader.replication.throttled.replicas", "", []),
    ],
)
def test_a_topic_is_described_with_source_and_synonyms(name: str, value: str, synonyms: list[tuple[str, str, Source]]) -> None:
    overrides = {
        "retention.bytes": "1000", "min.cleanable.dirty.ratio": "0.50", "preallocate": "TRUE", "cleanup.policy": " compact , delete ",
        "segment.jitter.ms": "what", "unheard.of": "1",
    }
    entries = {entry.name: entry for entry in describe_topic(dynamic_config(), overrides)}
    assert len(entries) == len(TOPIC_KEYS)
    entry = entries[name]
    assert entry.value == value
    assert entry.synonyms == tuple(Synonym(*synonym) for synonym in synonyms)
    assert entry.source == (synonyms[0][2] if synonyms else DEFAULT)
    assert not entry.read_only
    assert not entry.sensitive
    assert entry.documentation


@pytest.mark.parametrize(
    ("name", "value", "source", "synonyms"),
    [
        ("log.retention.ms", "777777", DEFAULT_BROKER, ["log.retention.ms=777777", "log.retention.hours=24", "log.retention.hours=168"]),
        ("log.retention.hours", "24", STATIC, ["log.retention.hours=24", "log.retention.hours=168"]),
        ("log.retention.minutes", None, DEFAULT, []),
        ("log.retention.bytes", "55", BROKER, ["log.retention.bytes=55", "log.retention.bytes=-1"]),
        ("ssl.keystore.password", None, STATIC, ["ssl.keystore.password=None"]),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", DEFAULT,
         ["log.cleaner.io.max.bytes.per.second=1.7976931348623157E308"]),
        ("broker.rack", None, DEFAULT, []),
        ("foo.bar", None, STATIC, ["foo.bar=None"]),
        ("custom", None, BROKER, ["custom=None"]),
    ],
)
def test_the_broker_is_described(name: str, value: str | None, source: Source, synonyms: list[str]) -> None:
    entries = {entry.name: entry for entry in describe_broker(dynamic_config())}
    entry = entries[name]
    assert (entry.value, entry.source) == (value, source)
    assert [f"{synonym.name}={synonym.value}" for synonym in entry.synonyms] == synonyms


def test_a_broker_key_that_is_not_set_has_no_value_of_its_synonyms() -> None:
    entries = {entry.name: entry for entry in describe_broker(broker_config("log.retention.hours=24"))}
    entry = entries["log.retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, ())
    assert entries["log.retention.hours"].value == "24"


def test_sensitive_and_read_only_values() -> None:
    entries = {entry.name: entry for entry in describe_broker(dynamic_config())}
    assert [name for name in ("ssl.keystore.password", "foo.bar", "ssl.keystore.location") if entries[name].sensitive] == [
        "ssl.keystore.password", "foo.bar",
    ]
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert entries["foo.bar"].type is Type.UNKNOWN
    assert not any("hunter2" in str(entry) for entry in entries.values())
    assert entries["num.io.threads"].documentation.endswith("Accepted, but without effect on this broker.")


def test_the_cluster_default_is_described() -> None:
    assert [(entry.name, entry.value, entry.source, len(entry.synonyms)) for entry in describe_default(dynamic_config())] == [
        ("log.retention.ms", "777777", DEFAULT_BROKER, 1), ("message.max.bytes", "2000000", DEFAULT_BROKER, 1),
    ]
