"""A TCP connection with TLS, after its handshake: OpenSSL works on buffers in memory, and the socket is the transport's own.

Bytes that wait in these buffers are announced by `wants` (`transport/stream.py`). Whatever is received may make OpenSSL answer by itself
(alerts, KeyUpdate), so that each read also sends. A peer that makes it answer, and does not receive the answers, is disconnected.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from txbroker.platform import system
from txbroker.transport.events import READ, WRITE
from txbroker.transport.interfaces import Buffer
from txbroker.transport.stream import PlainStream

KIB = 1024

# No more is encrypted while this much encrypted data of a connection waits for its socket; also the most that is encrypted at once.
UNSENT_MAX = 256 * KIB
# Encrypted data of answers that OpenSSL makes by itself: above this the peer does not receive.
ANSWERS_MAX = 1024 * KIB
# At least this much is received at once: two whole records of 16 KiB would be larger than a small buffer of the caller.
RECEIVED_MIN = 32 * KIB
# What encryption adds to 16 KiB, rounded up.
_ADDED = 512

# Used only within a call: by all connections, which one thread serves.
_received = memoryview(system.anonymous_memory(UNSENT_MAX))
_region = memoryview(system.anonymous_memory(UNSENT_MAX))


class Channel(NamedTuple):
    """OpenSSL's side of a connection, with the buffers of encrypted data on its two ends."""

    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO


def server_channel(context: ssl.SSLContext) -> Channel:
    """The side of a server, before the handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return Channel(context.wrap_bio(incoming, outgoing, server_side=True), incoming, outgoing)


class TlsStream:
    """Satisfies `Stream`. Errors of TLS are ssl.SSLError, an OSError."""

    __slots__ = ("_ended", "_incoming", "_outgoing", "_plain", "_socket", "_tls", "_unsent", "wants")

    def __init__(self, sock: socket.socket, channel: Channel, unsent: bytes = b"") -> None:
        """`unsent`: encrypted data of the handshake that the socket has not taken."""
        self._plain = PlainStream(sock)
        self._socket = sock
        self._tls, self._incoming, self._outgoing = channel
        self._unsent = memoryview(unsent)
        self._ended = False  # close_notify was received
        self.wants = (READ if self._incoming.pending else 0) | (WRITE if unsent else 0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_into(self, buffer: memoryview, /) -> int:
        """See `Stream`."""
        tls, incoming = self._tls, self._incoming
        read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]
        room = len(buffer)
        if self._ended:
            return 0
        if not incoming.pending and not tls.pending():
            size = min(max(room + room // 32 + _ADDED, RECEIVED_MIN), UNSENT_MAX)
            count = self._socket.recv_into(_received, size)
            if not count:
                self.wants &= ~READ
                return 0  # without close_notify, as many clients end: not an error
            incoming.write(_received[:count])
        got = 0
        try:
            while got < room:
                count = read(room - got, buffer[got:])
                if not count:
                    self._ended = True
                    break
                got += count
                if not incoming.pending and not tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        finally:
            if self._outgoing.pending:
                self._answer()
        if self._ended or incoming.pending or tls.pending():
            self.wants |= READ
        else:
            self.wants &= ~READ
        if not got and not self._ended:
            raise BlockingIOError
        return got

    def _answer(self) -> None:
        """Send what OpenSSL has to say by itself."""
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        with suppress(OSError):  # the next read or write reports it
            self._flush(0)
        if len(self._unsent) > ANSWERS_MAX:
            raise ConnectionError("the peer does not receive what TLS answers")

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """See `Stream`."""
        if self._unsent:
            self._flush(flags)
            if len(self._unsent) >= UNSENT_MAX:
                raise BlockingIOError
        if not data:
            return 0
        view = memoryview(data)
        return self._encrypt(view if len(view) <= UNSENT_MAX else view[:UNSENT_MAX], flags)

    def send_region(self, file_fd: int, position: int, count: int) -> int:
        """See `Stream`."""
        if self._unsent:
            self._flush(0)
            if len(self._unsent) >= UNSENT_MAX:
                raise BlockingIOError
        sent = 0
        while sent < count:
            read = system.preadv(file_fd, [_region[: min(count - sent, UNSENT_MAX)]], position + sent)
            if not read:
                break
            sent += self._encrypt(_region[:read], system.MSG_MORE if sent + read < count else 0)
            if self._unsent:
                break
        return sent

    def _encrypt(self, data: memoryview, flags: int) -> int:
        try:
            count = self._tls.write(data)
        except ssl.SSLError as error:  # after a fatal alert; not an error of the disk, as other OSErrors are here
            raise ConnectionError(str(error)) from error
        encrypted = self._outgoing.read()
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + encrypted)
            return count
        try:
            sent = self._socket.send(encrypted, flags)
        except BlockingIOError:
            sent = 0
        if sent < len(encrypted):
            self._unsent = memoryview(encrypted)[sent:]
            self.wants |= WRITE
        return count

    def _flush(self, flags: int) -> None:
        """Send encrypted data that waits; OSError but for a full socket."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, flags) :]
        except BlockingIOError:
            self.wants |= WRITE
            return
        self.wants &= ~WRITE

    def close(self, *, reset: bool) -> None:
        """See `Stream`."""
        if not reset and not self._unsent:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
            with suppress(OSError):
                self._socket.send(self._outgoing.read())  # close_notify
        self._plain.close(reset=reset)
