"""Fixtures of the tests of log directories."""

from __future__ import annotations

import pytest

from txbroker.log import replica_moves


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, so that a move takes many steps."""
    monkeypatch.setattr(replica_moves, "CHUNK_BYTES", 400)
    monkeypatch.setattr(replica_moves, "LAST_BYTES_MAX", 150)
