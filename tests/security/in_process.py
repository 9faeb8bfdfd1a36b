"""A broker in this process whose listener requires SASL PLAIN, with ACLs, and clients that keep their connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.python.failure import Failure

from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker, _Transport
from txbroker.connection.protocol import Connection
from txbroker.wire.codec import decode
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from txbroker.wire.schema import Request

USERS = ("admin", "alice", "bob", "eve")
LIFETIME_MS = 3_600_000
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(f'user_{user}="{user}-pw"' for user in USERS) + ";"
OVERRIDES = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name=SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={_JAAS}", f"connections.max.reauth.ms={LIFETIME_MS}",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:admin",
    "connection.failed.authentication.delay.ms=0",
)  # fmt: skip


class SaslBroker(InProcessBroker):
    """`user`: who logs in on connections from now on, none if it is empty; `peer_host`: their address."""

    def __init__(self, *overrides: str) -> None:
        self.user, self.peer_host = "admin", "127.0.0.1"
        super().__init__(overrides=[*OVERRIDES, *overrides])

    def _connect(self) -> tuple[Connection, _Transport]:
        connection, transport = super()._connect()
        transport.session.peer_host = self.peer_host
        self.last = transport
        if self.user:
            Client.login(self, connection, self.user)
        return connection, transport

    def ask(self, request: Request, version: int, user: str = "admin") -> Any:
        """The answer to one request on a new connection."""
        self.user = user
        (answer,) = self.exchange([self.frame(request, version)])
        return answer


class Client:
    """A connection of a user, which stays open."""

    def __init__(self, broker: SaslBroker, user: str) -> None:
        broker.user = user
        self.broker = broker
        self.user = user
        self.connection, self.transport = broker._connect()
        self._sent: dict[int, tuple[type[Request], int]] = {}
        self._number = 100

    @staticmethod
    def login(broker: SaslBroker, connection: Connection, user: str) -> None:
        """Log in; the answers are not looked at."""
        for message in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-pw".encode())):
            _, _, data = broker.frame(message, 1)
            assert connection.frame_received(memoryview(bytearray(data[4:])))
        broker.reactor.advance(0)
        connection.take_output()

    @property
    def is_closed(self) -> bool:
        return self.transport.closed

    @property
    def is_full(self) -> bool:
        return self.connection.full

    def send(self, request: Request, version: int) -> int | None:
        """Send a request; its number, None if the connection takes none now."""
        self._number += 1
        _, _, data = self.broker.frame(request, version)
        frame = bytearray(data[4:])
        frame[4:8] = self._number.to_bytes(4, "big")
        if self.is_closed or not self.connection.frame_received(memoryview(frame)):
            return None
        self._sent[self._number] = type(request), version
        return self._number

    def answers(self) -> Sequence[tuple[int, bytes, Any]]:
        """What has been answered: the number of the request, the bytes and the message."""
        output: list[bytes] = []
        self.broker._take(self.connection, output)
        data, found = b"".join(output), []
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = data[4 : 4 + size], data[4 + size :]
            number = int.from_bytes(frame[:4], "big")
            cls, version = self._sent.pop(number)
            body = frame[5 if version in cls.flexible and cls.api_key != 18 else 4 :]
            found.append((number, body, decode(frames.readable_answer(cls), version, body)))
        return found

    def close(self) -> None:
        """End the connection."""
        self.connection.connectionLost(Failure(ConnectionError()))
