"""ZooKeeper for the tests of the metadata tree and of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.kafka import ZooKeeperProcess
from tests.support.waiting import PATIENCE_S

_chroots = count(1)


@pytest.fixture(scope="session")
def zookeeper_process(all_server_directories: Path) -> Iterator[ZooKeeperProcess]:
    """A ZooKeeper that all tests share."""
    process = ZooKeeperProcess(all_server_directories / "zookeeper")
    process.start()
    client = KazooClient(process.address)
    client.start(timeout=PATIENCE_S)
    client.ensure_path("/test")  # kazoo does not create the parents of a chroot
    client.stop()
    client.close()
    yield process
    process.kill()


@pytest.fixture
def zookeeper(zookeeper_process: ZooKeeperProcess) -> str:
    """`zookeeper.connect` with a chroot that no other test uses."""
    return f"{zookeeper_process.address}/test/{next(_chroots)}"
