"""A non-blocking connection with several requests in flight, for loads of gigabytes."""

from __future__ import annotations

import random
import selectors
import socket
from typing import Generic, TypeVar

from txbroker.client.advertised import unreachable
from txbroker.client.blocking_connection import connect, new_nonce
from txbroker.client.client_errors import ConnectionFailed, Unreachable, address_text, reason_text
from txbroker.client.client_machine import ClientMachine, ClientSettings, Completed
from txbroker.client.tls_failures import tls_failed
from txbroker.client.topic_leaders import Broker
from txbroker.tls.client_pipe import ClientPipe
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, TlsSettings
from txbroker.wire.schema import Request

C = TypeVar("C")
_SEALED_BYTES = 256 * 1024  # that are received, or encrypted, at once


class PipelinedConnection(Generic[C]):
    """Connected once it is constructed; the negotiation goes on with `write` and `read`, until `ready`.

    ConnectionFailed from any method: the connection is lost, and `machine.in_flight` has what had no response. `send_buffer`,
    `receive_buffer`: bytes, or -1 for the system's defaults, as in Kafka's clients.
    """

    def __init__(
        self, broker: Broker, settings: ClientSettings, now_s: float, send_buffer: int = -1, receive_buffer: int = -1
    ) -> None:
        self.address = address_text(broker.host, broker.port)
        self.machine: ClientMachine[C] = ClientMachine(self.address, settings, random.random, new_nonce)
        self.machine.connect_started(now_s)
        try:
            self.socket = connect(broker.host, broker.port, settings.connect_timeout_s)
        except Unreachable as error:
            raise unreachable(broker, error) from None
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size != -1:
                self.socket.setsockopt(socket.SOL_SOCKET, option, size)
        self._sealed = memoryview(b"")  # encrypted, and not sent yet
        self._pipe: ClientPipe | None = None
        if settings.security is not None and settings.security.tls is not None:
            try:
                self._pipe = self._handshake(settings.security.tls, broker.host, settings.connect_timeout_s)
            except BaseException:
                self.close()
                raise
        self.socket.setblocking(False)
        self.machine.connected(now_s)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    @property
    def events(self) -> int:
        """What to wait for, in the terms of `selectors`."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self.machine.unsent or self._sealed else 0)

    def send(
        self, request: Request, context: C, now_s: float, *, version_max: int | None = None, response_expected: bool = True
    ) -> None:
        """Send a request, as far as the socket takes it; the rest by `write`. Only while `machine.ready`."""
        self.machine.send(request, context, now_s, version_max=version_max, response_expected=response_expected)
        self.write()

    def write(self) -> None:
        """Send as much as the socket takes."""
        machine = self.machine
        try:
            while self._pipe is None and machine.unsent:
                machine.sent(self.socket.sendmsg(machine.outgoing()))
            while self._pipe is not None and (machine.unsent or self._sealed):
                self._send_sealed(self._pipe)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise machine.closed_by_peer(reason_text(error)) from None

    def read(self) -> list[Completed[C]]:
        """The requests that are completed by what the socket has. Their bodies are valid until the next `read`."""
        machine = self.machine
        try:
            completed = self._read_sealed(self._pipe) if self._pipe is not None else machine.received(self._read_plain())
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise machine.closed_by_peer(reason_text(error)) from None
        if machine.unsent or self._sealed:
            self.write()  # ApiVersions in version 0, or the next message of a login
        if machine.failure is not None and not completed:
            raise machine.failure
        return completed

    def _read_plain(self) -> int:
        """How many bytes came; OSError, ConnectionFailed."""
        count = self.socket.recv_into(self.machine.buffer())
        if not count:
            raise self.machine.closed_by_peer()
        return count

    def _read_sealed(self, pipe: ClientPipe) -> list[Completed[C]]:
        """OSError, ConnectionFailed."""
        sealed = self.socket.recv(_SEALED_BYTES)
        if not sealed:
            raise self.machine.closed_by_peer()
        plain = pipe.feed(sealed)
        self._sealed = memoryview(bytes(self._sealed) + pipe.unsent())
        if pipe.ended and not plain:
            raise self.machine.closed_by_peer()
        return self.machine.feed(plain)

    def _send_sealed(self, pipe: ClientPipe) -> None:
        """Send what is encrypted, or encrypt the next bytes; OSError."""
        if not self._sealed:
            part = self.machine.outgoing()[0][:_SEALED_BYTES]
            self._sealed = memoryview(pipe.encrypt(part))
            self.machine.sent(len(part))
        self._sealed = self._sealed[self.socket.send(self._sealed) :]

    def _handshake(self, tls: TlsSettings, host: str, timeout_s: float) -> ClientPipe:
        """Wait for it; ConnectionFailed."""
        try:
            pipe = ClientPipe(client_context(tls), host)
            self.socket.settimeout(timeout_s)
            self.socket.sendall(pipe.begin())
            while not pipe.complete:
                sealed = self.socket.recv(_SEALED_BYTES)
                if not sealed:
                    raise self.machine.closed_by_peer("it closed the connection in the handshake of TLS")
                try:
                    pipe.feed(sealed)
                finally:
                    self.socket.sendall(pipe.unsent())
        except TlsProblem as problem:
            raise ConnectionFailed(str(problem)) from None
        except OSError as error:
            raise tls_failed(self.address, error) from None
        return pipe

    def check(self, now_s: float) -> None:
        """ConnectionFailed when a response is late, or the peer has broken the protocol. Renews a session that ends soon."""
        self.machine.check_session(now_s)
        if self.machine.unsent or self._sealed:
            self.write()
        failure = self.machine.failure or self.machine.expired(now_s)
        if failure is not None:
            raise failure
