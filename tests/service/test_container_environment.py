"""A broker with the environment of a container: KAFKA_... variables, cluster id, topics to create."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.support.raw import RawConnection
from tests.support.running import ENVIRONMENT, RUN, TWISTD, Running
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import until
from txbroker.cli.main import main

pytestmark = pytest.mark.process

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def compose(directory: Path, **more: str) -> dict[str, str]:
    """The environment of the example for Apache Kafka's image, with free ports."""
    outside, inside, controller = free_port(), free_port(), free_port()
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT_HOST://localhost:{outside},PLAINTEXT://{HOST}:{inside}",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@broker:{controller}",
        "KAFKA_LISTENERS": f"CONTROLLER://:{controller},PLAINTEXT_HOST://:{outside},PLAINTEXT://:{inside}",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_LOG_DIRS": str(directory / "data"),
        "KAFKA_HOME": "/opt/kafka",
        **more,
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(variables: Mapping[str, str], host: tuple[str, ...] = RUN, *arguments: str) -> Running:
        service = Running(host, tmp_path, "--env", *arguments, settings=[], environment={**ENVIRONMENT, **variables})
        started.append(service)
        service.wait_ready()
        return service

    yield begin
    for service in started:
        service.process.kill()
        service.process.wait()


@pytest.mark.parametrize("host", [RUN, TWISTD], ids=["run", "twistd"])
def test_a_compose_file_for_kafkas_image(host: tuple[str, ...], start: Callable[..., Running], tmp_path: Path) -> None:
    variables = compose(tmp_path, KAFKA_CREATE_TOPICS="orders:4:1,state:1:1:compact")
    service = start(variables, host)
    outside = variables["KAFKA_ADVERTISED_LISTENERS"].partition("//")[2].partition(",")[0]
    client = KafkaAdminClient(bootstrap_servers=outside)
    try:
        until(lambda: {"orders", "state"} <= set(client.list_topics()), "the topics are there")
        topics = client.describe_topics(["orders", "state"])
        assert {topic["name"]: len(topic["partitions"]) for topic in topics} == {"orders": 4, "state": 1}
        described = client.describe_cluster()
        assert described["cluster_id"] == CLUSTER_ID
        (broker,) = described["brokers"]
        assert (broker["broker_id"], f"{broker['host']}:{broker['port']}") == (1, outside)
    finally:
        client.close()
    assert service.end(signal.SIGTERM) == 0
    assert "controller" not in "".join(re.findall("listening: .*", service.written)).lower()
    assert "CONTROLLER://:" in service.written
    assert "is not opened: this broker has no KRaft controller" in service.written
    assert "KAFKA_HOME" not in service.written


def test_existing_topics_are_kept_and_invalid_ones_reported(start: Callable[..., Running], tmp_path: Path) -> None:
    variables = compose(tmp_path, KAFKA_CREATE_TOPICS="orders:4:1")
    first = start(variables)
    first.wait_for("created topic orders of KAFKA_CREATE_TOPICS with 4 partitions")
    assert first.end(signal.SIGTERM) == 0
    second = start({**variables, "KAFKA_CREATE_TOPICS": "orders:9:1,many:1:3,last:1:1", "CLUSTER_ID": "AAAAAAAAAAAAAAAAAAAAAA"})
    second.wait_for("created topic last of KAFKA_CREATE_TOPICS")
    assert second.end(signal.SIGTERM) == 0
    assert second.written.count("topic orders of") == 1, "the configuration of the first start"
    assert "cannot create topic many of KAFKA_CREATE_TOPICS: " in second.written
    assert "INVALID_REPLICATION_FACTOR" in second.written
    assert f"ignoring CLUSTER_ID=AAAAAAAAAAAAAAAAAAAAAA: the data in log.dirs belongs to cluster {CLUSTER_ID}" in second.written


def test_precedence_of_overrides_environment_and_files(start: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(f"broker.id=7\nlog.dirs={tmp_path}/data\nnum.partitions=2\nlisteners=PLAINTEXT://{HOST}:0\n")
    service = start({"KAFKA_BROKER_ID": "8", "KAFKA_NUM_PARTITIONS": "3"}, RUN, "--config", "server.properties",
                    "--override", "num.partitions=5")
    client = KafkaAdminClient(bootstrap_servers=service.address)
    try:
        (broker,) = client.describe_cluster()["brokers"]
        assert broker["broker_id"] == 8
        client.create_topics(["t"])
        (topic,) = client.describe_topics(["t"])
        assert len(topic["partitions"]) == 5
    finally:
        client.close()
    assert service.end(signal.SIGTERM) == 0


def test_config_reads_the_dynamic_configuration_of_a_stopped_broker(
    start_broker: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_broker()

    def shown() -> tuple[str, str]:
        flags = ["--override", f"log.dirs={server.data}", "--override", "num.network.threads=5"]
        assert main(["config", "--print", *flags]) == 0
        ended = capsys.readouterr()
        (line,) = [line for line in ended.out.splitlines() if line.startswith("message.max.bytes=")]
        return re.sub(" +", " ", line), ended.err

    with RawConnection(server.address) as connection:
        for broker_id, key, value in (("", "message.max.bytes", "5000"), ("1001", "log.retention.ms", "7")):
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            change = resource.AlterableConfig(name=key, config_operation=0, value=value)
            request = IncrementalAlterConfigsRequest(resources=[resource(resource_type=4, resource_name=broker_id, configs=[change])])
            assert connection.call(request, 1).responses[0].error_code == 0
    line, warnings = shown()
    assert line == "message.max.bytes=5000 # dynamic default of all brokers", "also while a broker runs"
    assert "dynamic" not in warnings
    server.kill()
    files = {path.name: path.read_bytes() for path in server.data.glob("txbroker-metadata*")}
    assert shown()[0] == "message.max.bytes=5000 # dynamic default of all brokers"
    assert files == {path.name: path.read_bytes() for path in server.data.glob("txbroker-metadata*")}, "nothing is written"
    server.start()
    server.stop()
    assert shown()[0] == "message.max.bytes=5000 # dynamic default of all brokers"
    assert main(["config", "--print", "--override", f"log.dirs={server.data}"]) == 0
    assert re.search(r"log\.retention\.ms=7 +# dynamic configuration of this broker\n", capsys.readouterr().out)
