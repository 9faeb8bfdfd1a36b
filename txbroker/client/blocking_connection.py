"""A blocking connection to a broker: one request at a time, in this project's messages. It connects without TLS and SASL."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from txbroker.client.client_errors import ClientError, ConnectionFailed, Unreachable, address_text, reason_text
from txbroker.client.client_machine import ClientMachine, ClientSettings, Completed
from txbroker.wire.schema import Request, VersionRange

DEFAULT_SETTINGS = ClientSettings()


class BlockingConnection:
    """Connected, with versions negotiated, once it is constructed. ConnectionFailed from the constructor and from `call`.

    `connect_ms` is how long the connection took.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings = DEFAULT_SETTINGS) -> None:
        self.address = address_text(host, port)
        self.machine: ClientMachine[None] = ClientMachine(self.address, settings, random.random)
        started_s = time.monotonic()
        self.machine.connect_started(started_s)
        self.socket = connect(host, port, settings.connect_timeout_s)
        try:
            connected_s = time.monotonic()
            self.connect_ms = (connected_s - started_s) * 1000
            self.machine.connected(connected_s)
            while not self.machine.ready:
                self._exchange()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    @property
    def versions(self) -> Mapping[int, VersionRange]:
        """The versions that the broker supports, by API key."""
        return self.machine.versions

    def version_of(self, request: type[Request]) -> int | None:
        """The newest version of a request that both sides support; None when there is none."""
        return self.machine.version_of(request)

    def call(self, request: Request, *, version_max: int | None = None) -> Any:
        """Send a request; its response, decoded. The connection cannot be used any more after ConnectionFailed, except TooOld."""
        if self.machine.failure is not None:
            raise self.machine.failure
        self.machine.send(request, None, time.monotonic(), version_max=version_max)
        completed: list[Completed[None]] = []
        while not completed:
            completed = self._exchange()
        return completed[0].response()

    def _exchange(self) -> list[Completed[None]]:
        """Send what is to be sent, and receive once."""
        machine = self.machine
        try:
            while machine.unsent:
                self.socket.settimeout(self._left_s())
                machine.sent(self.socket.sendmsg(machine.outgoing()))
            self.socket.settimeout(self._left_s())
            count = self.socket.recv_into(machine.buffer())
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise machine.closed_by_peer(reason_text(error)) from None
        if not count:
            raise machine.closed_by_peer()
        completed = machine.received(count)
        if machine.failure is not None and not completed:
            raise machine.failure
        return completed

    def _left_s(self) -> float:
        left_s = (self.machine.deadline_s or 0.0) - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _silent(self) -> ConnectionFailed:
        return self.machine.expired(self.machine.deadline_s or 0.0) or self.machine.closed_by_peer()


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket with TCP_NODELAY; Unreachable."""
    try:
        connected = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise Unreachable(address_text(host, port), reason_text(error), error) from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def connect_to_any(addresses: Iterable[tuple[str, int]], settings: ClientSettings = DEFAULT_SETTINGS) -> BlockingConnection:
    """A connection to the first of several addresses that answers; ClientError with what is wrong with each."""
    problems: list[str] = []
    for host, port in addresses:
        try:
            return BlockingConnection(host, port, settings)
        except ConnectionFailed as problem:
            problems.append(str(problem))
    advice = "start a broker with `txbroker run`, correct the bootstrap servers, or run `txbroker doctor`"
    raise ClientError(f"{'; '.join(problems)}; {advice}")
