"""The limits of the transport, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import field

from txbroker.lazy_dataclass import lazy_dataclass

KIB = 1024
MIB = 1024 * KIB


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, -1 for none. The same for all listeners of a broker."""

    request_bytes_max: int = 100 * MIB
    """socket.request.max.bytes: a larger frame closes the connection."""

    queued_request_bytes_max: int = -1
    """queued.max.request.bytes: memory of the large frames that are being received on all connections."""

    connections_max: int = 2**31 - 1
    """max.connections: at the limit no more connections are accepted until one is closed."""

    connections_per_ip_max: int = 2**31 - 1
    """max.connections.per.ip: above the limit a new connection is closed at once."""

    connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides, by address."""

    descriptors_max: int | None = None
    """File descriptors of the process, None for the system's limit: near it no more connections are accepted, as at max.connections."""

    login_ms_max: int = 30_000
    """txbroker.login.timeout.ms: how long the TLS handshake and the login by SASL of a connection may take together."""

    logins_per_ip_max: int = 1000
    """txbroker.login.connections.per.ip: connections of one address whose clients have not logged in; more are closed at once."""

    idle_ms_max: int = 600_000
    """connections.max.idle.ms."""

    send_buffer_bytes: int = 102_400
    """socket.send.buffer.bytes; -1 for the system's default, with which large fetches need half as much CPU again."""

    receive_buffer_bytes: int = -1
    """socket.receive.buffer.bytes; -1 for the system's default. Kafka's default is 102400; with the system's a large produce needs less
    than half the CPU."""

    output_bytes_max: int = 1 * MIB
    """Responses of one connection that its peer has not received; above the limit the connection is not read."""
