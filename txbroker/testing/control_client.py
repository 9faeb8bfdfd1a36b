"""Requests to the control port of a broker."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from txbroker.testing.errors import KitError, NoAnswer

TIMEOUT_S = 90.0  # a move in a cluster may take a while


class ControlClient:
    """`url`: as http://127.0.0.1:PORT; None for a broker without control, of which every method raises KitError with `why_none`."""

    def __init__(self, url: str | None, why_none: str = "") -> None:
        self.url = url
        self._why_none = why_none

    @property
    def required_url(self) -> str:
        """The URL; KitError if there is none."""
        if self.url is None:
            raise KitError(self._why_none)
        return self.url

    def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Any:
        """The answer to GET; KitError with the error of the port."""
        return self._request("GET", path, timeout_s=timeout_s)

    def post(self, path: str, body: object = None, timeout_s: float = TIMEOUT_S) -> Any:
        """The answer to POST; KitError."""
        return self._request("POST", path, {} if body is None else body, timeout_s)

    def put(self, path: str, body: object) -> Any:
        """The answer to PUT; KitError."""
        return self._request("PUT", path, body)

    def delete(self, path: str) -> Any:
        """The answer to DELETE; KitError."""
        return self._request("DELETE", path)

    def _request(self, method: str, path: str, body: object = None, timeout_s: float = TIMEOUT_S) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.required_url).netloc, timeout=timeout_s)
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "Connection": "close"} if content else {"Connection": "close"}
            connection.request(method, f"/v1{path}", content, headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"the broker's control port {self.url} does not answer ({error}): has the broker ended?") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise KitError(found["error"])
        return found
