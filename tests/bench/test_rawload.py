"""The raw load generator, against a server that answers late or never."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import rawload

FRAME = struct.pack(">ii", 4, 0)


@contextmanager
def answering(after_s: float) -> Iterator[int]:
    """A server that answers each request after so much time; its port."""
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer(connection: socket.socket) -> None:
            with connection:
                while connection.recv(1 << 16) and not closed.wait(after_s):
                    connection.sendall(FRAME)

        def accept() -> None:
            while not closed.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listening.getsockname()[1]
        finally:
            closed.set()
            listening.shutdown(socket.SHUT_RDWR)


def load(port: int) -> rawload.Load:
    return rawload.Load("127.0.0.1", port, [[FRAME]], connections=2, depth=1, seconds=0.05, warmup_s=0)


def test_a_measurement_lasts_until_it_has_an_answer() -> None:
    with answering(0.3) as port:
        result = rawload.run(load(port), os.getpid())
    assert result.answers_per_s > 0
    assert result.cpu_us_per_answer is not None
    assert result.p50_ms >= 300


def test_a_broker_that_answers_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rawload, "_FIRST_ANSWER_S", 0.1)
    with answering(60) as port, pytest.raises(rawload.NoAnswers, match="no request was answered"):
        rawload.run(load(port))
