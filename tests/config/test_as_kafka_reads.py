"""Values that Apache Kafka 3.9.1 reads, and how: each row was read by its KafkaConfig, and by ZooKeeper's ConnectStringParser."""

from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.listeners import connections_per_ip_overrides, parse_listeners
from txbroker.config.zookeeper_address import parse_zookeeper_address
from txbroker.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("/a, /b ,,", ("/a", "/b")),
        (",/a", ("/a",)),
        ("/a\\u0020,/b", ("/a", "/b")),
        ("/a,\\\n    /b", ("/a", "/b")),
        (" /a b , /c", ("/a b", "/c")),
    ],
)
def test_log_directories(text: str, directories: tuple[str, ...]) -> None:
    assert broker_config(f"log.dirs={text}").list("log.dirs") == directories


A, TWO = "listener.security.protocol.map=", "inter.broker.listener.name=A\nlisteners=A://h:1\n"


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("listeners=PLAINTEXT://:1, ", ["PLAINTEXT://:1"]),
        ("listeners=,PLAINTEXT://:1,,", ["PLAINTEXT://:1"]),
        ("listeners=PLAINTEXT://::1:9092", ["PLAINTEXT://[::1]:9092"]),
        ("listeners=PLAINTEXT://[::1]:9092", ["PLAINTEXT://[::1]:9092"]),
        ("listeners=PLAINTEXT://[1.2.3.4]:9092", ["PLAINTEXT://1.2.3.4:9092"]),
        ("listeners=PLAINTEXT://h:00000009", ["PLAINTEXT://h:9"]),
        (f"{TWO}{A}A:PLAINTEXT,", ["A://h:1"]),
        (f"{TWO}{A} A : plaintext ,B:SSL", ["A://h:1"]),
        (f"{TWO}{A}A:SSL,a:PLAINTEXT", ["A://h:1"]),  # the last one applies
    ],
)
def test_listeners(text: str, bound: list[str]) -> None:
    assert [str(listener) for listener in parse_listeners(broker_config(text)).bound] == bound


def test_an_empty_entry_of_advertised_listeners() -> None:
    advertised = parse_listeners(broker_config("advertised.listeners=PLAINTEXT://h:1,")).advertised
    assert {name: str(listener) for name, listener in advertised.items()} == {"PLAINTEXT": "PLAINTEXT://h:1"}


@pytest.mark.parametrize(
    "text",
    [f"{TWO}{A},A:PLAINTEXT", f"{TWO}{A}A:PLAINTEXT,,B:SSL", "listeners=", "listeners=PLAINTEXT://a b:1", "advertised.listeners=,",
     "listeners=PLAINTEXT://:1,plaintext://:2"],
)  # fmt: skip
def test_listeners_that_kafka_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_listeners(broker_config(text))


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        ("a:1,b:2", {"a": 1, "b": 2}),
        ("127.0.0.1 : 1 , localhost:2,", {"127.0.0.1": 1, "localhost": 2}),
        ("::1:5", {"::1": 5}),
        ("a:+5", {"a": 5}),
        ("a:-5", {"a": -5}),
        ("a:1,a:2", {"a": 2}),
    ],
)
def test_limits_of_addresses(text: str, limits: dict[str, int]) -> None:
    assert connections_per_ip_overrides(broker_config(f"max.connections.per.ip.overrides={text}")) == limits


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("auto.create.topics.enable= fAlse\\t", False),
        ("num.partitions=+3", 3),
        ("num.partitions=" + "0" * 5000 + "3", 3),
        ("num.partitions=\\u0001 3 \\n", 3),
        ("num.partitions : 3", 3),
        ("num.partitions 3", 3),
        ("num.par\\\n   titions=3", 3),
        ("num\\.partitions=3", 3),
        ("num.partitions=2\nnum.partitions=3", 3),
        ("log.cleaner.min.cleanable.ratio=.5f", 0.5),
        ("log.cleaner.min.cleanable.ratio=5e-1", 0.5),
        ("log.cleaner.io.max.bytes.per.second=Infinity", 1.7976931348623157e308),
        ("log.cleaner.io.max.bytes.per.second=1e999", 1.7976931348623157e308),
        ("log.cleanup.policy=compact , delete", ("compact", "delete")),
        ("log.cleanup.policy=", ()),
        ("metric.reporters=,", ("", "")),
        ("compression.type= gzip ", "gzip"),
        ("ssl.keystore.password= a b ", "a b"),
        ("log.retention.ms=-5", -5),  # any negative number is no limit
        ("log.retention.hours=-2", -2),
        ("broker.rack=\\u00e4", "ä"),
    ],
)
def test_values(text: str, value: object) -> None:
    name = text.replace("\\\n   ", "").replace("\\.", ".").replace(":", "=").replace(" ", "=", 1).partition("=")[0]
    assert broker_config(text).value(name) == value


@pytest.mark.parametrize(
    "text",
    ["num.partitions=3\\u00a0", "num.partitions=3.0", "num.partitions=1_000", "num.partitions=", "auto.create.topics.enable=",
     "auto.create.topics.enable=yes", "log.cleanup.policy=compact,", "log.cleanup.policy=COMPACT", "compression.type=GZIP",
     "compression.type=", "log.cleaner.min.cleanable.ratio=Infinity", "log.retention.ms=0", "log.dirs=,",
     "max.connections.per.ip.overrides=,a:1", "max.connections.per.ip.overrides=a:1,,b:2",
     "max.connections.per.ip.overrides=a:99999999999"],
)  # fmt: skip
def test_values_that_kafka_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        broker_config(text)


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1:2181, zk2:2181, zk3:2181/kafka", ("zk1:2181", "zk2:2181", "zk3:2181"), "/kafka"),
        ("zk1:2181,zk2:2181,/kafka", ("zk1:2181", "zk2:2181"), "/kafka"),
        ("zk1:2181,,zk2:2181/kafka", ("zk1:2181", "zk2:2181"), "/kafka"),
        ("zk1 , zk2/a/b", ("zk1:2181", "zk2:2181"), "/a/b"),
        ("zk1:2181 /kafka", ("zk1:2181",), "/kafka"),
        ("zk1:", ("zk1:2181",), ""),
        ("zk1:+5", ("zk1:5",), ""),
        ("zk1:002181/", ("zk1:2181",), ""),
        ("zk1:2181/a b,c", ("zk1:2181",), "/a b,c"),
        ("zk1/a.b/..c", ("zk1:2181",), "/a.b/..c"),
        ("[::1]:3,[::1]", ("[::1]:3", "[::1]:2181"), ""),
        ("::1:2181", ("[::1]:2181",), ""),
        ("[fe80::1%eth0]:2181", ("[fe80::1%eth0]:2181",), ""),
    ],
)
def test_servers_of_zookeeper(text: str, servers: tuple[str, ...], chroot: str) -> None:
    assert broker_config(f"zookeeper.connect={text}").text("zookeeper.connect") == text
    assert parse_zookeeper_address(text) == (servers, chroot)


@pytest.mark.parametrize(
    "text", ["zk:port", "zk:65536", "zk:-1", "zk:21 81", "zk: 2181", "zk/kafka/", "zk/a//b", "zk/a/../b", "zk/.", "[::1]2181", "[::1]:"]
)
def test_servers_that_zookeeper_refuses(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is"):
        broker_config(f"zookeeper.connect={text}")
