"""A small document of a web server, read within limits of size and time. Redirections and proxies are not followed."""

from __future__ import annotations

import http.client
import ssl
import time
from urllib.parse import urlsplit

_PART_BYTES = 65536


class NoDocument(Exception):
    """The document could not be read; the message says why, without the URL."""


def get_document(url: str, size_max: int, timeout_s: float, context: ssl.SSLContext | None) -> bytes:
    """The content at an http: or https: URL, which needs a context; it blocks for little more than `timeout_s`. NoDocument."""
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    deadline_s = time.monotonic() + timeout_s
    connection = (
        http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        if parts.scheme == "http"
        else http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise NoDocument(f"the server answers with the status {response.status}")
        return _content(response, size_max, deadline_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoDocument(str(error) or type(error).__name__) from error
    finally:
        connection.close()


def _content(response: http.client.HTTPResponse, size_max: int, deadline_s: float) -> bytes:
    parts, size = [], 0
    while part := response.read1(_PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > size_max:
            raise NoDocument(f"the document has more than {size_max} bytes")
        if time.monotonic() > deadline_s:
            raise NoDocument("the server sends too slowly")
    if response.length:
        raise NoDocument("the server closed the connection before the end of the document")
    return b"".join(parts)
