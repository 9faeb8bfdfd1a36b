"""Client quotas as Apache Kafka's tools configure them, and as its clients are throttled."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.cli.commands import run as run_ours
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.cluster import Cluster
from tests.support.java import command, run
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, fetch_request, produce, produce_request
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.client_quotas.connection_rates import IP_RATE

RELEASES = pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
PRODUCE_VERSION, FETCH_VERSION = 8, 11


class Quotas:
    """kafka-configs at one broker."""

    def __init__(self, address: str, release: str) -> None:
        self._flags = "--bootstrap-server", address
        self._release = release

    def __call__(self, *flags: str) -> str:
        return run("kafka-configs", *self._flags, *flags, release=self._release)

    def described(self, *flags: str) -> list[str]:
        """Each entity with its quotas, in the order of the quotas' names."""
        found = re.findall(r"Quota configs for (.*) are (.*)", self("--describe", *flags))
        return sorted(f"{entity}: {', '.join(sorted(values.split(', ')))}" for entity, values in found)


def client(name: str) -> tuple[str, ...]:
    return "--entity-type", "clients", *(("--entity-default",) if name == "" else ("--entity-name", name))


def user(name: str) -> tuple[str, ...]:
    return "--entity-type", "users", *(("--entity-default",) if name == "" else ("--entity-name", name))


def produced_throttle_ms(address: str, topic: str, client_id: str) -> int:
    """The throttle time of one record."""
    with RawConnection(address, client_id=client_id) as connection:
        answer = connection.call(produce_request(topic, batch(numbered(1))), PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


@RELEASES
def test_quotas_are_set_described_and_removed(start_broker: Callable[..., Server], release: str) -> None:
    server = start_broker()
    create_topic(server, "t")
    tool = Quotas(server.address, release)
    tool("--alter", *client("c/1 ü"), "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5")
    tool("--alter", *client(""), "--add-config", "producer_byte_rate=1")
    tool("--alter", *user("ANONYMOUS"), *client("c"), "--add-config", "consumer_byte_rate=3")
    tool("--alter", *user(""), "--add-config", "consumer_byte_rate=4")
    assert tool.described("--entity-type", "clients") == [
        "client-id 'c/1 ü': consumer_byte_rate=2048.0, producer_byte_rate=1024.0, request_percentage=12.5",
        "the default client-id: producer_byte_rate=1.0",
    ]
    assert tool.described("--entity-type", "users") == ["the default user-principal: consumer_byte_rate=4.0"]
    assert tool.described("--entity-type", "users", "--entity-type", "clients") == [
        "user-principal 'ANONYMOUS', client-id 'c': consumer_byte_rate=3.0"
    ]
    assert tool.described(*user("ANONYMOUS"), *client("c")) == ["user-principal 'ANONYMOUS', client-id 'c': consumer_byte_rate=3.0"]
    assert produced_throttle_ms(server.address, "t", "another") > 0
    ours = [line for flags in (("--client-defaults",), ("--entity-type", "clients"), ("--user", "ANONYMOUS", "--client", "c"))
            for line in run_ours("configs", "--bootstrap-server", server.address, "--describe", *flags)[0].splitlines()]
    assert sorted(set(ours)) == sorted(
        f"Quota configs for {line.replace(': ', ' are ', 1)}"
        for line in (*tool.described("--entity-type", "clients"), *tool.described(*user("ANONYMOUS"), *client("c")))
    )
    # They are in the metadata of the broker, also after a restart.
    server.restart()
    create_topic(server, "u")
    assert produced_throttle_ms(server.address, "u", "another") > 0
    tool = Quotas(server.address, release)
    tool("--alter", *client(""), "--delete-config", "producer_byte_rate")
    done = run_ours("configs", "--bootstrap-server", server.address, "--alter", "--client", "c/1 ü",
                    "--delete-config", "producer_byte_rate,consumer_byte_rate,request_percentage")[0]
    assert done == "Completed updating config for client c/1 ü.\n"
    assert tool.described("--entity-type", "clients") == []
    assert produced_throttle_ms(server.address, "u", "another") == 0

    tool("--alter", *client("c"), "--add-config", "controller_mutation_rate=1.5")
    tool("--alter", "--entity-type", "ips", "--entity-name", "10.0.0.7", "--add-config", "connection_creation_rate=5")
    tool("--alter", "--entity-type", "ips", "--entity-default", "--add-config", "connection_creation_rate=50")
    assert tool.described("--entity-type", "clients") == ["client-id 'c': controller_mutation_rate=1.5"]
    addresses = ["ip '10.0.0.7': connection_creation_rate=5.0", "the default ip: connection_creation_rate=50.0"]
    assert tool.described("--entity-type", "ips") == addresses
    ours = run_ours("configs", "--bootstrap-server", server.address, "--describe", "--entity-type", "ips")[0].splitlines()
    assert sorted(ours) == [f"Quota configs for {line.replace(': ', ' are ', 1)}" for line in addresses]
    done = run_ours("configs", "--bootstrap-server", server.address, "--alter", "--ip", "10.0.0.7", "--delete-config", IP_RATE)[0]
    assert done == "Completed updating config for ip 10.0.0.7.\n"
    assert tool.described("--entity-type", "ips") == addresses[1:]
    tool("--alter", *user("alice"), "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    assert tool.described(*user("alice")) == [], "credentials are no quotas"


@RELEASES
def test_a_real_producer_and_a_real_consumer_are_throttled(start_broker: Callable[..., Server], release: str) -> None:
    server = start_broker({"quota.window.num": "2"})
    create_topic(server, "t")
    tool = Quotas(server.address, release)
    tool("--alter", *user("ANONYMOUS"), "--add-config", "producer_byte_rate=100000,consumer_byte_rate=100000")
    flags = ["--topic", "t", "--num-records", "300", "--record-size", "1000", "--throughput", "-1", "--print-metrics", "--producer-props",
             f"bootstrap.servers={server.address}", "batch.size=16384", "compression.type=none"]
    program = command("kafka-producer-perf-test", release, flags)
    printed = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    throttled = re.findall(r"produce-throttle-time-max:\S*\s*: (\S+)", printed)
    assert throttled and max(map(float, throttled)) > 0

    times: list[float] = []
    settings: dict[str, Any] = {"bootstrap.servers": server.address, "group.id": "g", "auto.offset.reset": "earliest",
                                "fetch.message.max.bytes": 50_000, "throttle_cb": lambda event: times.append(event.throttle_time)}
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    read: list[bytes] = []

    def has_read() -> bool:
        read.extend(message.value() for message in consumer.consume(500, 0.2) if message.error() is None)
        return len(read) >= 300

    until(has_read, "all records are read")
    assert len(read) == 300
    until(lambda: consumer.consume(1, 0.2) or times, "the client has reported the throttling")
    consumer.close()


def test_a_throttled_fetch_has_no_records_and_no_session(start_broker: Callable[..., Server]) -> None:
    server = start_broker()
    create_topic(server, "t")
    Quotas(server.address, KAFKA_OLD)("--alter", *client("slow"), "--add-config", "consumer_byte_rate=50")

    def fetch(session_id: int, epoch: int) -> Any:
        request = fetch_request("t", 0)
        request.session_id, request.session_epoch = session_id, epoch
        with RawConnection(server.address, client_id="slow") as connection:
            return connection.call(request, FETCH_VERSION)

    with RawConnection(server.address) as connection:
        for _ in range(3):
            assert produce(connection, "t", batch(numbered(10))).error_code == 0
    first = fetch(0, -1)
    assert first.throttle_time_ms == 0 and first.responses[0].partitions[0].records
    for session_id, epoch in ((0, -1), (0, 0)):
        throttled = fetch(session_id, epoch)
        assert (throttled.throttle_time_ms > 0, throttled.error_code, throttled.session_id, throttled.responses) == (True, 0, 0, [])


def test_the_quotas_of_a_mixed_cluster_apply_to_both_kinds(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(kinds=(BrokerProcess.kind, KafkaMember.kind))
    ours, kafka = (cluster.brokers[broker_id].address for broker_id in (1, 2))
    run("kafka-topics", "--bootstrap-server", ours, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1", release=KAFKA_OLD)
    cluster.until_in_sync("t")

    def throttled(client_id: str) -> Sequence[bool]:
        found = []
        for number, address in enumerate((ours, kafka)):
            with RawConnection(address, client_id=client_id) as connection:
                answer = connection.call(produce_request("t", batch(numbered(1)), partition=number), PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
            found.append(answer.throttle_time_ms > 0)
        return found

    for address, name in ((ours, "by-ours"), (kafka, "by-kafka")):
        tool = Quotas(address, KAFKA_OLD)
        tool("--alter", *user("ANONYMOUS"), *client(name), "--add-config", "producer_byte_rate=1")
        until(lambda name=name: throttled(name) == [True, True], f"both brokers throttle {name}")  # type: ignore[misc]
    assert throttled("another") == [False, False]
    everything = [Quotas(address, KAFKA_OLD).described("--entity-type", "users", "--entity-type", "clients") for address in (ours, kafka)]
    assert everything[0] == everything[1] and len(everything[0]) == 2
    # A user's credentials, which only Kafka can change, stay when txbroker changes the user's quotas.
    run("kafka-configs", "--zookeeper", cluster.zookeeper_connect, "--alter", *user("alice"),
        "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]", release=KAFKA_OLD)
    Quotas(ours, KAFKA_OLD)("--alter", *user("alice"), "--add-config", "producer_byte_rate=5")
    for address in (ours, kafka):
        said = Quotas(address, KAFKA_OLD)("--describe", *user("alice"))
        assert "producer_byte_rate=5.0" in said and "SCRAM-SHA-256=iterations=8192" in said
    Quotas(ours, KAFKA_OLD)("--alter", *user("ANONYMOUS"), *client("by-kafka"), "--delete-config", "producer_byte_rate")
    until(lambda: throttled("by-kafka") == [False, False], "neither broker throttles")
