"""A blocking connection to a broker: one request at a time, in this project's messages, with TLS and SASL if its settings have them."""

from __future__ import annotations

import random
import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from txbroker.client import advertised
from txbroker.client.client_errors import (
    AdvertisedUnreachable,
    ConnectionFailed,
    LoginRefused,
    NameUnknown,
    NoBroker,
    Unreachable,
    address_text,
    reason_text,
)
from txbroker.client.client_machine import ClientMachine, ClientSettings, Completed
from txbroker.client.tls_failures import tls_failed
from txbroker.client.topic_leaders import Broker
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, TlsSettings
from txbroker.wire.schema import Request, VersionRange

DEFAULT_SETTINGS = ClientSettings()
NONCE_BYTES = 24


class BlockingConnection:
    """Connected, with versions negotiated, and logged in, once it is constructed.

    ConnectionFailed from the constructor and from `call`; LoginRefused if the broker refuses the user.
    `connect_ms` is how long the connection took, without TLS and SASL.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings = DEFAULT_SETTINGS, name: str | None = None) -> None:
        """`name`: of the host in the broker's certificate, if `host` is one of its addresses."""
        self.address = address_text(host, port)
        self.machine: ClientMachine[None] = ClientMachine(self.address, settings, random.random, new_nonce)
        started_s = time.monotonic()
        self.machine.connect_started(started_s)
        self.socket: socket.socket = connect(host, port, settings.connect_timeout_s)
        try:
            connected_s = time.monotonic()
            self.connect_ms = (connected_s - started_s) * 1000
            security = settings.security
            if security is not None and security.tls is not None:
                self.socket = _secured(self.socket, security.tls, name or host, self.address)
                connected_s = time.monotonic()
            self.machine.connected(connected_s)
            while not self.machine.ready:
                self._exchange()
            self.machine.check_session(time.monotonic())
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

    def try_address(self, host: str, port: int) -> None:
        """Connect to another address with the same timeout, and close that connection; Unreachable."""
        connect(host, port, self.machine.settings.connect_timeout_s).close()

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
        self.machine.check_session(time.monotonic())
        while not self.machine.ready:
            self._exchange()
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
                machine.sent(self._send(machine.outgoing()))
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

    def _send(self, parts: Sequence[memoryview]) -> int:
        """Send some of these bytes; how many."""
        return self.socket.send(parts[0]) if isinstance(self.socket, ssl.SSLSocket) else self.socket.sendmsg(parts)

    def _left_s(self) -> float:
        left_s = (self.machine.deadline_s or 0.0) - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _silent(self) -> ConnectionFailed:
        return self.machine.expired(self.machine.deadline_s or 0.0) or self.machine.closed_by_peer()


def new_nonce() -> str:
    """Random text for a login."""
    return secrets.token_urlsafe(NONCE_BYTES)


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket with TCP_NODELAY; Unreachable."""
    try:
        connected = socket.create_connection((host, port), timeout_s)
    except UnicodeError:  # an empty label, or one that is too long
        unknown = NameUnknown("this is not a valid host name")
        raise Unreachable(address_text(host, port), reason_text(unknown), unknown) from None
    except socket.gaierror as error:
        raise Unreachable(address_text(host, port), reason_text(error), NameUnknown(reason_text(error))) from None
    except OSError as error:
        raise Unreachable(address_text(host, port), reason_text(error), error) from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _secured(connected: socket.socket, tls: TlsSettings, host: str, address: str) -> ssl.SSLSocket:
    """The socket with TLS, after the handshake; ConnectionFailed."""
    try:
        return client_context(tls).wrap_socket(connected, server_hostname=host)
    except TlsProblem as problem:
        raise ConnectionFailed(str(problem)) from None
    except OSError as error:
        raise tls_failed(address, error) from None


def connect_to_any(addresses: Iterable[tuple[str, int]], settings: ClientSettings = DEFAULT_SETTINGS) -> BlockingConnection:
    """A connection to the first of several addresses that answers; NoBroker with what is wrong with each.

    AdvertisedUnreachable if a broker answers, but no broker can be reached at the address that it advertises; LoginRefused if one refuses
    the user.
    """
    problems: list[str] = []
    for host, port in addresses:
        try:
            return _checked(BlockingConnection(host, port, settings))
        except (AdvertisedUnreachable, LoginRefused):
            raise
        except ConnectionFailed as problem:
            problems.append(str(problem))
    advice = "start a broker with `txbroker run`, correct the bootstrap servers, or run `txbroker doctor`"
    raise NoBroker(f"{'; '.join(problems)}; {advice}")


def _checked(connection: BlockingConnection) -> BlockingConnection:
    """The connection, if the addresses that its cluster advertises can be used; it is closed otherwise. ConnectionFailed."""
    try:
        advertised.check(connection.call(advertised.NO_BROKERS), connection.address, connection.try_address)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_broker(broker: Broker, settings: ClientSettings = DEFAULT_SETTINGS) -> BlockingConnection:
    """A connection to a broker at the address that it advertises; AdvertisedUnreachable, ConnectionFailed."""
    try:
        return BlockingConnection(broker.host, broker.port, settings)
    except Unreachable as error:
        raise advertised.unreachable(broker, error) from None
