"""The listening side of a broker in the simulation: implements `Ports` (`transport/interfaces.py`) on the simulated network.

It cuts frames and keeps the turns of the poller, as `transport/server.py` does with sockets. A file region of a response is read when it is
sent; sometimes that is later, as with a socket whose buffer is full.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from struct import Struct
from typing import Any

from twisted.internet.error import CannotListenError, ConnectionLost
from twisted.python.failure import Failure

from simulation.network import Accepting, End, Network
from simulation.process import Process
from txbroker.action_queue import ActionQueue
from txbroker.api.encoded.response_frame import Part
from txbroker.api.request_context import Session
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.errors import StorageError
from txbroker.log.region import Region
from txbroker.security.principals import ANONYMOUS
from txbroker.transport.interfaces import FRAME_BYTES_MIN, FrameProtocol
from txbroker.transport.limits import Limits

SIZE = Struct(">i")
FULL_CHANCE = 0.02  # a response with file regions waits for room in the socket
FULL_S = 0.05


class SimulatedPorts:
    """The ports of one process."""

    def __init__(
        self, process: Process, network: Network, chance: Random, limits: Limits, actions: ActionQueue, users: Collection[str],
        brokers: Collection[str], ruled: Callable[[FrameProtocol], FrameProtocol],
    ) -> None:  # fmt: skip
        """`users`: hosts whose name is the principal of their connections. `ruled`: for connections from other hosts than `brokers`."""
        self.process = process
        self.chance = chance
        self._users = users
        self._brokers = brokers
        self._ruled = ruled
        self.actions = actions
        self.request_bytes_max = limits.request_bytes_max
        self.report_file: Callable[[str], None] = lambda path: None
        self._network = network
        self._accepting: list[tuple[str, int, Accepting]] = []
        self._accepts = False
        self._backlog: list[Callable[[], None]] = []
        self._transports: dict[ServerTransport, None] = {}
        self._dirty: list[ServerTransport] = []
        self._in_turn = False
        self._number = 0

    def listen(
        self, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int, tls: object = None
    ) -> int:
        """See `Ports`. TLS is not simulated."""

        def connected(end: End) -> None:
            if self._accepts:
                self._open(end, name, build())
            else:
                self._backlog.append(lambda: self._open(end, name, build()))

        accepting = Accepting(self.process, connected)
        if not self._network.listen(host, port, accepting):
            raise CannotListenError(host, port, OSError("the address is in use"))
        self._accepting.append((host, port, accepting))
        return port

    def check(self, host: str, port: int) -> None:
        """See `Ports`."""

    def accept(self) -> None:
        """See `Ports`."""
        self._accepts = True
        backlog, self._backlog = self._backlog, []
        for accept in backlog:
            accept()

    def file_gone(self, report: Callable[[str], None]) -> None:
        """See `Ports`."""
        self.report_file = report

    def change(self, limits: Limits) -> None:
        """See `Ports`."""

    def limit_rates(self, rates: ConnectionRates) -> None:
        """See `Ports`."""

    async def close(self) -> None:
        """See `Ports`."""
        for address in self._accepting:
            self._network.stop_listening(*address)
        self._accepting.clear()
        for transport in list(self._transports):
            transport.loseConnection()

    def _open(self, end: End, name: str, protocol: FrameProtocol) -> None:
        if end.open:
            self._number += 1
            session = Session(
                peer_host=end.peer_host, peer_port=40_000 + self._number, local_host=self.process.host, local_port=end.port, listener=name,
                number=self._number, principal=f"User:{end.peer_host}" if end.peer_host in self._users else ANONYMOUS,
            )  # fmt: skip
            own = protocol if end.peer_host in self._brokers else self._ruled(protocol)
            self._transports[ServerTransport(self, end, own, session)] = None

    def closed(self, transport: ServerTransport) -> None:
        """A connection is closed."""
        self._transports.pop(transport, None)

    def turn(self, serve: Callable[[], None]) -> None:
        """Serve a socket; then send the responses, run the actions of the turn, and send what these have completed."""
        self._in_turn = True
        self.actions.begin_turn()
        try:
            serve()
            self._flush()
        finally:
            try:
                self.actions.end_turn()
            finally:
                self._in_turn = False
                self._flush()

    def flush(self, transport: ServerTransport) -> None:
        """Output is ready."""
        self._dirty.append(transport)
        if not self._in_turn:
            self._flush()

    def _flush(self) -> None:
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for transport in dirty:
                transport.advance()


class ServerTransport:
    """One accepted connection: satisfies `FrameTransport`."""

    def __init__(self, ports: SimulatedPorts, end: End, protocol: Any, session: Session) -> None:
        self.session = session
        self.disconnecting = False
        self._ports = ports
        self._end = end
        self._protocol = protocol
        self._input = bytearray()
        self._advancing = False
        self._delayed: list[Part] | None = None  # waits for room in the socket
        self._frame_bytes_min, self._frame_bytes_max = FRAME_BYTES_MIN, ports.request_bytes_max
        protocol.makeConnection(self)
        end.own(lambda data: ports.turn(lambda: self._received(data)), self._lost)

    def flush(self) -> None:
        """See `FrameTransport`."""
        self._ports.flush(self)

    def limit_frames(self, high: int | None, low: int = FRAME_BYTES_MIN) -> None:
        """See `FrameTransport`."""
        size_max = self._ports.request_bytes_max
        self._frame_bytes_min, self._frame_bytes_max = low, size_max if high is None else min(high, size_max)

    def expect_login(self, message_bytes_max: int) -> None:
        """See `FrameTransport`."""
        self.limit_frames(message_bytes_max)

    def logged_in(self) -> None:
        """See `FrameTransport`."""
        self.limit_frames(None)

    def loseConnection(self) -> None:
        """See `FrameTransport`."""
        if not self.disconnecting:
            self.disconnecting = True
            self._ports.process.callLater(0, self._close)

    def abortConnection(self) -> None:
        """Close at once."""
        self.disconnecting = True
        self._close()

    def advance(self) -> None:
        """Send the responses that are ready, and serve frames that had to wait for that."""
        if self._advancing or not self._end.open:
            return
        self._advancing = True
        try:
            self._send()
            while self._serve():
                self._send()
        finally:
            self._advancing = False

    def _received(self, data: bytes) -> None:
        self._input += data
        self.advance()

    def _serve(self) -> bool:
        """Pass whole frames to the protocol, as long as it takes them; whether it has taken one."""
        taken, position, received, protocol = False, 0, self._input, self._protocol
        while len(received) - position >= 4 and not protocol.full and not self.disconnecting:
            (size,) = SIZE.unpack_from(received, position)
            if not self._frame_bytes_min <= size <= self._frame_bytes_max:
                protocol.bad_size(size, self._frame_bytes_max)
                break
            frame_end = position + 4 + size
            if frame_end > len(received):
                break
            if not protocol.frame_received(memoryview(received[position + 4 : frame_end])):
                break
            position = frame_end
            taken = True
        del received[:position]
        return taken

    def _send(self) -> None:
        protocol = self._protocol
        if not protocol.output_bytes:
            return
        parts = protocol.take_output()
        if self._delayed is not None:
            self._delayed += parts
            return
        if self._ports.chance.random() < FULL_CHANCE and any(isinstance(part, Region) for part in parts):
            self._delayed = list(parts)
            self._ports.process.callLater(self._ports.chance.random() * FULL_S, self._room)
            return
        self._write(parts)

    def _room(self) -> None:
        delayed, self._delayed = self._delayed, None
        if delayed is not None and self._end.open:
            self._write(delayed)
            if self.disconnecting:
                self._close()

    def _write(self, parts: Sequence[Part]) -> None:
        written: list[Any] = []
        for part in parts:
            if isinstance(part, Region):
                try:
                    written.append(part.read())
                except StorageError:
                    self._ports.report_file(part.file.path)
                    self._lost(ConnectionLost())
                    return
            else:
                written.append(part)
        self._end.write(b"".join(written))

    def _close(self) -> None:
        if self._end.open:
            self._send()
            if self._delayed is None:
                self._lost(ConnectionLost())

    def _lost(self, reason: Exception) -> None:
        self._end.close()
        self._delayed = None
        self._ports.closed(self)
        protocol, self._protocol = self._protocol, _GONE
        protocol.connectionLost(Failure(reason))


class _Gone:
    """In place of the protocol of a connection that is closed."""

    full = True
    output_bytes = 0

    def connectionLost(self, reason: Failure) -> None:
        """The second time."""


_GONE: Any = _Gone()
