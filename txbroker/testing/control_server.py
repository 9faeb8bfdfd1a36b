"""The control port of a broker for tests: JSON over HTTP, on 127.0.0.1 only. `control_routes.py` has what it serves.

A body is a JSON object with the content type application/json; it may be left out if nothing in it is required. An error is
{"error": "one line"} with a status of HTTP. The Host header must name this port, and there must be no Origin header: a page in a browser
cannot use it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure
from twisted.web import http

from txbroker.client.client_errors import ClientError
from txbroker.testing.control_forms import Body, find
from txbroker.testing.control_routes import OPERATIONS
from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults
from txbroker.testing.openapi import ROOT
from txbroker.testing.operations import Operations

log = logging.getLogger("txbroker.testing")

BODY_BYTES_MAX = 64 * 1024
_JSON = b"application/json"


class Problem(Exception):
    """A request that is refused, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control:
    """What the port of a broker does."""

    def __init__(self, faults: Faults, operations: Operations) -> None:
        self._parts: Mapping[type, object] = {Faults: faults, Operations: operations}

    def handle(self, method: str, path: list[str], query: dict[str, list[str]], body: Body) -> object:
        """The answer to a request, or a Deferred of it; Problem, KitError."""
        found = find(OPERATIONS, method, path)
        if found is None:
            raise Problem(http.NOT_FOUND, f"there is no {method} {'/'.join([ROOT, *path])}; GET {ROOT}/openapi.json has what there is")
        operation, variables = found
        return operation.run(self._parts[operation.part], operation.asked(variables, query, body))


class ControlRequest(http.Request):
    """One request, with a bounded body."""

    _is_refused = False

    def gotLength(self, length: int | None) -> None:
        if length is None or length > BODY_BYTES_MAX:
            self._is_refused = True
            super().gotLength(0)
            transport: Any = self.channel.transport
            transport.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.channel.loseConnection()
        else:
            super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:
        if not self._is_refused:
            super().handleContentChunk(data)

    def process(self) -> None:
        if self._is_refused:
            return
        maybeDeferred(self._answer).addCallbacks(partial(self._respond, http.OK), self._failed)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, Problem):
            status, text = error.status, str(error)
        elif isinstance(error, KitError | ClientError):
            status, text = http.BAD_REQUEST, str(error)
        else:
            log.error("internal error in the control port: %s", failure.getTraceback())
            status, text = http.INTERNAL_SERVER_ERROR, f"internal error: {error}; the broker's log has the traceback"
        self._respond(status, {"error": text})

    def _respond(self, status: int, answer: object) -> None:
        if self._disconnected:
            return  # the client has not waited
        content = json.dumps(answer).encode()
        self.setResponseCode(status)
        self.setHeader(b"content-type", _JSON)
        self.setHeader(b"content-length", str(len(content)).encode())
        self.write(content)
        self.finish()

    def _answer(self) -> object:
        factory: Any = self.channel.factory
        port = self.getHost().port
        if self.getHeader(b"host") not in (f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode()):
            raise Problem(http.FORBIDDEN, f"the Host header must be 127.0.0.1:{port}")
        if self.getHeader(b"origin") is not None:
            raise Problem(http.FORBIDDEN, "a page in a browser cannot use this port: send no Origin header")
        path, _, query = self.uri.decode("latin-1").partition("?")
        version, *rest = path.strip("/").split("/")
        if f"/{version}" != ROOT:
            raise Problem(http.NOT_FOUND, f"the paths of this port begin with {ROOT}")
        control: Handles = factory.control
        return control.handle(self.method.decode("latin-1"), rest, parse_qs(query, keep_blank_values=True), self._body)

    def _body(self, is_needed: bool) -> object:
        content = b"" if self.content is None else self.content.read()
        if not content:
            if is_needed:
                raise Problem(http.BAD_REQUEST, f"the body is empty; GET {ROOT}/openapi.json has what it must have")
            return {}
        if (self.getHeader(b"content-type") or b"").partition(b";")[0].strip().lower() != _JSON:
            raise Problem(http.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Problem(http.BAD_REQUEST, f"the body is not JSON: {error}") from None


class _Channel(http.HTTPChannel):
    requestFactory = ControlRequest


class Handles(Protocol):
    """What a control port does with requests."""

    def handle(self, method: str, path: list[str], query: dict[str, list[str]], body: Body) -> object:
        """See `Control`."""


class ControlFactory(http.HTTPFactory):
    """The factory of the port."""

    protocol: Any = _Channel

    def __init__(self, reactor: Any, control: Handles) -> None:
        super().__init__(reactor=reactor)
        self.control = control

    def log(self, request: object) -> None:
        """Requests are not logged."""
