"""The control port of a broker for tests: JSON over HTTP, on 127.0.0.1 only.

    GET    /v1                    the version of the broker
    POST   /v1/rules              add a rule (`rule_specs.py`); its state with its id
    GET    /v1/rules              the state of all rules;  /v1/rules/ID of one
    DELETE /v1/rules/ID           remove a rule, and let go on what it holds
    POST   /v1/rules/ID/release   let go on what it holds
    GET    /v1/journal?since=N    the requests after that number, at most PAGE_MAX; `last` is the number of the last one
    POST   /v1/reset              remove all rules

A body is a JSON object with the content type application/json. An error is {"error": "one line"} with a status of HTTP. The Host header
must name this port: a page in a browser cannot use it.
"""

from __future__ import annotations

import itertools
import json
import logging
from typing import Any
from urllib.parse import parse_qs

from twisted.web import http

from txbroker import __version__
from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults

log = logging.getLogger("txbroker.testing")

BODY_BYTES_MAX = 64 * 1024
PAGE_MAX = 2000
_JSON = b"application/json"


class Problem(Exception):
    """A request that is refused, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control:
    """What the port does."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def handle(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> object:
        """The answer to a request; Problem, KitError."""
        match (method, *path):
            case ("GET",):
                return {"version": __version__}
            case ("GET", "rules"):
                return {"rules": [rule.state() for rule in self._faults.rules.all()]}
            case ("POST", "rules"):
                return self._faults.add(body).state()
            case ("GET", "rules", number):
                return self._faults.rules.get(_number(number)).state()
            case ("DELETE", "rules", number):
                return self._faults.remove(_number(number)).state()
            case ("POST", "rules", number, "release"):
                return self._faults.release(_number(number)).state()
            case ("GET", "journal"):
                return self._journal(_number(query.get("since", ["0"])[0]))
            case ("POST", "reset"):
                self._faults.reset()
                return {}
        raise Problem(http.NOT_FOUND, f"there is no {method} /v1/{'/'.join(path)}; see docs/testing.md")

    def _journal(self, since: int) -> object:
        journal = self._faults.journal
        entries = [call.as_json() for call in itertools.islice(journal.since(since), PAGE_MAX)]
        return {"entries": entries, "last": journal.last}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise Problem(http.BAD_REQUEST, f"{text[:100]!r} is not a number")
    return int(text)


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
        try:
            status, answer = http.OK, self._answer()
        except Problem as problem:
            status, answer = problem.status, {"error": str(problem)}
        except KitError as error:
            status, answer = http.BAD_REQUEST, {"error": str(error)}
        except Exception as error:
            log.exception("internal error in the control port")
            status, answer = http.INTERNAL_SERVER_ERROR, {"error": f"internal error: {error}; the broker's log has the traceback"}
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
        path, _, query = self.uri.decode("latin-1").partition("?")
        version, *rest = path.strip("/").split("/")
        if version != "v1":
            raise Problem(http.NOT_FOUND, "the paths of this port begin with /v1")
        method = self.method.decode("latin-1")
        control: Control = factory.control
        return control.handle(method, rest, parse_qs(query), self._body() if method == "POST" else None)

    def _body(self) -> object:
        content = b"" if self.content is None else self.content.read()
        if (self.getHeader(b"content-type") or b"").partition(b";")[0].strip().lower() != _JSON:
            raise Problem(http.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Problem(http.BAD_REQUEST, f"the body is not JSON: {error}") from None


class _Channel(http.HTTPChannel):
    requestFactory = ControlRequest


class ControlFactory(http.HTTPFactory):
    """The factory of the port."""

    protocol: Any = _Channel

    def __init__(self, reactor: Any, control: Control) -> None:
        super().__init__(reactor=reactor)
        self.control = control

    def log(self, request: object) -> None:
        """Requests are not logged."""
