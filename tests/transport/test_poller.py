"""The poller: an error of one connection does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.transport.harness import Answering, Client, ListenerHarness, frame


class Unending(Answering):
    """Raises when its connection is lost."""

    def connectionLost(self, reason: Any) -> None:
        super().connectionLost(reason)
        raise RuntimeError("a bug")


def ask(client: Client, body: bytes) -> None:
    client.send(frame(body))
    assert client.answer() == body


def test_an_error_when_a_connection_ends_does_not_affect_others(
    start: Callable[..., ListenerHarness], caplog: pytest.LogCaptureFixture
) -> None:
    rooms = start()
    other = rooms.connect()
    ask(other, b"before it")
    rooms.build = lambda: Unending(lambda received: [])
    failing = rooms.connect()
    failing.send(frame(b"something"))
    rooms.until(lambda: len(rooms.protocols) == 2 and rooms.protocols[1].frames)
    failing.socket.close()
    rooms.until(lambda: rooms.protocols[1].lost)
    ask(other, b"after it")
    assert "internal error while a connection was closed" in caplog.text
