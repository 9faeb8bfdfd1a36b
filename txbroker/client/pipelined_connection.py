"""A non-blocking connection with several requests in flight, for loads of gigabytes."""

from __future__ import annotations

import random
import selectors
import socket
from typing import Generic, TypeVar

from txbroker.client.advertised import unreachable
from txbroker.client.blocking_connection import connect, new_nonce
from txbroker.client.client_errors import Unreachable, address_text, reason_text
from txbroker.client.client_machine import ClientMachine, ClientSettings, Completed
from txbroker.client.topic_leaders import Broker
from txbroker.wire.schema import Request

C = TypeVar("C")


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
        self.socket.setblocking(False)
        self.machine.connected(now_s)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    @property
    def events(self) -> int:
        """What to wait for, in the terms of `selectors`."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self.machine.unsent else 0)

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
            while machine.unsent:
                machine.sent(self.socket.sendmsg(machine.outgoing()))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise machine.closed_by_peer(reason_text(error)) from None

    def read(self) -> list[Completed[C]]:
        """The requests that are completed by what the socket has. Their bodies are valid until the next `read`."""
        machine = self.machine
        try:
            count = self.socket.recv_into(machine.buffer())
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise machine.closed_by_peer(reason_text(error)) from None
        if not count:
            raise machine.closed_by_peer()
        completed = machine.received(count)
        if machine.unsent:
            self.write()  # ApiVersions in version 0, or the next message of a login
        if machine.failure is not None and not completed:
            raise machine.failure
        return completed

    def check(self, now_s: float) -> None:
        """ConnectionFailed when a response is late, or the peer has broken the protocol. Renews a session that ends soon."""
        self.machine.check_session(now_s)
        if self.machine.unsent:
            self.write()
        failure = self.machine.failure or self.machine.expired(now_s)
        if failure is not None:
            raise failure
