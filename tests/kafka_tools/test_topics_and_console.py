"""Apache Kafka's command line tools on a real broker. Each call starts a JVM, so each test checks much of the output of few calls."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.java import ToolFailed, command, run
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

RELEASES = pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
COUNT = 1000


@RELEASES
def test_the_topic_tool(broker: Server, name: str, release: str) -> None:
    def topics(*arguments: str) -> str:
        return run("kafka-topics", "--bootstrap-server", broker.address, *arguments, release=release)

    topics("--create", "--topic", name, "--partitions", "3", "--replication-factor", "1", "--config", "segment.bytes=1048576")
    assert name in topics("--list").split()
    with pytest.raises(ToolFailed, match="already exists"):
        topics("--create", "--topic", name)
    topics("--alter", "--topic", name, "--partitions", "5")
    described = topics("--describe", "--topic", name)
    summary = rf"Topic: {name}\s+TopicId: [\w-]{{22}}\s+PartitionCount: 5\s+ReplicationFactor: 1\s+Configs: .*segment.bytes=1048576"
    assert re.search(summary, described)
    assert [int(found) for found in re.findall(r"Partition: (\d+)\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)] == list(range(5))
    topics("--delete", "--topic", name)
    with pytest.raises(ToolFailed, match="does not exist"):
        topics("--describe", "--topic", name)


@RELEASES
def test_console_producer_and_consumer(broker: Server, name: str, release: str) -> None:
    create_topic(broker, name, 3)
    lines = [f"key-{i % 50}\tvalue {i}" for i in range(COUNT)]
    run("kafka-console-producer", "--bootstrap-server", broker.address, "--topic", name, "--compression-codec", "lz4",
        "--property", "parse.key=true", release=release, stdin="\n".join(lines) + "\n")
    options = ["--bootstrap-server", broker.address, "--topic", name, "--property", "print.key=true", "--timeout-ms", "20000"]
    read = run("kafka-console-consumer", *options, "--group", name, "--from-beginning", "--max-messages", str(COUNT), release=release)
    got = [line for line in read.splitlines() if not line.startswith("Option ")]  # 4.3.1 says that --property will be renamed
    assert sorted(got) == sorted(lines)
    for key in range(50):
        mine = [line for line in got if line.startswith(f"key-{key}\t")]
        assert mine == [line for line in lines if line.startswith(f"key-{key}\t")], "one key, one partition, one order"
    described = run("kafka-consumer-groups", "--bootstrap-server", broker.address, "--describe", "--group", name, release=release)
    rows = re.findall(rf"{name}\s+{name}\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)", described)
    assert {row[0] for row in rows} == {"0", "1", "2"}
    assert sum(int(row[1]) for row in rows) == COUNT
    assert [row[3] for row in rows] == ["0", "0", "0"], "no lag"


def test_configs_offsets_records_and_directories(broker: Server, name: str) -> None:
    create_topic(broker, name, 1)
    server = ("--bootstrap-server", broker.address)
    entity = ("--entity-type", "topics", "--entity-name", name)
    run("kafka-console-producer", *server, "--topic", name, stdin="\n".join(str(i) for i in range(100)) + "\n")
    assert run("kafka-get-offsets", *server, "--topic", name).split() == [f"{name}:0:100"]

    run("kafka-configs", *server, *entity, "--alter", "--add-config", "cleanup.policy=[compact,delete],max.message.bytes=4000")
    described = run("kafka-configs", *server, *entity, "--describe", "--all")
    policy = "compact,delete"
    assert f"cleanup.policy={policy} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:cleanup.policy={policy}, " in described
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=4000, DEFAULT_CONFIG:message.max.bytes=1048588}" in described

    wanted = broker.directory / "delete.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 40}], "version": 1}))
    run("kafka-configs", *server, *entity, "--alter", "--delete-config", "cleanup.policy")
    assert "low_watermark: 40" in run("kafka-delete-records", *server, "--offset-json-file", wanted)
    assert run("kafka-get-offsets", *server, "--topic", name, "--time", "earliest").split() == [f"{name}:0:40"]

    found = run("kafka-log-dirs", *server, "--describe", "--topic-list", name)
    assert str(broker.data) in found
    assert re.search(rf'"partition":"{name}-0","size":[1-9]', found)


def test_elections_and_reassignments_of_a_broker_alone(broker: Server, name: str) -> None:
    create_topic(broker, name, 2)
    server = ("--bootstrap-server", broker.address)
    elected = run("kafka-leader-election", *server, "--election-type", "preferred", "--topic", name, "--partition", 0)
    assert elected == f"Valid replica already elected for partitions {name}-0\n"
    wanted = broker.directory / "moves.json"
    (replica,) = re.findall(r"Replicas: (\d+)", run("kafka-topics", *server, "--describe", "--topic", name))[:1]
    partitions = [{"topic": name, "partition": number, "replicas": [int(replica)]} for number in range(2)]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    tool = ("kafka-reassign-partitions", *server)
    started = run(*tool, "--execute", "--reassignment-json-file", wanted)
    assert f"Successfully started partition reassignments for {name}-0,{name}-1\n" in started
    verified = run(*tool, "--verify", "--reassignment-json-file", wanted)
    assert f"Reassignment of partition {name}-1 is completed.\n" in verified
    assert run(*tool, "--list") == "No partition reassignments found.\n"


def test_the_advertised_versions_are_read(broker: Server) -> None:
    found = run("kafka-broker-api-versions", "--bootstrap-server", broker.address)
    ranges = {int(key): (int(low), int(high)) for key, low, high in re.findall(r"\w+\((\d+)\): (\d+) to (\d+)", found)}
    assert ranges[0][1] >= 9
    assert ranges[1][1] >= 12
    assert ranges[3][1] >= 12


def test_what_this_broker_does_not_have(start_broker: Callable[..., Server], tmp_path: Path) -> None:
    server = start_broker()
    create_topic(server, "t")
    options = ["--topic", "t", "--timeout-ms", "60000", "--consumer-property", "group.protocol=consumer"]
    consumer = command("kafka-console-consumer", KAFKA_NEW, ["--bootstrap-server", server.address, *options])
    assert "Set group.protocol=classic" in subprocess.run(consumer, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stderr
    secure = tmp_path / "secure.properties"
    secure.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
                      'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n')
    with pytest.raises(ToolFailed, match="IllegalSaslStateException"):
        run("kafka-topics", "--bootstrap-server", server.address, "--list", "--command-config", secure)
    tls = tmp_path / "tls.properties"
    tls.write_text("security.protocol=SSL\n")
    with pytest.raises(ToolFailed, match="SslAuthenticationException"):
        run("kafka-topics", "--bootstrap-server", server.address, "--list", "--command-config", tls)
    found = re.findall(r"WARNING client .* requires (the consumer group protocol|SASL|TLS)", server.log())
    assert found == ["the consumer group protocol", "SASL", "TLS"]
