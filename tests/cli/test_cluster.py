"""`txbroker cluster` as a process: start, a broker that is killed and started again by hand, and the clean stop."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.support.cache import KAFKA_OLD, jars
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.cli.cluster import zookeeper_server

pytestmark = pytest.mark.process


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a cache of ZooKeeper's jars: those of the tests, so that nothing is downloaded."""
    wanted = zookeeper_server._names()
    folder = tmp_path / "cache" / "txbroker" / wanted[0].removesuffix(".jar")
    folder.mkdir(parents=True)
    for jar in jars(KAFKA_OLD):
        if jar.name in wanted:
            (folder / jar.name).symlink_to(jar)
    return {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def ports() -> list[int]:
    """The first of three ports in a row, and another one."""
    for _ in range(100):
        first, other = free_port(), free_port()
        if other not in range(first, first + 3) and all(_is_free(port) for port in range(first, first + 3)):
            return [first, other]
    raise AssertionError("no three free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


@pytest.fixture
def ending() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended after the test, by the signal that ends a cluster."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)


def test_a_cluster_survives_a_killed_broker(
    tmp_path: Path, environment: dict[str, str], ports: list[int], ending: list[subprocess.Popen[bytes]]
) -> None:
    output, home = tmp_path / "output", tmp_path / "cluster"
    port, zookeeper_port = ports
    bootstrap = ",".join(f"{HOST}:{port + i}" for i in range(3))
    flags = ("--dir", str(home), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
    with output.open("wb") as out:
        cluster = subprocess.Popen(command("cluster", *flags), stdout=out, stderr=out, env=environment)
    ending.append(cluster)

    def says(pattern: str) -> re.Match[str]:
        def find() -> re.Match[str] | None:
            assert cluster.poll() is None, output.read_text()
            return re.search(pattern, output.read_text(), re.M)

        found: re.Match[str] = until(find, f"the output has {pattern!r}:\n{output.read_text()}")
        return found

    says(f"^the cluster is ready: --bootstrap-server {bootstrap}$")
    server = ("--bootstrap-server", bootstrap)
    run("topics", *server, "--create", "--topic", "orders", "--partitions", "3")
    says("^orders: 3 partitions, leaders: 1 on broker 1, 1 on broker 2, 1 on broker 3; all in sync$")
    run("produce", *server, "--topic", "orders", stdin="before\n")

    os.kill(int(says(r"^broker 2: running \(pid (\d+)\)$")[1]), signal.SIGKILL)
    says("^broker 2: ended by signal 9$")
    says("^orders: 3 partitions, leaders: .*; 3 out of sync: 0 ")
    run("produce", *server, "--topic", "orders", stdin="after\n")

    with output.with_name("by hand").open("wb") as out:
        by_hand = subprocess.Popen(command("run", "--config", str(home / "broker-2" / "server.properties")), stdout=out, stderr=out,
                                   env=environment)
    ending.append(by_hand)
    says("^broker 2: running, started by hand$")
    until(lambda: output.read_text().rpartition("orders: ")[2].splitlines()[0].endswith("; all in sync"), "all replicas are in sync again")
    read, _ = run("consume", *server, "--topic", "orders", "--from-beginning", "--max-messages", "2")
    assert sorted(read.splitlines()) == ["after", "before"]

    by_hand.send_signal(signal.SIGTERM)
    assert by_hand.wait(PATIENCE_S) == 0
    cluster.send_signal(signal.SIGTERM)
    assert cluster.wait(PATIENCE_S) == 0, output.read_text()
    logs = [(home / f"broker-{broker_id}" / "broker.log").read_text() for broker_id in (1, 2, 3)]
    assert all("Traceback" not in log for log in logs)
    assert all((home / f"broker-{broker_id}" / "data" / ".kafka_cleanshutdown").exists() for broker_id in (1, 2, 3))


def test_the_table_on_a_terminal(
    tmp_path: Path, environment: dict[str, str], ports: list[int], ending: list[subprocess.Popen[bytes]]
) -> None:
    port, zookeeper_port = ports
    ours, theirs = pty.openpty()
    flags = ("--dir", str(tmp_path / "cluster"), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
    cluster = subprocess.Popen(
        command("cluster", "--brokers", "1", *flags),
        stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "COLUMNS": "120", "LINES": "30"})
    ending.append(cluster)
    os.close(theirs)
    shown = b""
    row = rf"1 +{HOST}:{port} +running \(pid \d+\), controller +0 +0 +0 +0"
    while not re.search(row + r"\x1b\[K\r\n\x1b\[K\r\nno topics yet", shown.decode()):
        shown += os.read(ours, 65536)
    assert f"bootstrap servers: {HOST}:{port}\x1b[K" in shown.decode()
    cluster.send_signal(signal.SIGINT)
    try:
        while os.read(ours, 65536):
            pass
    except OSError:  # on Linux: the other end is closed
        pass
    os.close(ours)
    assert cluster.wait(PATIENCE_S) == 0


def test_a_broker_that_cannot_start_ends_the_command(tmp_path: Path, environment: dict[str, str], ports: list[int]) -> None:
    port, zookeeper_port = ports
    flags = ("--dir", str(tmp_path / "cluster"), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
    ended = subprocess.run(
        command("cluster", "--brokers", "1", *flags, "--override", "num.partitions=none"),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 1
    *log, complaint = ended.stderr.splitlines()
    assert complaint == (f"txbroker cluster: broker 1 ended with status 1; correct what the end of its log names "
                         f"({tmp_path / 'cluster' / 'broker-1' / 'broker.log'})")
    assert "num.partitions" in log[-1]
