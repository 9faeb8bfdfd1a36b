from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.test_twisted_connection import Turning
from tests.peers.network import Node


@pytest.fixture
def turning() -> Iterator[Turning]:
    made = Turning()
    yield made
    made.until(lambda: not made.reactor.getDelayedCalls(), "no timer is left")
    made.close()


@pytest.fixture
def node(turning: Turning, tmp_path: Path) -> Iterator[Node]:
    made = Node(turning, tmp_path)
    yield made
    made.stop()
