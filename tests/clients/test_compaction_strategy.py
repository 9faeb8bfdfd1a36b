"""The configuration keys of KIP-280: which values are refused, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.admin import AlterConfigsRequest, CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

from tests.support.broker import BrokerProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
INVALID_CONFIG, INVALID_REQUEST = 40, 42
OF_TOPIC, OF_ALL_BROKERS, STATIC, DEFAULT = 1, 3, 4, 5
STRATEGY, HEADER = "compaction.strategy", "compaction.strategy.header"


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("KIP-280 is in no release of Apache Kafka")
    with RawConnection(broker.address) as opened:
        yield opened


def created(connection: RawConnection, topic: str, configs: dict[str, str]) -> tuple[int, str]:
    creatable = CreateTopicsRequest.CreatableTopic
    entries = [creatable.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    wanted = creatable(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=entries)
    (answer,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 5).topics
    return answer.error_code, answer.error_message


def altered(connection: RawConnection, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> tuple[int, str]:
    request = IncrementalAlterConfigsRequest(resources=[(kind, name, list(changes))], validate_only=False)
    (answer,) = connection.call(request, 1).responses
    return answer.error_code, answer.error_message


def reported(connection: RawConnection, topic: str) -> dict[str, tuple[str, int]]:
    (answer,) = connection.call(DescribeConfigsRequest(resources=[(TOPIC, topic, [STRATEGY, HEADER])], include_synonyms=True), 4).results
    assert answer.error_code == 0, answer
    return {config.name: (config.value, config.config_source) for config in answer.configs}


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({STRATEGY: "newest"}, "it must be one of offset, timestamp, header"),
        ({STRATEGY: "header"}, "must name the header"),
        ({HEADER: "", STRATEGY: "header"}, "must name the header"),
    ],
)
def test_wrong_values_are_refused_at_creation(connection: RawConnection, name: str, configs: dict[str, str], problem: str) -> None:
    code, message = created(connection, name, configs)
    assert (code, problem in message) == (INVALID_CONFIG, True)


def test_wrong_values_are_refused_at_alteration(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name, 1, {})
    assert altered(connection, name, (STRATEGY, SET, "header"))[0] == INVALID_CONFIG
    assert altered(connection, name, (STRATEGY, SET, "Offset"))[0] == INVALID_CONFIG
    assert altered(connection, name, (STRATEGY, SET, "header"), (HEADER, SET, "version")) == (0, None)
    code, message = altered(connection, name, (HEADER, DELETE, None))
    assert (code, "must name the header" in message) == (INVALID_CONFIG, True)
    request = AlterConfigsRequest(resources=[(TOPIC, name, [(STRATEGY, "header")])], validate_only=False)
    (answer,) = connection.call(request, 1).responses
    assert answer.error_code == INVALID_CONFIG, "all values are replaced, also the header's name"
    assert reported(connection, name) == {STRATEGY: ("header", OF_TOPIC), HEADER: ("version", OF_TOPIC)}
    assert altered(connection, name, (STRATEGY, DELETE, None), (HEADER, DELETE, None)) == (0, None)
    assert reported(connection, name) == {STRATEGY: ("offset", DEFAULT), HEADER: ("", DEFAULT)}


def test_topics_follow_the_brokers_default(start_broker: Callable[..., Server], broker: Server, name: str) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("KIP-280 is in no release of Apache Kafka")
    own = start_broker({"log.cleaner.compaction.strategy.header": "version"})
    create_topic(own, name, 1, {STRATEGY: "header"})
    with RawConnection(own.address) as connection:
        assert reported(connection, name) == {STRATEGY: ("header", OF_TOPIC), HEADER: ("version", STATIC)}
        default = "log.cleaner.compaction.strategy"
        assert altered(connection, "", (default, SET, "latest"), kind=BROKER)[0] == INVALID_REQUEST
        assert altered(connection, "", (default, SET, "timestamp"), kind=BROKER) == (0, None)
        create_topic(own, f"{name}-b", 1, {})
        assert reported(connection, f"{name}-b")[STRATEGY] == ("timestamp", OF_ALL_BROKERS)
