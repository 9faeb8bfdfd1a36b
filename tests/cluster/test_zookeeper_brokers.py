"""Brokers as processes on a real ZooKeeper: start, registration, lost and expired sessions, restarts, and why a start is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.broker import BrokerProcess
from tests.support.cut_proxy import CutProxy
from tests.support.kafka import ZooKeeperProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import creation
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process
Start = Callable[..., BrokerProcess]


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of ZooKeeper in the chroot of the test."""
    client = KazooClient(zookeeper)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def proxy(zookeeper_process: ZooKeeperProcess) -> Iterator[CutProxy]:
    forwarding = CutProxy(zookeeper_process.address)
    yield forwarding
    forwarding.close()


@pytest.fixture
def start(tmp_path: Path, zookeeper: str) -> Iterator[Start]:
    """Starts a broker with this id; `connect` is zookeeper.connect."""
    started: list[BrokerProcess] = []

    def start(broker_id: int = 1, *, connect: str = zookeeper, directory: str | None = None, **overrides: str) -> BrokerProcess:
        keys = {key.replace("_", "."): value for key, value in overrides.items()}
        keys = {"zookeeper.session.timeout.ms": "6000", "zookeeper.connect": connect, "broker.id": str(broker_id), **keys}
        broker = BrokerProcess(tmp_path / (directory or str(broker_id)), keys)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.close()
        assert "Traceback" not in broker.log(), broker.log()


def registration(client: KazooClient, broker_id: int = 1) -> tuple[dict[str, Any], Any] | None:
    try:
        data, found = client.get(f"/brokers/ids/{broker_id}")
    except NoNodeError:
        return None
    return json.loads(data), found


def controller_is(client: KazooClient, broker_id: int) -> bool:
    try:
        return json.loads(client.get("/controller")[0])["brokerid"] == broker_id
    except NoNodeError:
        return False


def test_a_broker_serves_alone_and_a_second_one_registers(client: KazooClient, start: Start, name: str) -> None:
    one = start()
    assert controller_is(client, 1)
    found = registration(client)
    assert found is not None
    assert found[0]["endpoints"] == [f"PLAINTEXT://{one.address}"] and found[1].version == 1
    with RawConnection(one.address) as connection:
        assert creation(connection, name, 1, 1, {}).error_code == 0
    assert sorted(json.loads(client.get(f"/brokers/topics/{name}")[0])["partitions"]) == ["0"]
    two = start(2)
    assert registration(client, 2) is not None and controller_is(client, 1)
    assert two.stop() == 0 and one.stop() == 0
    assert client.get_children("/brokers/ids") == [] and client.exists("/controller") is None
