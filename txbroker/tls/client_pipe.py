"""The side of a client of a connection with TLS, without I/O: bytes of the connection go in and out, encrypted and not."""

from __future__ import annotations

import ssl

_CHUNK = 256 * 1024


class ClientPipe:
    """`begin` first, and then `feed` whatever is received. `complete`: the handshake is, so that `encrypt` may be called."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """`host`: the name that the server's certificate must have, if the context checks it."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.complete = False
        self.ended = False
        """The peer has said that no more follows."""

    def begin(self) -> bytes:
        """What is to be sent first."""
        self._step()
        return self.unsent()

    def feed(self, data: bytes) -> bytes:
        """The plain bytes of what was received; ssl.SSLError. `unsent` is to be sent afterwards, also after an error."""
        self._incoming.write(data)
        if not self.complete:
            self._step()
        plain: list[bytes] = []
        try:
            while self.complete and not self.ended and (self._incoming.pending or self._tls.pending()):
                read = self._tls.read(_CHUNK)
                self.ended = not read
                plain.append(read)
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """These bytes as they are sent; ssl.SSLError."""
        self._tls.write(data)
        return self.unsent()

    def unsent(self) -> bytes:
        """What TLS has to send by itself."""
        return self._outgoing.read()

    def _step(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.complete = True
