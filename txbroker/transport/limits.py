"""The limits of the transport, with Kafka's names and defaults where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in bytes, -1 for none. The same for all listeners of a broker."""

    request_bytes_max: int = 100 * MIB
    """socket.request.max.bytes: a frame that announces more closes the connection."""

    queued_request_bytes_max: int = -1
    """queued.max.request.bytes: memory of large frames that are being received, all connections together."""

    connections_max: int = 2**31 - 1
    """max.connections: beyond it, accepting waits."""

    connections_per_ip_max: int = 2**31 - 1
    """max.connections.per.ip: beyond it, a connection is closed at once."""

    connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides, by address."""

    descriptors_max: int | None = None
    """File descriptors of the whole process, None for the system's limit: near it, accepting waits as beyond max.connections."""

    idle_ms_max: int = 600_000
    """connections.max.idle.ms."""

    send_buffer_bytes: int = 102_400
    """socket.send.buffer.bytes; -1 leaves it to the system, whose own choice costs half as much CPU again for large fetches."""

    receive_buffer_bytes: int = -1
    """socket.receive.buffer.bytes; -1 leaves it to the system. Kafka's default is 102400, but the system's own choice is kinder to
    throughput: a large produce then costs less than half the CPU."""

    output_bytes_max: int = 1 * MIB
    """Replies of one connection that its peer has not taken; above it the connection is not read. Kafka allows one request at a time."""
