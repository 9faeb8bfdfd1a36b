"""The addresses of brokers, as flags have them."""

from __future__ import annotations

from txbroker.console.failures import BadUsage

DEFAULT_PORT = 9092


def addresses(servers: str, flag: str = "--bootstrap-server") -> list[tuple[str, int]]:
    """The hosts and ports in the value of a flag; BadUsage."""
    found = []
    for server in servers.split(","):
        protocol, scheme, address = server.strip().partition("://")
        if scheme:
            hint = f"did you mean {address}? " if address else ""
            raise BadUsage(f"{flag} is {servers!r}; {hint}It must be comma-separated HOST:PORT, without {protocol}://")
        host, colon, port = server.strip().rpartition(":")
        if not colon or host.endswith("]") is not host.startswith("["):
            host, port = server.strip(), str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadUsage(f"{flag} is {servers!r}; it must be comma-separated HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found
