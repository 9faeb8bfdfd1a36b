"""Keeps the port of a broker for tests while the broker does not run."""

from __future__ import annotations

import errno
import socket

from txbroker.testing.errors import KitError
from txbroker.testing.settings import HOST


def reserve(port: int) -> socket.socket:
    """A socket that keeps a port, without listening on it: its broker can listen, no other process and no client gets it. KitError.

    `port`: 0 takes a free one.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        in_use = error.errno == errno.EADDRINUSE
        problem = "is in use; stop what uses it" if in_use else f"cannot be used ({error.strerror}); choose another one"
        raise KitError(f"port {port} {problem}, or specify no port, and a free one is taken") from None
    return made
