"""Compaction and expiry requested by clients in several languages through topic configurations, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ResourceType
from confluent_kafka.admin import ConfigResource as LibrdkafkaResource
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.protocol.admin import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.java import ToolFailed
from tests.support.java import run as java
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
POLICY_VIOLATION, INVALID_REQUEST, INVALID_CONFIG, UNKNOWN_TOPIC = 44, 42, 40, 3
OPERATIONS = ("txbroker.compact", "txbroker.expire", "txbroker.cleaner")  # only described when they are named
COMPACTED = {"cleanup.policy": "compact", "retention.ms": "-1"}


@pytest.fixture(autouse=True)
def _ours(broker: Server) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("the operations are txbroker's own")


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


def write(broker: Server, topic: str, rounds: int, *, partitions: int = 1, keys: int = 10) -> None:
    """Produce `rounds` values of each key to every partition."""
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(rounds):
            for partition in range(partitions):
                for key in range(keys):
                    producer.send(topic, key=b"%d" % key, value=b"%d" % number, partition=partition)
        producer.flush()


def left(broker: Server, topic: str, partition: int = 0) -> list[tuple[bytes, bytes]]:
    """The keys and values of all records of a partition."""
    place = TopicPartition(topic, partition)
    found: list[tuple[bytes, bytes]] = []
    with KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [(record.key, record.value) for records in consumer.poll(1000).values() for record in records]
    return found


def latest(rounds: int, keys: int = 10) -> list[tuple[bytes, bytes]]:
    return [(b"%d" % key, b"%d" % (rounds - 1)) for key in range(keys)]


def alter(connection: RawConnection, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, only: bool = False) -> Any:
    """IncrementalAlterConfigs of one resource: (error code, message)."""
    request = IncrementalAlterConfigsRequest(resources=[(kind, name, list(changes))], validate_only=only)
    (answer,) = connection.call(request, 1).responses
    return answer.error_code, answer.error_message


def described(connection: RawConnection, name: str, keys: list[str] | None) -> dict[str, Any]:
    (answer,) = connection.call(DescribeConfigsRequest(resources=[(TOPIC, name, keys)], include_synonyms=False), 4).results
    assert answer.error_code == 0, answer
    return {config.name: config for config in answer.configs}


def test_kafka_python(broker: Server, name: str) -> None:
    create_topic(broker, name, 2, COMPACTED)
    write(broker, name, 5, partitions=2)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.alter_configs([ConfigResource("TOPIC", name, {"txbroker.compact": "roll"})], raise_on_unknown=False)
    finally:
        admin.close()
    assert left(broker, name, 0) == left(broker, name, 1) == latest(5)


def test_librdkafka(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, COMPACTED)
    write(broker, name, 4)
    admin = AdminClient({"bootstrap.servers": broker.address})

    def ask(topic: str, value: str) -> None:
        entry = ConfigEntry("txbroker.compact", value, incremental_operation=AlterConfigOpType.SET)
        resource = LibrdkafkaResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(PATIENCE_S)

    ask(name, "roll")
    assert left(broker, name) == latest(4)
    with pytest.raises(KafkaException, match="it must be now or roll"):
        ask(name, "soon")


@pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
def test_apache_kafkas_tool_with_the_java_client(broker: Server, name: str, release: str) -> None:
    create_topic(broker, name, 1, COMPACTED)
    write(broker, name, 3)

    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "topics", "--entity-name", name)
        return java("kafka-configs", "--bootstrap-server", broker.address, *entity, *arguments, release=release)

    configs("--alter", "--add-config", "txbroker.compact=roll")
    assert left(broker, name) == latest(3)
    everything = configs("--describe", "--all")
    assert not any(key in everything for key in OPERATIONS)
    with pytest.raises(ToolFailed, match="set it alone"):
        configs("--alter", "--add-config", "txbroker.compact=now,retention.ms=1")


def test_clients_that_have_alter_configs_only_do_not_reset_the_rest(broker: Server, name: str, connection: RawConnection) -> None:
    """The request that kafkajs sends."""
    create_topic(broker, name, 1, {**COMPACTED, "segment.ms": "77777777"})
    write(broker, name, 3)
    for version in (0, 1, 2):
        request = AlterConfigsRequest(resources=[(TOPIC, name, [("txbroker.compact", "roll")])], validate_only=False)
        (answer,) = connection.call(request, version).responses
        assert (answer.error_code, answer.error_message) == (0, None)
    assert left(broker, name) == latest(3)
    assert described(connection, name, ["segment.ms"])["segment.ms"].value == "77777777"
    assert described(connection, name, ["cleanup.policy"])["cleanup.policy"].value == "compact"


def test_operations_that_are_refused(broker: Server, name: str, connection: RawConnection) -> None:
    create_topic(broker, name, 1, {})
    roll = ("txbroker.compact", SET, "roll")
    code, message = alter(connection, name, roll)
    assert (code, message) == (POLICY_VIOLATION, f"cleanup.policy of {name} has no compact")
    assert alter(connection, name, roll, only=True)[0] == POLICY_VIOLATION
    assert alter(connection, f"no-{name}", roll)[0] == UNKNOWN_TOPIC
    assert alter(connection, "", roll, kind=BROKER)[0] == INVALID_REQUEST
    code, message = alter(connection, name, roll, ("retention.ms", SET, "1000"))
    assert (code, "set it alone" in message) == (INVALID_REQUEST, True)
    assert alter(connection, name, ("txbroker.expire", SET, "roll"))[0] == INVALID_CONFIG
    assert alter(connection, name, ("txbroker.cleaner", SET, "x"))[0] == INVALID_CONFIG
    assert described(connection, name, None)["retention.ms"].config_source == 5, "nothing was stored"


def test_validate_only_changes_nothing(broker: Server, name: str, connection: RawConnection) -> None:
    create_topic(broker, name, 1, COMPACTED)
    write(broker, name, 3)
    assert alter(connection, name, ("txbroker.compact", SET, "roll"), only=True) == (0, None)
    assert len(left(broker, name)) == 30
    assert alter(connection, name, ("txbroker.compact", SET, "now")) == (0, None)
    assert len(left(broker, name)) == 30, "all records are in the active segment"


def test_operations_continue_when_the_client_disconnects(broker: Server, name: str, connection: RawConnection) -> None:
    create_topic(broker, name, 1, COMPACTED)
    write(broker, name, 3)
    with RawConnection(broker.address) as impatient:
        changes = [("txbroker.compact", SET, "roll")]
        impatient.send(IncrementalAlterConfigsRequest(resources=[(TOPIC, name, changes)], validate_only=False), 1)

    def clean_up_to() -> int:
        reported = json.loads(described(connection, name, ["txbroker.cleaner.0"])["txbroker.cleaner.0"].value)
        return int(reported["first_dirty_offset"])

    until(lambda: clean_up_to() == 30, "it is done without its client")
    assert left(broker, name) == latest(3)


def test_expiry(broker: Server, name: str, connection: RawConnection) -> None:
    create_topic(broker, name, 1, {"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(5):
            producer.send(name, b"%d" % number, timestamp_ms=1_600_000_000_000)
        producer.flush()
    assert alter(connection, name, ("txbroker.expire", SET, "now")) == (0, None)
    assert len(left(broker, name)) == 5
    assert alter(connection, name, ("retention.ms", SET, "1000")) == (0, None)

    assert alter(connection, name, ("txbroker.expire", SET, "now")) == (0, None)
    assert left(broker, name) == []


def test_status(broker: Server, name: str, connection: RawConnection) -> None:
    create_topic(broker, name, 2, COMPACTED)
    write(broker, name, 3, partitions=2)

    def status(*keys: str) -> dict[str, Any]:
        found = described(connection, name, list(keys))
        assert all(config.read_only for config in found.values())
        return {key: json.loads(config.value) for key, config in found.items()}

    assert not any(key.startswith(OPERATIONS) for key in described(connection, name, None))
    both = status("txbroker.cleaner")["txbroker.cleaner"]
    assert list(both) == ["0", "1"]
    assert (both["0"]["state"], both["0"]["why"], both["0"]["last"]) == ("idle", "active-segment", None)
    assert "must be closed first" in both["0"]["why_not_now"]
    assert alter(connection, name, ("txbroker.compact", SET, "roll")) == (0, None)
    one = status("txbroker.cleaner.1", "txbroker.cleaner.7")
    assert list(one) == ["txbroker.cleaner.1"]
    reported = one["txbroker.cleaner.1"]
    assert (reported["why"], reported["first_dirty_offset"], reported["last"]["records_removed"]) == ("nothing-dirty", 30, 20)
    assert reported["last"]["bytes_freed"] > 0
    assert reported["last_ms"] is not None
