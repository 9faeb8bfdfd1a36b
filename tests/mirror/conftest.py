"""Two brokers that all of these tests share, and a reactor that the test turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.test_twisted_connection import Turning
from tests.mirror import mirroring
from tests.support.broker import BrokerProcess
from tests.support.server import Server


@pytest.fixture
def turning() -> Iterator[Turning]:
    made = Turning(mirroring.PATIENCE_S)
    yield made
    made.close()


@pytest.fixture(scope="module")
def both(server_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """A source and a target."""
    folder = tmp_path_factory.mktemp("mirror")
    source, target = BrokerProcess(folder / "source"), BrokerProcess(folder / "target")
    source.start()
    target.start()
    yield source, target
    for server in (source, target):
        server.close()
        assert "Traceback" not in server.log(), server.log_tail()
