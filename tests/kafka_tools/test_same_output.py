"""Output for scripts: txbroker's commands and Apache Kafka's tools print the same columns and words on the same broker."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.cli.commands import fill
from tests.cli.commands import run as run_ours
from tests.support.java import run as run_kafkas
from tests.support.raw_admin import create_topic
from tests.support.server import Server

pytestmark = pytest.mark.process


def words(text: str) -> list[list[str]]:
    """The words of each line, in order of the lines' text: Kafka's tools print rows in the order of a hash table."""
    return sorted(line.split() for line in text.splitlines())


def both(broker: Server, tool: str, command: str, flags: Iterable[str]) -> tuple[list[list[str]], list[list[str]]]:
    arguments = ("--bootstrap-server", broker.address, *flags)
    return words(run_ours(command, *arguments)[0]), words(run_kafkas(tool, *arguments))


def test_groups_offsets_and_configurations(broker: Server, name: str) -> None:
    create_topic(broker, name, 3, {"segment.bytes": "1048576", "retention.ms": "-1"})
    fill(broker, name, {0: 10, 2: 5})
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=name, enable_auto_commit=False)
    consumer.assign([TopicPartition(name, 0)])
    consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(4, "", -1), TopicPartition(name, 1): OffsetAndMetadata(0, "", 0)})
    consumer.close()

    ours, kafkas = both(broker, "kafka-consumer-groups", "groups", ("--describe", "--group", name, "--verbose"))
    assert ours == kafkas
    assert [name, name, "0", "-", "4", "10", "6", "-", "-", "-"] in ours
    reset = ("--reset-offsets", "--group", name, "--all-topics", "--to-latest", "--dry-run")
    ours, kafkas = both(broker, "kafka-consumer-groups", "groups", reset)
    assert ours == kafkas
    assert [name, name, "0", "10"] in ours
    ours, kafkas = both(broker, "kafka-configs", "configs", ("--describe", "--entity-type", "topics", "--entity-name", name, "--all"))
    assert ours == kafkas
    assert len(ours) > 20
    ours, kafkas = both(broker, "kafka-get-offsets", "get-offsets", ("--topic-partitions", f"{name}:0-2", "--time", "max-timestamp"))
    assert ours == kafkas == [[f"{name}:0:9"]]


def test_topics_and_versions(broker: Server, name: str) -> None:
    create_topic(broker, name, 2, {"segment.bytes": "1048576"})
    flags = ("--bootstrap-server", broker.address)
    describe = (*flags, "--describe", "--topic", name)
    # 4.3.1 asks DescribeTopicPartitions, and has two more fields (KIP-966) than 3.9.1 when that asks Metadata.
    kafkas = re.sub(r"\tElr: [^\t]*\tLastKnownElr: [^\t\n]*", "", run_kafkas("kafka-topics", *describe))
    assert words(run_ours("topics", *describe)[0]) == words(kafkas)
    ours, theirs = run_ours("broker-api-versions", *flags)[0], run_kafkas("kafka-broker-api-versions", *flags)
    assert ours.splitlines()[0] == theirs.splitlines()[0]
    supported = re.compile(r"^\t\w+\(\d+\): \d+(?: to \d+)? \[usable: \d+\]", re.M)
    assert set(supported.findall(ours)) <= set(supported.findall(theirs)), "some versions are usable for their client only"
    assert len(supported.findall(ours)) > 30


def test_the_brokers_of_a_cluster(broker: Server) -> None:
    for command in ("cluster-id", "list-endpoints"):
        arguments = (command, "--bootstrap-server", broker.address)
        ours = words(run_ours("cluster", *arguments)[0])
        assert ours == words(run_kafkas("kafka-cluster", *arguments).replace("null", "-"))
    assert ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"] in ours
    _, complaint = run_ours("cluster", "unregister", "--bootstrap-server", broker.address, "--id", "7", status=1)
    assert "broker 7 cannot be unregistered: in a cluster on ZooKeeper a registration ends with the broker's session" in complaint
