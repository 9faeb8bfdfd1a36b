"""Clients that speak TLS or HTTP to a listener of Kafka's protocol, recognised by their first four bytes.

Kafka's protocol starts with the size of a request. A TLS handshake and an HTTP request read as sizes of more than 350 MB there, which
are refused anyway unless socket.request.max.bytes is that large.
"""

from __future__ import annotations

from txbroker.api.unsupported_features import Feature

# Content type 22 (handshake) and the major version 3 of a TLS record.
_TLS_HANDSHAKE = 0x1603
_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ")
_HTTP_SIZES = frozenset(int.from_bytes(method, "big") for method in _HTTP_METHODS)

_BODY = b"This port serves Kafka's protocol without TLS. It serves neither HTTP nor HTTPS.\n"

# The answer to either. TLS libraries report "wrong version number" or "unrecognized SSL message" on it, at once: the usual sign of a peer
# without TLS. A TLS alert makes them report a problem of TLS versions instead.
ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


def feature(size: int) -> Feature | None:
    """What a client requires whose request seems to have this size; None if it is no beginning of TLS or HTTP."""
    if size >> 16 == _TLS_HANDSHAKE:
        return Feature.TLS
    return Feature.HTTP if size in _HTTP_SIZES else None
