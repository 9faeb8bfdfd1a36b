"""A reactor that the test runs, a listener on port 0, and client sockets, all in one thread."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.epollreactor import EPollReactor

from tests.support.fakes.worker import JobWorker
from tests.support.waiting import PATIENCE_S
from txbroker.action_queue import ActionQueue
from txbroker.transport.hub import Hub
from txbroker.transport.limits import Limits
from txbroker.transport.listener import Listener


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Answering:
    """A frame protocol that responds with `answer(frame)`: a list of parts, or None for no response now."""

    def __init__(self, answer: Callable[[memoryview], list[Any] | None]) -> None:
        self.answer = answer
        self.frames = 0
        self.lost = 0
        self.sizes: list[int] = []
        self.output: list[Any] = []
        self.output_bytes = 0
        self.stop = False
        self.ended = False
        self.in_flight = 0
        self.transport: Any = None

    @property
    def full(self) -> bool:
        return self.stop or self.output_bytes > 1_000_000

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def connectionLost(self, reason: Any) -> None:
        self.lost += 1

    def frame_received(self, frame: memoryview) -> bool:
        assert not frame.readonly
        assert not self.full, "a full protocol gets no frames"
        self.frames += 1
        parts = self.answer(frame)
        # A frame must not be used later: overwrite it, so that a later use is detected.
        if len(frame) < 1000:
            frame[:] = b"\xee" * len(frame)
        if parts is not None:
            self.put(parts)
        return True

    def put(self, parts: list[Any]) -> None:
        self.output += parts
        self.output_bytes += sum(map(len, parts))

    def bad_size(self, size: int, size_max: int) -> None:
        self.sizes.append(size)
        self.stop = True
        self.transport.loseConnection()

    def input_ended(self) -> None:
        self.stop = self.ended = True

    def finish(self, parts: list[Any]) -> None:
        """Answer the last request in flight; the connection ends if no more follow."""
        self.put(parts)
        self.in_flight = 0
        if self.ended:
            self.transport.loseConnection()
        self.transport.flush()

    def take_output(self) -> list[Any]:
        output, self.output = self.output, []
        self.output_bytes = 0
        return output


def echo(received: memoryview) -> list[Any]:
    return [frame(bytes(received))]


class ListenerHarness:
    """One hub with one listener."""

    def __init__(
        self, answer: Callable[[memoryview], list[Any] | None] = echo, *, reactor: Any = None, tls: Any = None, worker: Any = None,
        **limits: Any,
    ) -> None:  # fmt: skip
        self.reactor: Any = reactor or EPollReactor()
        self.worker = worker or JobWorker()
        self.actions = ActionQueue(self.reactor.callLater)
        self.hub = Hub(self.reactor, Limits(**limits), self.worker, self.actions)
        self.protocols: list[Any] = []
        self.build: Callable[[], Any] = lambda: Answering(answer)
        self.listener: Any = Listener(self.hub, "TEST", "127.0.0.1", 0, self._build, backlog=1000, tls=tls)
        self.clients: list[socket.socket] = []
        self.hub.start()
        self.listener.startListening()

    def _build(self) -> Any:
        self.protocols.append(self.build())
        return self.protocols[-1]

    def connect(self, **options: Any) -> Client:
        return Client(self, **options)

    def turn(self, timeout_s: float = 0.0) -> None:
        self.reactor.runUntilCurrent()
        self.reactor.doIteration(timeout_s)

    def turns(self, count: int = 20) -> None:
        for _ in range(count):
            self.turn()

    def until(self, condition: Callable[[], Any], what: str = "") -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, what or "the condition never became true"
            self.turn(0.002)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        stopped: list[Any] = []
        self.listener.stopListening().addCallback(stopped.append)
        self.until(lambda: stopped)
        gone: list[Any] = []
        self.hub.stop().addCallback(gone.append)
        self.until(lambda: gone)
        assert self.hub.connections == 0
        assert self.hub.buffers.reserved == 0
        assert all(protocol.lost == 1 for protocol in self.protocols if isinstance(protocol, Answering) and protocol.transport)
        self.reactor.removeAll()
        if isinstance(self.reactor, EPollReactor):
            self.reactor._poller.close()


class Client:
    """A client's socket; every wait runs the reactor."""

    def __init__(self, harness: ListenerHarness, *, receive_buffer: int = 0) -> None:
        self.harness = harness
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", harness.listener.getHost().port))
        self.socket.setblocking(False)
        harness.clients.append(self.socket)
        self._received = bytearray()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        rest = memoryview(data)

        def sent() -> bool:
            nonlocal rest
            rest = rest[self.send_some(rest) :]
            return not rest

        self.harness.until(sent, "the broker does not read")

    def send_some(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def receive_some(self) -> bool | None:
        """Whether bytes were received; None at the end of the stream."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return None
        self._received += data
        return True if data else None

    def receive(self, size: int) -> bytes:
        """Receive exactly `count` bytes."""

        def enough() -> bool:
            while len(self._received) < size and (came := self.receive_some()) is not False:
                assert came, "the broker closed the connection"
            return len(self._received) >= size

        self.harness.until(enough, "the broker does not answer")
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def at_end(self) -> bool:
        """Whether the broker closed the connection; no bytes may be left."""
        try:
            data = self.socket.recv(1)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        assert not data
        return True

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
