"""The seam between a connection and its socket carries a stream that encrypts: one that has bytes of its own to send and to receive."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from select import EPOLLIN, EPOLLOUT
from threading import Thread
from typing import Any

import pytest

from tests.transport.harness import ListenerHarness, echo, frame
from tests.transport.test_reading import Reluctant
from txbroker.log.region import Region

Make = Callable[..., ListenerHarness]

UNSENT_MAX = 64 * 1024


def context(side: int) -> ssl.SSLContext:
    """TLS without certificates."""
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return made


class TlsStream:
    """TLS on a socket, with buffers in memory. A call of `read_into` returns at most one record: the next one is `wants`ed."""

    made: list[TlsStream] = []  # noqa: RUF012

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context(ssl.PROTOCOL_TLS_SERVER).wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = b""
        self._ready = False
        self.kept_input = self.kept_output = 0
        self.made.append(self)

    @property
    def wants(self) -> int:
        wants = (EPOLLOUT if self._unsent else 0) | (EPOLLIN if self._ready and self._tls.pending() + self._incoming.pending else 0)
        self.kept_output += bool(wants & EPOLLOUT)
        self.kept_input += bool(wants & EPOLLIN)
        return wants

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_into(self, buffer: memoryview, /) -> int:
        ended = False
        try:
            received = self._socket.recv(50_000)
            ended = not received
            self._incoming.write(received)
        except BlockingIOError:
            pass
        try:
            if not self._ready:
                self._tls.do_handshake()
                self._ready = True
            return self._tls.read(len(buffer), buffer)  # type: ignore[arg-type, call-overload, no-any-return]
        except ssl.SSLWantReadError as error:
            if ended:
                return 0
            raise BlockingIOError from error
        finally:
            self._flush()

    def send(self, data: Any, flags: int = 0, /) -> int:
        self._flush()
        if not data:
            return 0
        if len(self._unsent) > UNSENT_MAX:
            raise BlockingIOError
        count = self._tls.write(memoryview(data)[:UNSENT_MAX])
        self._flush()
        return count

    def send_region(self, file_fd: int, position: int, count: int) -> int:
        return self.send(os.pread(file_fd, min(count, UNSENT_MAX), position))

    def _flush(self) -> None:
        self._unsent += self._outgoing.read()
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def close(self, *, reset: bool) -> None:
        self._socket.close()


class TlsClient(Thread):
    """Sends frames, all before it receives an answer, and receives their answers."""

    def __init__(self, port: int, frames: list[bytes]) -> None:
        super().__init__()
        self.frames = frames
        self.answers: list[bytes] = []
        self.failure: Exception | None = None
        self._socket = socket.create_connection(("127.0.0.1", port))

    def run(self) -> None:
        try:
            with context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(self._socket) as tls, tls.makefile("rb") as received:
                writer = Thread(target=lambda: [tls.sendall(frame(each)) for each in self.frames])
                writer.start()
                for _ in self.frames:
                    self.answers.append(received.read(int.from_bytes(received.read(4), "big")))
                writer.join()
        except Exception as error:
            self.failure = error


@pytest.fixture
def tls(start: Make) -> Make:
    TlsStream.made.clear()

    def make(*arguments: Any, **limits: Any) -> ListenerHarness:
        harness = start(*arguments, **limits)
        harness.listener.stream = TlsStream
        return harness

    return make


def exchange(harness: ListenerHarness, frames: list[bytes]) -> list[bytes]:
    client = TlsClient(harness.listener.getHost().port, frames)
    client.start()
    harness.until(lambda: not client.is_alive())
    assert client.failure is None
    return client.answers


def test_frames_of_all_sizes_are_received_and_answered_through_tls(tls: Make) -> None:
    harness = tls()
    frames = [hashlib.sha256(b"%d" % size).digest() + bytes(size) for size in (0, 10, 5000, 16_384, 100, 300_000, 1_500_000, 7, 40_000)]
    assert exchange(harness, frames * 2) == frames * 2
    (stream,) = TlsStream.made
    assert stream.kept_input, "received bytes of which the system knows nothing were read"
    assert stream.kept_output, "bytes of the stream itself waited for the socket"


def test_a_connection_that_is_full_reads_on_what_its_stream_has_received(tls: Make) -> None:
    """The frames are in the stream, and no event of the socket says so, when the connection takes frames again."""
    harness = tls()
    harness.build = lambda: Reluctant(echo)
    frames = [b"%08d" % number + bytes(3000) for number in range(100)]
    assert exchange(harness, frames) == frames
    assert harness.hub.pauses


def test_file_regions_are_sent_through_tls(tls: Make, tmp_path: Path) -> None:
    data = b"".join(hashlib.sha1(b"%d" % n).digest() for n in range(100_000))
    (tmp_path / "file").write_bytes(data)

    class File:
        path = str(tmp_path / "file")

        def __init__(self) -> None:
            self._file = open(self.path, "rb")  # noqa: SIM115

        def fileno(self) -> int:
            return self._file.fileno()

        def pread(self, position: int, length: int) -> bytes:
            return os.pread(self.fileno(), length, position)

    file: Any = File()

    def answer(received: memoryview) -> list[Any]:
        position, length = int.from_bytes(received[:4], "big"), int.from_bytes(received[4:], "big")
        return [length.to_bytes(4, "big"), Region(file, position, length)]

    wanted = [(0, 10), (7, 1_900_000), (100, 20_000), (0, len(data)), (5, 3)]
    harness = tls(answer)
    found = exchange(harness, [position.to_bytes(4, "big") + length.to_bytes(4, "big") for position, length in wanted])
    assert found == [data[position : position + length] for position, length in wanted]
    file._file.close()
