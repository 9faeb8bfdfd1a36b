"""The errors of a connection to a broker, by kind. The text of each is a sentence for people.

The kinds in `LOST` may pass; `NotKafka` and `TooOld` do not.
"""

from __future__ import annotations

from txbroker.errors import error_name


class ClientError(Exception):
    """A request to a broker failed."""


class RequestFailed(ClientError):
    """The broker answered with an error code. `what` failed; `code` and `message` are the broker's."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.what = what
        self.code = code
        self.message = message
        super().__init__(f"{what}: {message or error_name(code)}")


class TopicMissing(ClientError):
    """The topic `name` does not exist, and the broker does not create it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"topic {name} does not exist")


class TooManyRequests(ClientError):
    """More requests wait for a connection than it takes."""


class ConnectionFailed(ClientError):
    """A connection could not be used; the subclasses say why."""


class NameUnknown(OSError):
    """A host name does not resolve on this machine. `strerror` says why."""

    def __init__(self, why: str) -> None:
        super().__init__(0, why)


class Unreachable(ConnectionFailed):
    """No connection: refused, unknown host, no route, or a timeout while connecting. `error` is the operating system's, if it gave one."""

    def __init__(self, address: str, reason: str, error: Exception | None = None) -> None:
        self.error = error
        super().__init__(f"no connection to {address} ({reason})")


class AdvertisedUnreachable(Unreachable):
    """A broker cannot be reached at the address that it advertises. `why` follows "which"; `error` is the operating system's."""

    def __init__(self, node_id: int, address: str, why: str, error: Exception | None = None) -> None:
        super().__init__(address, why, error)
        refused = isinstance(error, ConnectionRefusedError)
        advice = f"{'start the broker, ' if refused else ''}correct advertised.listeners, or run `txbroker doctor`"
        self.args = (f"broker {node_id} advertises {address}, which {why}: {advice}",)


class Silent(ConnectionFailed):
    """The peer accepted the connection and did not respond in time."""


class Closed(ConnectionFailed):
    """The peer closed the connection. `received` is the beginning of an incomplete response, if any came."""

    def __init__(self, text: str, received: bytes = b"") -> None:
        self.received = received
        super().__init__(text)


class AuthenticationExpected(Closed):
    """The peer answered ApiVersions and closed the connection at the request after it, as a SASL listener does."""


class NotKafka(ConnectionFailed):
    """What the peer sent is not a response of Kafka's protocol. `received` is its beginning."""

    def __init__(self, text: str, received: bytes = b"") -> None:
        self.received = received
        super().__init__(text)


class TlsExpected(NotKafka):
    """The peer answered with a TLS record: the listener expects TLS."""


class LoginRefused(RequestFailed, ConnectionFailed):
    """The broker refused the user, or the mechanism. Another attempt has the same end."""


class NoBroker(ClientError):
    """None of several addresses has a broker that answers; the text says what is wrong with each."""


class TooOld(ConnectionFailed):
    """The broker supports no version of a request that this client supports."""


# Errors of a connection that may pass: another attempt makes sense.
LOST = (Unreachable, Silent, Closed)


def address_text(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_text(error: OSError) -> str:
    """Why the operating system ended or refused a connection."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)
