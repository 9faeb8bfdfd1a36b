"""The table and the lines of `txbroker cluster`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.support.cache import KAFKA_OLD, jars
from tests.support.server import HOST, free_port
from txbroker.cli.cluster import zookeeper_server
from txbroker.cli.cluster.cluster_status import ClusterStatus, PartitionStatus
from txbroker.cli.cluster.local_cluster import Plan
from txbroker.cli.cluster.status_table import changes, table_lines

ALL = frozenset({1, 2, 3})
STATES = dict.fromkeys(sorted(ALL), "running")
ADDRESSES = {broker_id: f"{HOST}:{9091 + broker_id}" for broker_id in ALL}


def partition(topic: str, number: int, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), **behind: int) -> PartitionStatus:
    return PartitionStatus(topic, number, leader, (1, 2, 3), isr, {int(key[1:]): count for key, count in behind.items()})


def test_the_table_shows_brokers_and_partitions() -> None:
    parts = (partition("orders", 0, _2=0, _3=7), partition("orders", 1, leader=2, isr=(2, 1)), partition("orders", 2, leader=-1, isr=()))
    lines = table_lines(ClusterStatus(ALL, ALL, 1, parts), {**STATES, 3: "ended by signal 9"}, ADDRESSES, 100, 40)
    assert [line.split() for line in lines] == [
        ["BROKER", "ADDRESS", "STATE", "LEADS", "REPLICAS", "IN", "SYNC", "BEHIND"],
        ["1", "127.0.0.1:9092", "running,", "controller", "1", "3", "2", "0"],
        ["2", "127.0.0.1:9093", "running", "1", "3", "2", "0"],
        ["3", "127.0.0.1:9094", "ended", "by", "signal", "9", "0", "3", "1", "7"],
        [],
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "BEHIND"],
        ["orders", "1", "2", "1,2,3", "1,2"],
        ["orders", "2", "none", "1,2,3", "none"],
        ["orders", "0", "1", "1,2,3", "1,2,3", "3:", "7"],
    ]


def test_what_does_not_fit_is_counted() -> None:
    offsets = [partition("__consumer_offsets", number) for number in range(50)]
    parts = (*offsets, *(partition("late", number, isr=(1,)) for number in range(20)), partition("good", 0))
    lines = table_lines(ClusterStatus(ALL, ALL, 1, parts), STATES, ADDRESSES, 80, 20)
    assert len(lines) == 20
    assert [line.split()[:2] for line in lines[6:19]] == [["late", str(number)] for number in range(13)]
    assert lines[19] == "and 58 more partitions, 7 of them out of sync"
    lines = table_lines(ClusterStatus(ALL, ALL, 1, tuple(offsets)), STATES, ADDRESSES, 80, 20)
    assert lines[-1] == "and 37 more partitions, all in sync"
    assert table_lines(ClusterStatus(ALL, ALL, 1), STATES, ADDRESSES, 80, 20)[-1] == "no topics yet"


def test_lines_about_changes() -> None:
    fine = ClusterStatus(ALL, ALL, 1, (partition("a", 0), partition("a", 1, leader=2), partition("b", 0)))
    assert list(changes(ClusterStatus(), {}, fine, STATES)) == [
        "broker 1: running", "broker 2: running", "broker 3: running", "broker 1 is the controller",
        "a: 2 partitions, leaders: 1 on broker 1, 1 on broker 2; all in sync", "b: 1 partition, leaders: 1 on broker 1; all in sync",
    ]
    assert list(changes(fine, STATES, fine, STATES)) == []
    moved = ClusterStatus(frozenset({2, 3}), frozenset({2, 3}), 2, (partition("a", 0, 3, (3, 2)), partition("a", 1, 2, (2, 3))))
    assert list(changes(fine, STATES, moved, {**STATES, 1: "ended by signal 9"})) == [
        "broker 1: ended by signal 9", "broker 2 is the controller",
        "a: 2 partitions, leaders: 1 on broker 2, 1 on broker 3; 2 out of sync: 0 (ISR 3,2 of 1,2,3), 1 (ISR 2,3 of 1,2,3)",
        "b: deleted",
    ]
    assert list(changes(fine, STATES, ClusterStatus(), STATES)) == ["there is no controller"]


def test_the_configuration_of_a_broker(tmp_path: Path) -> None:
    plan = Plan(tmp_path, 2, 9092, 2181, {"num.partitions": "6"})
    made = plan.properties(2)
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:9093" and made["log.dirs"] == str(tmp_path / "broker-2" / "data")
    assert made["default.replication.factor"] == made["min.insync.replicas"] == "2" and made["num.partitions"] == "6"
    assert Plan(tmp_path, 1, 9092, 2181, {}).properties(1)["min.insync.replicas"] == "1"


def test_debians_package_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("zookeeper", "zookeeper-jute", "metrics-core", "snappy-java", "slf4j-api", "slf4j-log4j12", "log4j-1.2")
    for name in names:
        (tmp_path / f"{name}.jar").touch()
    said: list[str] = []
    assert {path.stem for path in zookeeper_server.jars(said.append, tmp_path)} == set(names) and not said
    (tmp_path / "metrics-core.jar").unlink()
    monkeypatch.setattr(zookeeper_server, "fetch_jars", lambda pom, folder, files: said.extend(files))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = zookeeper_server.jars(said.append, tmp_path)
    assert found == [tmp_path / "txbroker" / "zookeeper-3.8.4" / name for name in said[1:]] and said[1] == "zookeeper-3.8.4.jar"


def test_the_jars_are_those_of_kafka_3_9() -> None:
    names = {jar.name for jar in jars(KAFKA_OLD)}
    assert {name for name in zookeeper_server._names() if name not in names} == set()


@pytest.mark.parametrize(("flags", "problem"), [
    ((), "the following arguments are required: --dir"),
    (("--dir", "x", "--brokers", "101"), "--brokers must be at most 100"),
    (("--dir", "x", "--port", "2180"), "the ports 2180 to 2182 of the brokers and 2181 of ZooKeeper must differ and be at most 65535"),
    (("--dir", "x", "--port", "65534"), "the ports 65534 to 65536 of the brokers and 2181 of ZooKeeper must differ and be at most 65535"),
])
def test_wrong_usage(flags: tuple[str, ...], problem: str) -> None:
    _, complaint = run("cluster", *flags, status=2)
    assert complaint == f"txbroker cluster: {problem}; see txbroker cluster --help\n"


def test_a_port_that_is_in_use(tmp_path: Path) -> None:

    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, complaint = run("cluster", "--dir", str(tmp_path), "--port", str(free_port()), "--brokers", "1", "--zookeeper-port", str(port),
                           status=1)
    assert complaint == (f"txbroker cluster: port {port} of 127.0.0.1 cannot be used (Address already in use); stop the process that "
                         "listens there, or choose others with --port and --zookeeper-port\n")
