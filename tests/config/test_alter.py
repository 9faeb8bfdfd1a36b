from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.alter import (
    Change,
    Operation,
    alter_broker_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_topic_configs,
)
from txbroker.errors import BrokerError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation


def test_the_numbers_of_operations_are_those_of_the_wire() -> None:
    assert [operation.value for operation in (SET, DELETE, APPEND, SUBTRACT)] == [0, 1, 2, 3]


THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("static", "current", "changes", "expected"),
    [
        ("", {}, [], {}),
        ("", {"retention.ms": "1"}, [("retention.ms", SET, "5"), ("segment.ms", SET, "6")], {"retention.ms": "5", "segment.ms": "6"}),
        ("", {"retention.ms": "1"}, [("retention.ms", DELETE, None)], {}),
        ("", {"retention.ms": "1"}, [("retention.ms", DELETE, "ignored")], {}),
        ("", {}, [("retention.ms", DELETE, None), ("no.such.key", DELETE, None)], {}),
        ("", {}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ("", {"cleanup.policy": "delete,compact"}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ("", {"cleanup.policy": "compact"}, [("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "compact,delete"}),
        ("log.cleanup.policy=compact", {}, [("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "compact,delete"}),
        ("", {"cleanup.policy": "delete,compact"}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
        ("", {"cleanup.policy": "compact"}, [("cleanup.policy", SUBTRACT, "nope")], {"cleanup.policy": "compact"}),
        ("", {"cleanup.policy": "compact"}, [("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": ""}),
        ("", {}, [(THROTTLED, APPEND, "0:1")], {THROTTLED: "0:1"}),
        ("", {THROTTLED: "0:1"}, [(THROTTLED, APPEND, "1:1, 0:1")], {THROTTLED: "0:1,1:1"}),
        ("", {THROTTLED: "0:1"}, [(THROTTLED, APPEND, "")], {THROTTLED: "0:1,"}),
        ("", {}, [("cleanup.policy", APPEND, " compact,,")], {"cleanup.policy": "delete,compact"}),
        ("", {THROTTLED: "0:1"}, [(THROTTLED, SUBTRACT, "")], {THROTTLED: "0:1"}),
        ("", {}, [(THROTTLED, SUBTRACT, "1:1")], {THROTTLED: ""}),
    ],
)
def test_incremental_changes_of_a_topic(
    static: str, current: dict[str, str], changes: list[tuple[str, Operation, str | None]], expected: dict[str, str]
) -> None:
    before = dict(current)
    assert alter_topic_configs(broker_config(static), current, [Change(*change) for change in changes]) == expected
    assert current == before


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "APPEND is not allowed: retention.ms is not a list"),
        ([("retention.ms", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG, "SUBTRACT is not allowed: retention.ms is not a list"),
        ([("nope", APPEND, "5")], ErrorCode.INVALID_CONFIG, "Unknown configuration 'nope'"),
        ([("nope", SET, "5")], ErrorCode.INVALID_CONFIG, "Unknown topic configuration 'nope'"),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG, "retention.ms is '-2'; it must be at least -1"),
        ([("cleanup.policy", APPEND, "foo")], ErrorCode.INVALID_CONFIG,
         "cleanup.policy is 'delete,foo'; it must be a list of compact, delete"),
        ([("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")], ErrorCode.INVALID_CONFIG,
         "min.compaction.lag.ms (100) must not be above max.compaction.lag.ms (10)"),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], ErrorCode.INVALID_REQUEST, "retention.ms is given twice"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "retention.ms must not be null"),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST, "cleanup.policy must not be null"),
        ([("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST, "unknown operation 4 on a configuration"),
        ([("", SET, "5")], ErrorCode.INVALID_REQUEST, "A configuration key must not be empty"),
    ],
)
def test_incremental_changes_of_a_topic_that_are_refused(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    with pytest.raises(BrokerError) as caught:
        alter_topic_configs(broker_config(), {}, [Change(*change) for change in changes])
    assert (caught.value.code, caught.value.message) == (code, message)


def test_a_topic_is_replaced() -> None:
    assert replace_topic_configs(broker_config(), [("retention.ms", "5")]) == {"retention.ms": "5"}
    for entries, code in [
        ([("retention.ms", "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "1")], ErrorCode.INVALID_REQUEST),
    ]:
        with pytest.raises(BrokerError) as caught:
            replace_topic_configs(broker_config(), entries)
        assert caught.value.code is code


@pytest.mark.parametrize("per_broker", [True, False])
def test_incremental_changes_of_brokers(per_broker: bool) -> None:
    changes = [
        Change("log.retention.ms", SET, "5000"), Change("log.cleaner.threads", SET, "2"), Change("log.cleanup.policy", APPEND, "compact"),
        Change("max.connections", DELETE, None), Change("of.a.plugin", SET, "x"),
    ]
    altered = alter_broker_configs(broker_config(), {"max.connections": "1", "message.max.bytes": "7"}, changes, per_broker=per_broker)
    assert altered == {
        "log.retention.ms": "5000", "log.cleaner.threads": "2", "log.cleanup.policy": "delete,compact", "of.a.plugin": "x",
        "message.max.bytes": "7",
    }


def test_one_broker_inherits_the_cluster_default() -> None:
    config = broker_config("log.cleanup.policy=compact")
    config.set_dynamic({"log.cleanup.policy": "compact"}, {"log.cleanup.policy": "delete"})
    append = [Change("log.cleanup.policy", APPEND, "compact")]
    assert alter_broker_configs(config, {}, append, per_broker=True) == {"log.cleanup.policy": "delete,compact"}
    assert alter_broker_configs(config, {}, append, per_broker=False) == {"log.cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitions", "3", "num.partitions cannot be changed while the broker runs"),
        ("log.retention.hours", "3", "log.retention.hours cannot be changed while the broker runs"),
        ("listeners", "PLAINTEXT://:1", "listeners cannot be changed while the broker runs"),
        ("message.max.bytes", "-5", "message.max.bytes is '-5'; it must be at least 0"),
        ("ssl.keystore.location", "/x",
         "ssl.keystore.location cannot be changed while the broker runs: set listener.name.<listener>.ssl.keystore.location"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///x", "sasl.oauthbearer.jwks.endpoint.url cannot be changed while the broker runs"),
        ("listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "http://x/",
         "listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url cannot be changed while the broker runs"),
        ("listener.name.a.sasl.oauthbearer.token.endpoint.url", "file:///x",
         "listener.name.a.sasl.oauthbearer.token.endpoint.url cannot be changed while the broker runs"),
        ("sasl.enabled.mechanisms", "PLAIN", "sasl.enabled.mechanisms cannot be changed while the broker runs"),
        ("max.connections.per.ip.overrides", "nonsense", "max.connections.per.ip.overrides is 'nonsense'; it must be a list of host:count"),
        ("max.connections.per.ip", "0",
         "max.connections.per.ip is 0, so max.connections.per.ip.overrides must be set, or no client could connect"),
        ("log.cleaner.compaction.strategy", "newest",
         "log.cleaner.compaction.strategy is 'newest'; it must be one of offset, timestamp, header"),
        ("log.cleaner.compaction.strategy", "header",
         "log.cleaner.compaction.strategy is header, so log.cleaner.compaction.strategy.header must name the header"),
        ("log.cleaner.schedule", "never", "log.cleaner.schedule is 'never'; it must be one of kafka, generational"),
        ("log.cleaner.threads", "0", "log.cleaner.threads is 0; one change can set it from 1 to 2 (half to twice of 1)"),
        ("log.cleaner.threads", "3", "log.cleaner.threads is 3; one change can set it from 1 to 2 (half to twice of 1)"),
        ("log.cleaner.dedupe.buffer.size", "1",
         "log.cleaner.dedupe.buffer.size is 1; it must be at least 1 MiB for each of log.cleaner.threads (1)"),
    ],
)
@pytest.mark.parametrize("per_broker", [True, False])
def test_changes_of_brokers_that_are_refused(name: str, value: str, message: str, per_broker: bool) -> None:
    for change in (
        lambda: alter_broker_configs(broker_config(), {}, [Change(name, SET, value)], per_broker=per_broker),
        lambda: replace_broker_configs(broker_config(), [(name, value)], per_broker=per_broker),
    ):
        with pytest.raises(BrokerError) as caught:
            change()
        assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_change_is_validated_with_the_values_of_the_other_kind() -> None:
    config = broker_config()
    config.set_dynamic({}, {"max.connections.per.ip.overrides": "a:1"})
    zero = [Change("max.connections.per.ip", SET, "0")]
    assert alter_broker_configs(config, {}, zero, per_broker=True) == {"max.connections.per.ip": "0"}
    with pytest.raises(BrokerError):
        alter_broker_configs(config, {}, zero, per_broker=False)  # replaces the default that made it valid


def test_brokers_are_replaced() -> None:
    config = broker_config()
    config.set_dynamic({"max.connections": "3"}, {})
    assert replace_broker_configs(config, [("message.max.bytes", "5")], per_broker=True) == {"message.max.bytes": "5"}
    assert config.int("max.connections") == 3
