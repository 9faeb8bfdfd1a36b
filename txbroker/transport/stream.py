"""The seam between a connection and its socket: bytes in, bytes and file regions out.

`PlainStream` is a TCP socket. A stream that encrypts has bytes of its own to send, also when it receives, and keeps received bytes of which
the system knows nothing: it says so by `wants`.
"""

from __future__ import annotations

import os
import socket
from typing import Protocol

from txbroker.platform import system
from txbroker.transport.interfaces import Buffer

# At most this much of a region is read at once to be sent.
COPIED_MAX = 256 * 1024

_copied = memoryview(system.anonymous_memory(COPIED_MAX))  # used only within a call; untouched pages take no memory


class Stream(Protocol):
    """What a connection needs. Counts are of the bytes of the connection, not of what encryption makes of them. None of it blocks."""

    wants: int
    """What is to be done though no event of the socket asks for it, after each of the calls below: 0 for nothing. WRITE: `send(b"")`
    once the socket takes bytes. READ: `read_into` again, as soon as the connection can handle more."""

    def fileno(self) -> int:
        """Of the socket, to be polled; -1 once it is closed."""

    def read_into(self, buffer: memoryview, /) -> int:
        """Receive at most as much as the buffer takes: how much it was; 0 at the end. BlockingIOError if there is nothing; OSError."""

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Send some bytes: how many were taken. MSG_MORE: more follow at once. BlockingIOError if it takes none; OSError."""

    def send_region(self, file_fd: int, position: int, count: int) -> int:
        """Send bytes of a file that are in the page cache: how many were taken, 0 at the file's end. As `send`."""

    def close(self, *, reset: bool) -> None:
        """Close it. `reset`: without sending what is not sent yet."""


class PlainStream:
    """A TCP socket: it receives into the buffer, and the kernel sends regions."""

    __slots__ = ("_socket", "read_into", "send")

    wants = 0

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        # The socket's own methods: this is for each request.
        self.read_into = sock.recv_into
        self.send = sock.send

    def fileno(self) -> int:
        return self._socket.fileno()

    def send_region(self, file_fd: int, position: int, count: int) -> int:
        return os.sendfile(self._socket.fileno(), file_fd, position, count)

    def close(self, *, reset: bool) -> None:
        try:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, system.LINGER_RESET)
            else:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer has closed it
        self._socket.close()


class CopyingStream(PlainStream):
    """A TCP socket of a system without sendfile: regions are read and sent."""

    __slots__ = ()

    def send_region(self, file_fd: int, position: int, count: int) -> int:
        """See `Stream`."""
        sent = 0
        while sent < count:
            read = system.preadv(file_fd, [_copied[: min(count - sent, COPIED_MAX)]], position + sent)
            if not read:
                break
            try:
                taken = self.send(_copied[:read])
            except BlockingIOError:
                if not sent:
                    raise
                break
            sent += taken
            if taken < read:
                break
        return sent


def stream_of(sock: socket.socket) -> Stream:
    """The stream of a connection without TLS."""
    return PlainStream(sock) if system.sends_files else CopyingStream(sock)
