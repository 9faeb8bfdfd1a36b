from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.test_twisted_connection import Turning, turning
from tests.peers.network import Node

__all__ = ["node", "turning"]


@pytest.fixture
def node(turning: Turning, tmp_path: Path) -> Iterator[Node]:
    made = Node(turning, tmp_path)
    yield made
    made.stop()
