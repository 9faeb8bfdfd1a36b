"""A small document of a web server, read within limits of size and time. Redirections and proxies are not followed."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Timer
from urllib.parse import urlsplit

_PART_BYTES = 65536


class NoDocument(Exception):
    """The document could not be read; the message says why, without the URL."""


def get_document(url: str, size_max: int, timeout_s: float, context: ssl.SSLContext | None) -> bytes:
    """The content at an http: or https: URL, which needs a context. NoDocument.

    It blocks for at most `timeout_s` until there is a connection, and as long for the whole answer, headers included.
    """
    return _document(url, None, {}, size_max, timeout_s, context)


def post_form(url: str, form: str, authorization: str, size_max: int, timeout_s: float, context: ssl.SSLContext | None) -> bytes:
    """The answer to a form, as `get_document`."""
    headers = {"Authorization": authorization, "Content-Type": "application/x-www-form-urlencoded"}
    return _document(url, form, headers, size_max, timeout_s, context)


def _document(
    url: str, form: str | None, headers: Mapping[str, str], size_max: int, timeout_s: float, context: ssl.SSLContext | None
) -> bytes:
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    connection = (
        http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        if parts.scheme == "http"
        else http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
    )
    expired = Event()
    try:
        connection.connect()
        timer = Timer(timeout_s, _cut, (connection.sock, expired))
        timer.daemon = True
        timer.start()
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            document = _answer(connection, target, form, headers, size_max)
        finally:
            timer.cancel()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoDocument(_late(timeout_s) if expired.is_set() else str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if expired.is_set():  # a cut looks like the end of a document without a length
        raise NoDocument(_late(timeout_s))
    return document


def _late(timeout_s: float) -> str:
    return f"the server has not sent it within {timeout_s:g} s"


def _answer(connection: http.client.HTTPConnection, target: str, form: str | None, headers: Mapping[str, str], size_max: int) -> bytes:
    connection.request(
        "GET" if form is None else "POST", target, form, headers={**headers, "Accept": "application/json", "Connection": "close"}
    )
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise NoDocument(f"the server answers with the status {response.status}")
    return _content(response, size_max)


def _cut(sock: socket.socket, expired: Event) -> None:
    """End the connection: a time limit of a socket begins again with each byte."""
    expired.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _content(response: http.client.HTTPResponse, size_max: int) -> bytes:
    parts, size = [], 0
    while part := response.read1(_PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > size_max:
            raise NoDocument(f"the document has more than {size_max} bytes")
    if response.length:
        raise NoDocument("the server closed the connection before the end of the document")
    return b"".join(parts)
