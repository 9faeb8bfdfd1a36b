"""A document of a web server, and the limits of size and time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.oauth import JwksServer
from txbroker.client.web_document import NoDocument, get_document

SIZE_MAX = 1000
TIMEOUT_S = 60.0


def document(url: str, timeout_s: float = TIMEOUT_S) -> bytes:
    return get_document(url, SIZE_MAX, timeout_s, None)


def test_a_document_and_what_is_refused() -> None:
    with JwksServer(b"{}") as server:
        assert document(server.url) == b"{}"
        server.document = b"x" * SIZE_MAX
        assert len(document(server.url)) == SIZE_MAX
        server.document += b"x"
        with pytest.raises(NoDocument, match="more than 1000 bytes"):
            document(server.url)
        for status in (204, 302, 404, 500):
            server.status, server.document = status, b""
            with pytest.raises(NoDocument, match=f"the status {status}"):
                document(server.url)
    with pytest.raises(NoDocument, match="refused"):
        document(server.url)


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(10_000)
                with suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            thread.join()


@pytest.mark.parametrize("answer", [
    b"", b"x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500, b"HTTP/1.1 200 " + b"x" * 70_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
])  # fmt: skip
def test_malformed_answers(answer: bytes) -> None:
    with serving(lambda connection: connection.sendall(answer)) as url, pytest.raises(NoDocument):
        document(url)


LATE = r"timed out|the server has not sent it within 0\.\d+ s"


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\na: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_sends_nothing_or_too_slowly(begin: bytes) -> None:
    """The limit is that of the whole answer: each byte of a header or of the content comes in time."""
    asked = threading.Event()
    with serving(lambda connection: asked.wait(TIMEOUT_S) and None) as url:
        with pytest.raises(NoDocument, match=LATE):
            document(url, 0.05)
        asked.set()

    def drip(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(b"x")
            if asked.wait(0.01) and connection.recv(1) == b"":
                return

    asked.clear()
    with serving(drip) as url:
        with pytest.raises(NoDocument, match=LATE):
            document(url, 0.2)
        asked.set()
