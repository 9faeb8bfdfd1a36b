"""A TLS 1.3 client on OpenSSL's library itself: Python's ssl module cannot send KeyUpdate."""

from __future__ import annotations

import ctypes
import socket
import ssl
from pathlib import Path
from typing import Any

NOT_REQUESTED, REQUESTED = 0, 1
_VERIFY_PEER = 1
_PROTOCOL_CTRL, _TLS_1_3 = 123, 0x0304  # SSL_CTRL_SET_MIN_PROTO_VERSION


def _library() -> Any:
    """The library that the ssl module has loaded; its own if that is linked into the module."""
    assert ssl.HAS_TLSv1_3
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libssl" in line}
    found = ctypes.CDLL(next(iter(loaded), "libssl.so.3"))
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(found, name).restype = ctypes.c_void_p
    return found


class KeyUpdater:
    """A connection to a listener on this machine, which blocks."""

    def __init__(self, port: int, authority: Path) -> None:
        self._ssl = _library()
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.settimeout(None)
        self._context = ctypes.c_void_p(self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method())))
        self._ssl.SSL_CTX_ctrl(self._context, _PROTOCOL_CTRL, ctypes.c_long(_TLS_1_3), None)
        assert self._ssl.SSL_CTX_load_verify_locations(self._context, str(authority).encode(), None) == 1
        self._ssl.SSL_CTX_set_verify(self._context, _VERIFY_PEER, None)
        self._connection = ctypes.c_void_p(self._ssl.SSL_new(self._context))
        self._ssl.SSL_set_fd(self._connection, self._socket.fileno())

    def connect(self) -> None:
        """The handshake."""
        assert self._ssl.SSL_connect(self._connection) == 1

    def update(self, kind: int) -> None:
        """Send KeyUpdate: NOT_REQUESTED or REQUESTED."""
        assert self._ssl.SSL_key_update(self._connection, kind) == 1
        assert self._ssl.SSL_do_handshake(self._connection) == 1

    def write(self, data: bytes) -> None:
        """Send all of it."""
        assert self._ssl.SSL_write(self._connection, data, len(data)) == len(data)

    def read(self, size: int) -> bytes:
        """Receive exactly so much; less at the end."""
        buffer, received = ctypes.create_string_buffer(size), b""
        while len(received) < size:
            count = self._ssl.SSL_read(self._connection, buffer, size - len(received))
            if count <= 0:
                break
            received += buffer.raw[:count]
        return received

    def close(self) -> None:
        """End it, without close_notify."""
        self._ssl.SSL_free(self._connection)
        self._ssl.SSL_CTX_free(self._context)
        self._socket.close()
